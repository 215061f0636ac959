/* A forecast against sums over the schedules, made the slow way. */
#include "report/forecast.h"

#include "schedule/random_costs.h"

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

/* The most that is in use while any one task runs. */
static uint64_t most_in_use(const schedule *s, tier t)
{
    uint64_t most = 0;
    for (int i = 0; i < s->tasks_n; i++) {
        uint64_t now = 0;
        for (int k = 0; k < s->buffers_n; k++) {
            const buffer *b = &s->buffers[k];
            if (b->tier == t && b->first >= 0 && b->first <= i && i <= b->last && !(b->idle <= i && i < b->idle_end))
                now += b->bytes;
        }
        most = now > most ? now : most;
    }
    return most;
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
            uint64_t now = most_in_use(&s, t);
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
            l->first_sums_ns = l->cold_sums_ns = 0; /* where sums lie differs between the two */
            l->warm_backward_ns[SAVE_ALL] = fmin(l->warm_backward_ns[SAVE_ALL], l->backward_ns[SAVE_ALL]);
            for (int level = SAVE_ALL - 1; level >= 0; level--) {
                const double again = random_ns(&r, 0, 20000);
                l->forward_ns[level] = l->forward_ns[SAVE_ALL];
                l->backward_ns[level] = l->backward_ns[level + 1] + again;
                l->warm_backward_ns[level] = l->warm_backward_ns[level + 1] + again * random_ns(&r, 0, 1);
            }
        }
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
