/* The simulator, beside a plain simulation of random schedules, and what is true of every simulation. */
#include "predict/random_costs.h"
#include "predict/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "predict/near.h"

typedef enum life { WAITING, RUNNING, DONE } life;

static bool may_start(const schedule *s, const life *state, int i)
{
    for (int k = 0; k < i; k++)
        if (s->tasks[k].queue == s->tasks[i].queue && state[k] != DONE)
            return false;
    for (int q = 0; q < QUEUES; q++)
        if (s->tasks[i].wait[q] >= 0 && state[s->tasks[i].wait[q]] != DONE)
            return false;
    return true;
}

/* How many times as long the task takes beside `class`: of the straight line through what both lengths take there. */
static double beside(const costs *c, int a, int class, double alone)
{
    const double from = c->slow_ns[a][0], to = c->slow_ns[a][1], slow = c->slow[a][class], more = c->slow_more[a][class];
    if (to <= 0 || (to > from ? alone <= from : alone >= from))
        return slow;
    if (to < from && alone <= to)
        return slow + more;
    const double first = from * slow, second = to * (slow + more);
    return (first + (alone - from) * (second - first) / (to - from)) / alone;
}

static bool runs_beside(const schedule *s, const life *state, int i, int class)
{
    for (int k = 0; k < s->tasks_n; k++)
        if (state[k] == RUNNING && s->tasks[k].queue != s->tasks[i].queue && (int)task_class(&s->tasks[k]) == class)
            return true;
    return false;
}

/* Processor time that what runs wants of each ns; of the disk's what is left of its pace. */
static double speed(const schedule_input *in, const schedule *s, const costs *c, const life *state, int i);

static double wanted(const schedule_input *in, const schedule *s, const costs *c, const life *state)
{
    double own = 0, of_host = 0;
    for (int i = 0; i < s->tasks_n; i++) {
        const int class = (int)task_class(&s->tasks[i]);
        const bool disk = class == COST_READ || class == COST_WRITE;
        own += state[i] == RUNNING && !disk ? c->quota.busy[class] : 0;
        of_host += state[i] == RUNNING && disk ? c->quota.busy[class] * speed(in, s, c, state, i) : 0;
    }
    return fmin(own, c->quota.processors) + of_host;
}

/* What a disk's one way, which `a` alone would leave at 1 / slow[way][a] of its pace, keeps of that beside the other way. */
static double pace_left(const costs *c, int a, int way, int other)
{
    const double before = 1 / c->slow[way][a], after = 1 / (c->slow[way][a] * c->slow[way][other]);
    return after / before;
}

static double speed(const schedule_input *in, const schedule *s, const costs *c, const life *state, int i)
{
    double slow = 1, other_way = 1;
    const double alone = costs_task_ns(c, in, s, &s->tasks[i]);
    const int a = (int)task_class(&s->tasks[i]), other = a == COST_READ ? COST_WRITE : a == COST_WRITE ? COST_READ : -1;
    const bool computes = other < 0;
    const bool both = runs_beside(s, state, i, COST_READ) && runs_beside(s, state, i, COST_WRITE);
    for (int class = 0; class < COST_CLASSES; class++) {
        double longer = runs_beside(s, state, i, class) ? beside(c, a, class, alone) - 1 : 0;
        if (computes && both && class == COST_READ)
            longer *= pace_left(c, a, COST_READ, COST_WRITE);
        if (computes && both && class == COST_WRITE)
            longer *= pace_left(c, a, COST_WRITE, COST_READ);
        if (class == other)
            other_way += longer;
        else
            slow += longer;
    }
    return 1 / (slow * other_way);
}

/* Of a task that begins now: what its work is longer by for the time since the last arithmetic ended. */
static double wake_latency(const costs *c, const schedule *s, const life *state, const double *end, int i, double now, double work)
{
    double last = 0;
    for (int k = 0; k < s->tasks_n; k++)
        if (state[k] == DONE && task_class(&s->tasks[k]) == COST_MATH)
            last = fmax(last, end[k]);
    if (task_class(&s->tasks[i]) != COST_MATH || !c->wake_latency.n)
        return 0;
    return fmin(work, cost_at(&c->wake_latency, fmin(now - last, c->wake_latency.amount[c->wake_latency.n - 1])));
}

/* Looks at every task at every event, of which a period's end and that of its processor time are some. Fills start and end; returns the
 * time of the last end, and the processor time used. */
static double plain_simulation(const schedule_input *in, const schedule *s, const costs *c, double *start, double *end, double *used)
{
    int n = s->tasks_n, done = 0;
    life *state = calloc((size_t)n + 1, sizeof *state);
    double *left = calloc((size_t)n + 1, sizeof *left), now = 0, period = c->quota.period_ns, next = period,
        unused = period * c->quota.processors;
    assert_true(state && left);
    *used = 0;
    while (done < n) {
        double step = INFINITY;
        for (int i = 0; i < n; i++)
            if (state[i] == WAITING && may_start(s, state, i)) {
                state[i] = RUNNING;
                start[i] = now;
                left[i] = costs_task_ns(c, in, s, &s->tasks[i]);
                left[i] += wake_latency(c, s, state, end, i, now, left[i]);
            }
        for (int i = 0; i < n; i++)
            if (state[i] == RUNNING)
                step = fmin(step, left[i] / speed(in, s, c, state, i));
        assert_true(isfinite(step));
        const double each = wanted(in, s, c, state);
        if (period > 0 && (now >= next || unused <= 1e-9 * period)) { /* all stands still until then */
            now = fmax(now, next);
            next += period;
            unused = period * c->quota.processors;
            continue;
        }
        step = period > 0 ? fmin(step, fmin(next - now, each > 0 ? unused / each : INFINITY)) : step;
        unused -= step * each;
        *used += step * each;
        for (int i = 0; i < n; i++)
            left[i] -= state[i] == RUNNING ? step * speed(in, s, c, state, i) : 0;
        now += step;
        for (int i = 0; i < n; i++)
            if (state[i] == RUNNING && left[i] <= 1e-6) {
                state[i] = DONE;
                end[i] = now;
                done++;
            }
    }
    free(state);
    free(left);
    return now;
}

/* A random case with a schedule of at most `most` tasks and its costs. */
static bool open_schedule(random_source *r, random_case *c, schedule *s, costs *k, bool contention, int most)
{
    pt_error e = {0};
    assert_int_equal(random_case_open(r, c, &e), 0);
    *k = random_costs(r, c->model, contention);
    int failed = schedule_build(&c->input, random_kind(r, c), s, &e);
    if (!failed && s->tasks_n <= most)
        return true;
    if (!failed)
        schedule_free(s);
    random_case_close(c);
    return false;
}

/* Of its schedule alone, without what a step takes besides. */
static double simulated_without_quota(const schedule_input *in, const schedule *s, costs k)
{
    pt_error e = {0};
    simulation out;
    k.quota.period_ns = 0;
    assert_int_equal(simulate(in, s, &k, false, &out, &e), 0);
    return out.total_ns - k.step_ns;
}

static void random_schedules_agree_with_a_plain_simulation(void **state)
{
    (void)state;
    random_source all = random_open();
    int compared = 0, stood = 0;
    for (uint64_t i = 0; compared < 300; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        costs k;
        pt_error e = {0};
        simulation out;
        if (!open_schedule(&r, &c, &s, &k, true, 150))
            continue;
        double *times = calloc(2 * (size_t)s.tasks_n, sizeof *times);
        assert_non_null(times);
        const double free_ns = simulated_without_quota(&c.input, &s, k);
        if (k.quota.period_ns > 0) { /* some of them meet that */
            k.quota.period_ns = free_ns * random_ns(&r, 0.05, 0.6);
            k.quota.processors = random_ns(&r, 1, 1.5);
        }
        double used, total = plain_simulation(&c.input, &s, &k, times, times + s.tasks_n, &used);
        total = k.quota.period_ns > 0 ? fmax(total, used / k.quota.processors) : total;
        assert_int_equal(simulate(&c.input, &s, &k, true, &out, &e), 0);
        for (int t = 0; t < s.tasks_n; t++)
            if (!near(out.start_ns[t], times[t]) || !near(out.end_ns[t], times[s.tasks_n + t]))
                fail_msg("case %llu, task %d: %.3f .. %.3f, and it should be %.3f .. %.3f", (unsigned long long)i, t, out.start_ns[t],
                         out.end_ns[t], times[t], times[s.tasks_n + t]);
        assert_true(near(out.total_ns, total + k.step_ns));
        simulation_free(&out);
        free(times);
        stood += total > free_ns * (1 + 1e-6);
        schedule_free(&s);
        random_case_close(&c);
        compared++;
    }
    assert_true(stood > 15); /* of 300, half of which have a quota */
}

/* ---- what is true of every simulation ---- */

static void check_order(const schedule *s, const simulation *r)
{
    double last[QUEUES] = {0};
    for (int i = 0; i < s->tasks_n; i++) {
        const task *t = &s->tasks[i];
        assert_true(r->end_ns[i] >= r->start_ns[i] && r->start_ns[i] >= last[t->queue]);
        for (int q = 0; q < QUEUES; q++)
            assert_true(t->wait[q] < 0 || r->start_ns[i] >= r->end_ns[t->wait[q]]);
        last[t->queue] = r->end_ns[i];
    }
    for (int q = 0; q < QUEUES; q++) {
        double all = r->busy_ns[q];
        for (int other = 0; other < QUEUES; other++)
            all += r->wait_ns[q][other];
        assert_true(near(all, last[q])); /* a queue works or waits until its last task ends */
        assert_true(r->wait_ns[q][q] == 0);
    }
}

static double sum_of_queue(const schedule_input *in, const schedule *s, const costs *c, int q)
{
    double sum = 0;
    for (int i = 0; i < s->tasks_n; i++)
        sum += (int)s->tasks[i].queue == q ? costs_task_ns(c, in, s, &s->tasks[i]) : 0;
    return sum;
}

static void scale_curve(cost_curve *c, double factor)
{
    for (int i = 0; i < c->n; i++)
        c->ns[i] *= factor;
}

/* Without contention every task's start is a maximum of sums of times, so what takes less can only help. */
static double total_with_faster(random_source *r, const schedule_input *in, const schedule *s, costs k)
{
    simulation out;
    pt_error e = {0};
    double factor = random_ns(r, 0.1, 1);
    cost_curve *curves[] = {&k.to_device, &k.from_device, &k.read, &k.write, &k.update_host, &k.update_device, &k.finish};
    scale_curve(curves[random_below(r, 7)], factor);
    assert_int_equal(simulate(in, s, &k, false, &out, &e), 0);
    return out.total_ns;
}

static void tasks_keep_their_order_and_queues_their_sums(void **state)
{
    (void)state;
    random_source all = random_open();
    int compared = 0;
    for (uint64_t i = 0; compared < 1500; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        costs k;
        simulation alone, beside;
        pt_error e = {0};
        if (!open_schedule(&r, &c, &s, &k, true, 1 << 20))
            continue;
        assert_int_equal(simulate(&c.input, &s, &k, true, &beside, &e), 0);
        check_order(&s, &beside);
        for (int a = 0; a < COST_CLASSES; a++)
            for (int b = 0; b < COST_CLASSES; b++)
                k.slow[a][b] = 1, k.slow_more[a][b] = 0;
        k.wake_latency.n = 0;
        k.quota.period_ns = 0;
        assert_int_equal(simulate(&c.input, &s, &k, true, &alone, &e), 0);
        check_order(&s, &alone);
        for (int q = 0; q < QUEUES; q++) {
            double sum = sum_of_queue(&c.input, &s, &k, q);
            assert_true(near(alone.busy_ns[q], sum) && alone.total_ns >= (sum + k.step_ns) * (1 - 1e-9));
            assert_true(beside.busy_ns[q] >= sum * (1 - 1e-9));
        }
        assert_true(near(alone.phase_ns[0] + alone.phase_ns[1] + alone.phase_ns[2],
                         alone.busy_ns[QUEUE_COMPUTE] + alone.busy_ns[QUEUE_HOST]));
        assert_true(total_with_faster(&r, &c.input, &s, k) <= alone.total_ns * (1 + 1e-9));
        simulation_free(&alone);
        simulation_free(&beside);
        schedule_free(&s);
        random_case_close(&c);
        compared++;
    }
}

/* ---- a plan's step ---- */

static double total_of(const schedule_input *in, const costs *k, schedule_kind kind)
{
    schedule s;
    simulation out;
    pt_error e = {0};
    assert_int_equal(schedule_build(in, kind, &s, &e), 0);
    assert_int_equal(simulate(in, &s, k, false, &out, &e), 0);
    schedule_free(&s);
    return out.total_ns;
}

static void a_plans_step_is_that_of_its_schedules(void **state)
{
    (void)state;
    random_source all = random_open();
    int seen[3] = {0};
    for (uint64_t i = 0; i < 300; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        pt_error e = {0};
        double ns, expected;
        assert_int_equal(random_case_open(&r, &c, &e), 0);
        costs k = random_costs(&r, c.model, true);
        if (!simulate_plan(&c.input, &k, &ns, &e)) {
            switch (c.plan.update) {
            case UPDATE_BACKWARD: expected = total_of(&c.input, &k, SCHEDULE_STEP); break;
            case UPDATE_NEXT_FORWARD: expected = total_of(&c.input, &k, SCHEDULE_STEP_UPDATE); break;
            default: expected = total_of(&c.input, &k, SCHEDULE_STEP) + total_of(&c.input, &k, SCHEDULE_DRAIN) - k.step_ns; break;
            }
            assert_true(near(ns, expected));
            seen[c.plan.update]++;
        } else {
            assert_int_equal(e.code, PT_DOES_NOT_FIT);
        }
        random_case_close(&c);
    }
    assert_true(seen[0] && seen[1] && seen[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_agree_with_a_plain_simulation),
        cmocka_unit_test(tasks_keep_their_order_and_queues_their_sums),
        cmocka_unit_test(a_plans_step_is_that_of_its_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
