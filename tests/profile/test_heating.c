/* A GPU computes before it is timed until its clock has fallen: on clocks that fall at several paces, with noise. */
#include "measure/heating.h"
#include "random_plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A round of a GPU that has computed for t seconds takes cool (1 + rise (1 - e^(-t / pace))). */
typedef struct falling { double cool, rise, pace, noise; } falling;

static double round_at(const falling *f, double t, random_source *r)
{
    return f->cool * (1 + f->rise * (1 - exp(-t / f->pace))) * (1 + f->noise * (double)random_from(r, -1000, 1000) * 1e-3);
}

/* Seconds that it computed. */
static double heat(const falling *f, random_source *r)
{
    double t = 0;
    heating h = heating_begin(100);
    do
        for (int i = 0; i < 4; i++)
            t += round_at(f, t, r);
    while (heating_goes_on(&h, 100 + t, 4));
    return t;
}

static void a_clock_that_falls_has_fallen_before_it_is_timed(void **state)
{
    (void)state;
    random_source r = random_open();
    for (int turn = 0; turn < 200; turn++) {
        const falling f = {.cool = exp(log(1e-4) + (double)random_below(&r, 1000) * 1e-3 * log(300)), /* 0.1 to 30 ms */
                           .rise = 0.02 + 0.1 * (double)random_below(&r, 1000) * 1e-3,
                           .pace = 0.1 + 0.5 * (double)random_below(&r, 1000) * 1e-3, .noise = 2e-3};
        const double t = heat(&f, &r), left = f.rise * exp(-t / f.pace);
        if (left > 0.01)
            fail_msg("after %.2f s rounds of %.2g s would still become %.1f%% longer (%.1f%%, pace %.2f s)", t, f.cool, 100 * left,
                     100 * f.rise, f.pace);
        assert_true(t < HEATING_MOST_S + 5 * f.cool);
    }
}

/* A second or two for a clock that falls slowly, no more than the most where the times never agree. */
static void heating_ends(void **state)
{
    (void)state;
    random_source r = random_open();
    const falling steady = {1e-2, 0, 1, 0}, slow = {1e-2, 0.1, 1, 0}, endless = {1e-2, 0.1, 1e9, 0}, noisy = {1e-2, 0, 1, 0.2};
    double t = heat(&steady, &r);
    assert_true(t > 2 * HEATING_WINDOW_S && t < 4 * HEATING_WINDOW_S);
    t = heat(&slow, &r);
    assert_true(t > 1 && t < HEATING_MOST_S + 0.1);
    assert_true(heat(&endless, &r) < HEATING_MOST_S + 0.1);
    assert_true(heat(&noisy, &r) < HEATING_MOST_S + 0.1);
    falling growing = {1e-2, 1e6, 1e8, 0}; /* each round is longer */
    t = heat(&growing, &r);
    assert_true(t >= HEATING_MOST_S && t < HEATING_MOST_S + 0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_clock_that_falls_has_fallen_before_it_is_timed),
                                       cmocka_unit_test(heating_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
