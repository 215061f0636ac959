/* Costs corrected by the times of a run: here the runs are simulated with costs that the correction does not know. */
#include "profile/adjust.h"

#include "schedule/random_costs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

/* Each kind of work by a factor of its own. */
static void distort(random_source *r, costs *c)
{
    cost_curve *curves[] = {&c->finish, &c->embed_finish, &c->update_device, &c->update_host, &c->to_device, &c->from_device, &c->read, &c->write};
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
            if (costs_adjust(&known, &c.input, &(work_run){&s, &w}, 1, 0.01, &e))
                fail_msg("%s", e.text);
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
        cmocka_unit_test(scaled_costs_scale_every_step),
        cmocka_unit_test(without_measurements_costs_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
