/* Steps of very many micro-batches: planned in seconds, as well as if all of them were searched, and what fits is known. */
#include "random_problem.h"
#include "sanitized.h"

#include "base/clock.h"
#include "search/walk.h"

#include <math.h>

static void open_long(random_source *r, problem *p)
{
    problem_open(r, random_from(r, 2, 5), p);
    p->in.training = true;
    p->in.micro_batch = 0;
    p->in.effort = 0.9;
    step_shape_init(&p->shape, p->model, p->shape.type, 4096 * random_from(r, 2, 4), 512);
}

/* In seconds on a machine that does other things too: searched as it is, a step of such budgets takes minutes. */
static void a_long_step_is_planned_as_well_as_it_would_be_searched(void **state)
{
    (void)state;
    random_source all = random_open();
    double ours = 0, whole = 0;
    int found = 0;
    for (uint64_t i = 0; i < (SANITIZED ? 2 : 4); i++) {
        random_source r = random_fork(&all, i);
        problem p;
        pt_error e = {0};
        search_result x = {0}, y = {0};
        open_long(&r, &p);
        p.in.budget[TIER_DEVICE] = (uint64_t)1 << random_from(&r, 34, 37);
        const double begun = clock_s();
        const int failed = search_plan(&p.in, &x, &e);
        assert_true(clock_s() - begun < 60);
        assert_true(!failed || failed == PT_DOES_NOT_FIT);
        if (!failed) {
            assert_int_equal(search_price(&p.in, &x.best, &e), 1); /* a plan of the long step, within its budgets */
            assert_int_equal(plan_validate(&x.best.plan, p.model, &p.shape, &x.best.packing, p.in.clipping, &e), 0);
            assert_int_equal(search_whole(&p.in, &y, &e), 0);
            ours += x.best.step_ns;
            whole += y.best.step_ns;
            found++;
        }
        search_result_free(&x);
        search_result_free(&y);
        model_close(p.model);
    }
    print_message("%d long steps: %.2f%% slower than searched as they are\n", found, 100 * (ours / whole - 1));
    assert_true(found > 0);
    assert_true(ours < 1.05 * whole);
}

/* What fits is asked without building the step: right but for what a layout may be off by. */
static void what_fits_is_known_without_building(void **state)
{
    (void)state;
    const random_source all[] = {random_open(), {.seed = 30} /* where a few bytes a token too little are too many */};
    for (uint64_t i = 0; i < 8; i += SANITIZED ? 4 : 2) {
        random_source r = random_fork(&all[i / 4], 100 + i % 4);
        problem p;
        pt_error e = {0};
        search_result x;
        uint64_t needs[TIERS];
        open_long(&r, &p);
        memset(p.in.budget, 0, sizeof p.in.budget);
        assert_int_equal(search_fits(&p.in, needs, &e), 0);
        memcpy(p.in.budget, needs, sizeof needs);
        p.in.budget[TIER_DEVICE] += needs[TIER_DEVICE] / 50;
        assert_int_equal(search_fits(&p.in, NULL, &e), 1);
        assert_int_equal(search_plan(&p.in, &x, &e), 0);
        search_result_free(&x);
        model_close(p.model);
    }
}

/* A prime number of units can be cut into single ones alone, which are more tasks than a search can build: a shorter step says it. */
static void a_step_of_a_prime_number_of_units_is_as_long_as_it_is_said_to_be(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < (SANITIZED ? 1 : 2); i++) {
        const int64_t units = i ? 32771 : 4099;
        random_source r = random_fork(&all, 200 + i);
        problem p;
        pt_error e = {0};
        search_result x;
        forecast f;
        open_long(&r, &p);
        p.in.evaluates = false;
        step_shape_init(&p.shape, p.model, p.shape.type, units, 512);
        assert_true(p.shape.unit_seqs == 1);
        p.in.budget[TIER_DEVICE] = (uint64_t)1 << 38;
        const clock_t begun = clock(); /* others may work here too */
        if (search_plan(&p.in, &x, &e) || search_forecast(&p.in, &x.best, search_kinds(&p.in, x.best.plan.update), &f, &e))
            fail_msg("%s", e.text);
        assert_true(clock() - begun < 30 * CLOCKS_PER_SEC);
        priced_plan built = x.best;
        assert_int_equal(search_price(&p.in, &built, &e), 1);
        print_message("%lld units: %.3f and %.3f s, %.3f s built\n", (long long)units, x.best.step_ns * 1e-9, f.step_ns * 1e-9,
                      built.step_ns * 1e-9);
        assert_true(fabs(x.best.step_ns / built.step_ns - 1) < 0.02 && fabs(f.step_ns / built.step_ns - 1) < 0.02);
        assert_true(fabs((double)f.bytes[TIER_DEVICE] - (double)built.bytes[TIER_DEVICE]) < 1 << 20);
        search_result_free(&x);
        model_close(p.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_step_is_planned_as_well_as_it_would_be_searched),
        cmocka_unit_test(what_fits_is_known_without_building),
        cmocka_unit_test(a_step_of_a_prime_number_of_units_is_as_long_as_it_is_said_to_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
