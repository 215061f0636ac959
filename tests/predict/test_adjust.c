/* Costs corrected by the times of a run: here the runs are simulated with costs that the correction does not know. */
#include "predict/adjust.h"

#include "predict/random_costs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

/* Each kind of work by a factor of its own. */
static void distort(random_source *r, costs *c)
{
    cost_curve *curves[] = {&c->finish, &c->embed_finish, &c->update_device, &c->update_host, &c->to_device, &c->from_device, &c->read,
                            &c->write};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        double by = random_ns(r, 0.3, 3);
        for (int k = 0; k < curves[i]->n; k++)
            curves[i]->ns[k] *= by;
    }
    for (int k = 0; k < c->kinds_n; k++)
        for (int level = 0; level < SAVE_LEVELS; level++) {
            c->layer[k].forward_ns[level] *= random_ns(r, 0.3, 3);
            c->layer[k].backward_ns[level] *= random_ns(r, 0.3, 3);
        }
    c->embed_ns *= random_ns(r, 0.3, 3);
    c->head_ns *= random_ns(r, 0.3, 3);
}

static double run(const random_case *c, const schedule *s, const costs *truth, work_times *w, const costs *known)
{
    simulation sim;
    pt_error e = {0};
    assert_int_equal(simulate(&c->input, s, truth, true, &sim, &e), 0);
    task_time *times = calloc((size_t)s->tasks_n + 1, sizeof *times);
    assert_non_null(times);
    for (int i = 0; i < s->tasks_n; i++)
        times[i] = (task_time){(int64_t)sim.start_ns[i], (int64_t)sim.end_ns[i]};
    work_times_add(w, &c->input, s, known, times);
    double total = sim.total_ns;
    free(times);
    simulation_free(&sim);
    return total;
}

static double predicted(const random_case *c, const schedule *s, const costs *p)
{
    simulation sim;
    pt_error e = {0};
    assert_int_equal(simulate(&c->input, s, p, false, &sim, &e), 0);
    double total = sim.total_ns;
    simulation_free(&sim);
    return total;
}

/* Of a host for a transfer of the largest amount, in ns of one processor. */
static double host_work(const costs *c, int class, const cost_curve *moves) { return c->quota.busy[class] * moves->ns[moves->n - 1]; }

/* Mean of |log(predicted / true)| before and after. */
static void compare(bool contention, double *before, double *after)
{
    random_source all = random_open();
    int made = 0;
    *before = *after = 0;
    for (uint64_t i = 0; made < 100; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        if (!schedule_build(&c.input, SCHEDULE_STEP, &s, &e)) {
            costs known = random_costs(&r, c.model, contention), truth = known;
            known.task_ns = truth.task_ns = 0; /* beside the work, and not corrected */
            distort(&r, &truth);
            work_times w = {0};
            double real = run(&c, &s, &truth, &w, &known);
            run(&c, &s, &truth, &w, &known);
            *before += fabs(log(predicted(&c, &s, &known) / real)) / 100;
            const double read = host_work(&known, COST_READ, &known.read), write = host_work(&known, COST_WRITE, &known.write);
            if (costs_adjust(&known, &c.input, &(work_run){&s, &w}, 1, 0.01, &e))
                fail_msg("%s", e.text);
            assert_true(fabs(host_work(&known, COST_READ, &known.read) - read) <= 1e-9 * read); /* slower, and as much work */
            assert_true(fabs(host_work(&known, COST_WRITE, &known.write) - write) <= 1e-9 * write);
            *after += fabs(log(predicted(&c, &s, &known) / real)) / 100;
            schedule_free(&s);
            made++;
        }
        random_case_close(&c);
    }
    printf("contention %d: predictions are off by %.3f before and %.4f after\n", contention, *before, *after);
}

static void adjusted_costs_predict_what_was_measured(void **state)
{
    (void)state;
    double before, after;
    compare(false, &before, &after);
    assert_true(before > 0.1);
    assert_true(after < 0.03);
}

static void adjusted_costs_predict_what_was_measured_beside_others(void **state)
{
    (void)state;
    double before, after;
    compare(true, &before, &after);
    assert_true(before > 0.1);
    assert_true(after < 0.04);
}

/* ---- a step of two schedules ---- */

enum { PAIR_CASES = 60 };
typedef struct pair { random_case c; schedule step, drain; } pair;

/* Updates at the end of a step run in a schedule of their own. */
static void pair_open(random_source *r, int layers, pair *p)
{
    pt_error e = {0};
    for (;;) {
        if (random_case_of_layers(r, layers, &p->c, &e))
            fail_msg("%s", e.text);
        p->c.plan.update = UPDATE_END;
        if (!schedule_build(&p->c.input, SCHEDULE_STEP, &p->step, &e)) {
            if (!schedule_build(&p->c.input, SCHEDULE_DRAIN, &p->drain, &e))
                return;
            schedule_free(&p->step);
        }
        random_case_close(&p->c);
    }
}

static void pair_close(pair *p)
{
    schedule_free(&p->step);
    schedule_free(&p->drain);
    random_case_close(&p->c);
}

static void pair_adjust(const pair *p, costs *known, const work_times *step, const work_times *drain)
{
    pt_error e = {0};
    if (costs_adjust(known, &p->c.input, (work_run[]){{&p->step, step}, {&p->drain, drain}}, 2, 0, &e))
        fail_msg("%s", e.text);
}

/* Beside the work, and what ranks exchange. */
static void leave_out_what_is_not_corrected(costs *c)
{
    c->task_ns = c->step_ns = 0;
    c->gather = c->scatter = (cost_curve){0};
}

static double off(double a, double b) { return fabs(log(a / b)); }

static void costs_adjusted_by_both_schedules_of_a_step_predict_both(void **state)
{
    (void)state;
    random_source all = random_open();
    double before = 0, step_off = 0, drain_off = 0;
    for (uint64_t i = 0; i < PAIR_CASES; i++) {
        random_source r = random_fork(&all, i);
        work_times step = {0}, drain = {0};
        pair p;
        pair_open(&r, random_from(&r, 1, 5), &p);
        costs known = random_costs(&r, p.c.model, false), truth;
        leave_out_what_is_not_corrected(&known);
        truth = known;
        distort(&r, &truth);
        double real_step = run(&p.c, &p.step, &truth, &step, &known), real_drain = run(&p.c, &p.drain, &truth, &drain, &known);
        before += off(predicted(&p.c, &p.step, &known), real_step) / PAIR_CASES;
        pair_adjust(&p, &known, &step, &drain);
        step_off += off(predicted(&p.c, &p.step, &known), real_step) / PAIR_CASES;
        drain_off += off(predicted(&p.c, &p.drain, &known), real_drain) / PAIR_CASES;
        pair_close(&p);
    }
    printf("both schedules: %.3f before, the step's %.4f and the drain's %.4f after\n", before, step_off, drain_off);
    assert_true(before > 0.1);
    assert_true(step_off < 0.01 && drain_off < 0.01);
}

/* What takes longer in one of them than in the other, as disks do that are still busy: their sum is what a step takes. */
static void where_both_schedules_differ_their_sum_is_predicted(void **state)
{
    (void)state;
    random_source all = random_open();
    double sum_off = 0;
    for (uint64_t i = 0; i < PAIR_CASES; i++) {
        random_source r = random_fork(&all, i);
        work_times step = {0}, drain = {0};
        pair p;
        pair_open(&r, random_from(&r, 1, 5), &p);
        costs known = random_costs(&r, p.c.model, false), during_step, during_drain;
        leave_out_what_is_not_corrected(&known);
        during_step = during_drain = known;
        costs_scale(&during_step, 0.25);
        costs_scale(&during_drain, 4);
        double real = run(&p.c, &p.step, &during_step, &step, &known) + run(&p.c, &p.drain, &during_drain, &drain, &known);
        pair_adjust(&p, &known, &step, &drain);
        sum_off += off(predicted(&p.c, &p.step, &known) + predicted(&p.c, &p.drain, &known), real) / PAIR_CASES;
        pair_close(&p);
    }
    printf("schedules that differ: their sum is off by %.4f\n", sum_off);
    assert_true(sum_off < 0.1);
}

/* Marks are whole ns, and the ratio of short ones is off by more. */
static bool is_unchanged(double got_ns, double want_ns) { return fabs(got_ns - want_ns) < 2e-3 * want_ns + 10; }

/* Marks of a run stand around the work: costs that were right stay, however much a task costs beside it. */
static void what_a_task_costs_beside_its_work_is_no_part_of_what_was_measured(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < PAIR_CASES; i++) {
        random_source r = random_fork(&all, i);
        work_times step = {0}, drain = {0};
        pair p;
        pair_open(&r, random_from(&r, 1, 5), &p);
        costs right = random_costs(&r, p.c.model, false);
        leave_out_what_is_not_corrected(&right);
        run(&p.c, &p.step, &right, &step, &right);
        run(&p.c, &p.drain, &right, &drain, &right);
        right.task_ns = random_ns(&r, 500, 20000);
        costs known = right;
        pair_adjust(&p, &known, &step, &drain);
        for (int k = 0; k < right.kinds_n; k++)
            for (int level = 0; level < SAVE_LEVELS; level++) {
                assert_true(is_unchanged(known.layer[k].forward_ns[level], right.layer[k].forward_ns[level]));
                assert_true(is_unchanged(known.layer[k].backward_ns[level], right.layer[k].backward_ns[level]));
            }
        assert_true(off(predicted(&p.c, &p.step, &known), predicted(&p.c, &p.step, &right)) < 2e-3);
        pair_close(&p);
    }
}

/* The head, which stands behind the last layer, has no kind (UBSan sees the table of them end there). */
static void a_model_with_the_most_layers_is_adjusted(void **state)
{
    (void)state;
    random_source r = random_open();
    work_times step = {0}, drain = {0};
    pair p;
    pair_open(&r, MODEL_MAX_LAYERS, &p);
    costs known = random_costs(&r, p.c.model, false), truth;
    leave_out_what_is_not_corrected(&known);
    truth = known;
    costs_scale(&truth, 2);
    double real = run(&p.c, &p.step, &truth, &step, &known);
    run(&p.c, &p.drain, &truth, &drain, &known);
    pair_adjust(&p, &known, &step, &drain);
    assert_true(off(predicted(&p.c, &p.step, &known), real) < 0.03);
    pair_close(&p);
}

static void scaled_costs_scale_every_step(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < 30; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        assert_int_equal(random_case_open(&r, &c, &e), 0);
        if (!schedule_build(&c.input, random_kind(&r, &c), &s, &e)) {
            costs p = random_costs(&r, c.model, true);
            double before = predicted(&c, &s, &p), by = random_ns(&r, 0.1, 10);
            costs_scale(&p, by);
            assert_true(fabs(predicted(&c, &s, &p) - by * before) <= 1e-9 * by * before);
            schedule_free(&s);
        }
        random_case_close(&c);
    }
}

/* Nothing ran: nothing changes. */
static void without_measurements_costs_stay(void **state)
{
    (void)state;
    random_source r = random_open();
    random_case c = {0};
    schedule s;
    pt_error e = {0};
    for (bool built = false; !built;) {
        random_case_close(&c);
        assert_int_equal(random_case_open(&r, &c, &e), 0);
        built = !schedule_build(&c.input, SCHEDULE_STEP, &s, &e);
    }
    costs before = random_costs(&r, c.model, true), after = before;
    work_times w = {0};
    assert_int_equal(costs_adjust(&after, &c.input, &(work_run){&s, &w}, 1, 0, &e), 0);
    assert_memory_equal(&before, &after, sizeof before);
    schedule_free(&s);
    random_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adjusted_costs_predict_what_was_measured),
        cmocka_unit_test(adjusted_costs_predict_what_was_measured_beside_others),
        cmocka_unit_test(costs_adjusted_by_both_schedules_of_a_step_predict_both),
        cmocka_unit_test(where_both_schedules_differ_their_sum_is_predicted),
        cmocka_unit_test(what_a_task_costs_beside_its_work_is_no_part_of_what_was_measured),
        cmocka_unit_test(a_model_with_the_most_layers_is_adjusted),
        cmocka_unit_test(scaled_costs_scale_every_step),
        cmocka_unit_test(without_measurements_costs_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
