/* A forecast against sums over the schedules, made the slow way. */
#include "predict/forecast.h"

#include "predict/random_costs.h"
#include "schedule/in_use.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

enum { CASES = 200 };

static unsigned kinds_of(const plan *p)
{
    unsigned kinds = 1u << SCHEDULE_STEP | 1u << SCHEDULE_EVAL;
    if (p->update != UPDATE_BACKWARD)
        kinds |= 1u << SCHEDULE_DRAIN;
    return p->update == UPDATE_NEXT_FORWARD ? kinds | 1u << SCHEDULE_STEP_UPDATE : kinds;
}

static void check_memory(const random_case *c, const forecast *f, unsigned kinds)
{
    uint64_t bytes[TIERS], most[TIERS] = {0};
    pt_error e = {0};
    if (schedule_plan_bytes(&c->input, kinds, bytes, &e))
        fail_msg("%s", e.text);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        schedule s;
        if (!(kinds & 1u << kind))
            continue;
        assert_int_equal(schedule_build(&c->input, kind, &s, &e), 0);
        for (int t = 0; t < TIERS; t++) {
            uint64_t now = most_in_use(&s, t, 1);
            most[t] = now > most[t] ? now : most[t];
        }
        schedule_free(&s);
    }
    for (int t = 0; t < TIERS; t++) {
        uint64_t sum = 0;
        for (int p = 0; p < MEMORY_PARTS; p++)
            sum += f->part[t][p];
        assert_int_equal(f->bytes[t], bytes[t]);
        assert_int_equal(sum, bytes[t]);
        assert_int_equal(sum - f->part[t][PART_ROOM], most[t]);
    }
}

/* ---- waits, moment by moment ---- */

/* The queue that works at `t` for what task i waits for in the end: of the task that it can begin after, or what that waits for. */
static int works_for(const schedule *s, const simulation *sim, int i, double t)
{
    int last = i - 1;
    while (last >= 0 && s->tasks[last].queue != s->tasks[i].queue)
        last--;
    for (int q = 0; q < QUEUES; q++) {
        const int other = s->tasks[i].wait[q];
        last = other >= 0 && (last < 0 || sim->end_ns[other] > sim->end_ns[last]) ? other : last;
    }
    assert_true(last >= 0);
    return sim->start_ns[last] <= t ? (int)s->tasks[last].queue : works_for(s, sim, last, t);
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between any two moments at which something begins or ends the same queue works for a queue that has nothing to do. */
static void add_schedule_waits(const random_case *c, const costs *price, schedule_kind kind, double wait_ns[QUEUES][QUEUES])
{
    schedule s;
    simulation sim;
    pt_error e = {0};
    assert_int_equal(schedule_build(&c->input, kind, &s, &e), 0);
    assert_int_equal(simulate(&c->input, &s, price, true, &sim, &e), 0);
    const int n = 2 * s.tasks_n;
    double *moments = malloc((size_t)(n + 1) * sizeof *moments), free_since[QUEUES] = {0};
    int end = 0;
    assert_non_null(moments);
    memcpy(moments, sim.start_ns, (size_t)s.tasks_n * sizeof *moments);
    memcpy(moments + s.tasks_n, sim.end_ns, (size_t)s.tasks_n * sizeof *moments);
    qsort(moments, (size_t)n, sizeof *moments, by_time);
    for (int i = 0; i < s.tasks_n; i++) {
        const int q = s.tasks[i].queue;
        for (int k = 1; k < n; k++)
            if (moments[k - 1] >= free_since[q] && moments[k] <= sim.start_ns[i] && moments[k] > moments[k - 1])
                wait_ns[q][works_for(&s, &sim, i, (moments[k - 1] + moments[k]) / 2)] += moments[k] - moments[k - 1];
        free_since[q] = sim.end_ns[i];
        end = sim.end_ns[i] > sim.end_ns[end] ? i : end;
    }
    for (int k = 1; k < n; k++) /* compute waits for the end of all, too */
        if (moments[k - 1] >= free_since[QUEUE_COMPUTE] && moments[k] > moments[k - 1]) {
            const double t = (moments[k - 1] + moments[k]) / 2;
            const int q = sim.start_ns[end] <= t ? (int)s.tasks[end].queue : works_for(&s, &sim, end, t);
            wait_ns[QUEUE_COMPUTE][q] += moments[k] - moments[k - 1];
        }
    free(moments);
    simulation_free(&sim);
    schedule_free(&s);
}

/* What a schedule takes longer than to its last task's end, for a quota of processor time is used up. */
static double behind_in(const random_case *c, const costs *price, schedule_kind kind)
{
    schedule s;
    simulation sim;
    pt_error e = {0};
    double end = 0;
    assert_int_equal(schedule_build(&c->input, kind, &s, &e), 0);
    assert_int_equal(simulate(&c->input, &s, price, true, &sim, &e), 0);
    for (int i = 0; i < s.tasks_n; i++)
        end = fmax(end, sim.end_ns[i]);
    const double behind = sim.total_ns - price->step_ns - end;
    simulation_free(&sim);
    schedule_free(&s);
    return behind;
}

static double behind_ns(const random_case *c, const costs *price)
{
    schedule_kind first;
    int second;
    steady_schedules(c->plan.update, &first, &second);
    if (!c->input.training)
        first = SCHEDULE_EVAL, second = -1;
    const double behind = behind_in(c, price, first) + (second >= 0 ? behind_in(c, price, (schedule_kind)second) : 0);
    assert_true(price->quota.period_ns > 0 ? behind >= -1e-6 * price->quota.period_ns : fabs(behind) < 1e-3);
    return behind;
}

static void check_waits(const random_case *c, const costs *price, const forecast *f)
{
    double wait_ns[QUEUES][QUEUES] = {0};
    schedule_kind first;
    int second;
    steady_schedules(c->plan.update, &first, &second);
    if (!c->input.training)
        first = SCHEDULE_EVAL, second = -1;
    add_schedule_waits(c, price, first, wait_ns);
    if (second >= 0)
        add_schedule_waits(c, price, (schedule_kind)second, wait_ns);
    for (int a = 0; a < QUEUES; a++)
        for (int b = 0; b < QUEUES; b++)
            if (fabs(wait_ns[a][b] - f->wait_ns[a][b]) > 1e-6 * f->step_ns)
                fail_msg("%s stands still %g ns for %s, not %g", queue_names[a], wait_ns[a][b], queue_names[b], f->wait_ns[a][b]);
}

static void check_time(const random_case *c, const costs *price, const forecast *f)
{
    double step, left;
    pt_error e = {0};
    assert_int_equal(simulate_plan(&c->input, price, &step, &e), 0);
    assert_true(fabs(f->step_ns - step) <= 1e-9 * step);
    for (int q = 0; q < QUEUES; q++) {
        assert_true(f->busy_ns[q] <= f->step_ns * (1 + 1e-9));
        assert_true(f->alone_ns[q] <= f->busy_ns[q] * (1 + 1e-9));
    }
    assert_true(f->bound_ns <= f->step_ns * (1 + 1e-9));
    assert_true(fabs(f->needed_ns + f->again_ns - f->alone_ns[QUEUE_COMPUTE]) <= 1e-9 * step);
    for (int q = 0; q < QUEUES; q++) {
        left = f->step_ns;
        for (int other = 0; other < QUEUES; other++)
            left -= f->wait_ns[q][other];
        assert_true(left >= f->busy_ns[q] - 1e-6 * step); /* no queue is busy while it stands still */
        assert_true(q != QUEUE_COMPUTE || fabs(left - f->busy_ns[q] - price->step_ns - behind_ns(c, price)) <= 1e-6 * step);
    }
}

static void a_forecast_adds_up_to_the_arenas_and_to_the_simulated_step(void **state)
{
    (void)state;
    random_source all = random_open();
    int made = 0;
    for (uint64_t i = 0; made < CASES; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        forecast f;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        costs price = random_costs(&r, c.model, random_one_in(&r, 2));
        int failed = forecast_make(&c.input, kinds_of(&c.plan), &price, &f, &e);
        if (failed && failed != PT_DOES_NOT_FIT)
            fail_msg("%s", e.text);
        if (!failed) {
            check_memory(&c, &f, kinds_of(&c.plan));
            check_time(&c, &price, &f);
            check_waits(&c, &price, &f);
            made++;
        }
        random_case_close(&c);
    }
}

/* What everything kept would not compute is what "again" says. */
static void what_is_computed_again_is_what_keeping_everything_saves(void **state)
{
    (void)state;
    random_source all = random_open();
    int made = 0;
    for (uint64_t i = 0; made < 40; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        forecast now, kept;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        costs price = random_costs(&r, c.model, false);
        for (int k = 0; k < price.kinds_n; k++) {
            layer_cost *l = &price.layer[k];
            l->first_accumulators_ns = l->cold_accumulators_ns = 0; /* where sums lie differs between the two */
            l->warm_backward_ns[SAVE_ALL] = fmin(l->warm_backward_ns[SAVE_ALL], l->backward_ns[SAVE_ALL]);
            for (int level = SAVE_ALL - 1; level >= 0; level--) {
                const double again = random_ns(&r, 0, 20000);
                l->forward_ns[level] = l->forward_ns[SAVE_ALL];
                l->backward_ns[level] = l->backward_ns[level + 1] + again;
                l->warm_backward_ns[level] = l->warm_backward_ns[level + 1] + again * random_ns(&r, 0, 1);
            }
        }
        price.task_ns = c.plan.ranges || shape_parts(&c.shape) > 1 ? 0 : price.task_ns; /* recomputation may be tasks of its own */
        int failed = forecast_make(&c.input, kinds_of(&c.plan), &price, &now, &e);
        for (int b = 0; b < c.plan.blocks_n; b++)
            c.plan.blocks[b].level = SAVE_ALL;
        if (!failed && !forecast_make(&c.input, kinds_of(&c.plan), &price, &kept, &e)) {
            double saved = now.alone_ns[QUEUE_COMPUTE] - kept.alone_ns[QUEUE_COMPUTE];
            assert_true(fabs(saved - now.again_ns) <= 1e-6 * now.alone_ns[QUEUE_COMPUTE]);
            assert_true(kept.again_ns == 0);
            made++;
        }
        random_case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forecast_adds_up_to_the_arenas_and_to_the_simulated_step),
        cmocka_unit_test(what_is_computed_again_is_what_keeping_everything_saves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
