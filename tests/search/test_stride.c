#include "random_plan.h"
#include "search/stride.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static double random_rate(random_source *r) { return pow(10, random_below(r, 4000) / 1000.0); }

static bool worth_it(const stride_rates *r, double k)
{
    return 3 / r->to_device + 1 / r->update_device + (k - 1) / (2 * r->to_device) <= (k - 1) * (1 / r->update_host + 1 / r->convert_host);
}

/* It holds at the stride that is chosen and not at the one before; where none is chosen it never holds. */
static void the_smallest_stride_that_is_worth_it(void **state)
{
    (void)state;
    random_source r = random_open();
    int none = 0, two = 0, more = 0;
    for (int i = 0; i < 20000; i++) {
        stride_rates x = {random_rate(&r), random_rate(&r), random_rate(&r), random_one_in(&r, 3) ? INFINITY : random_rate(&r)};
        int k = stride_choose(&x);
        if (k == 0) {
            none++;
            assert_false(worth_it(&x, 1e6));
            continue;
        }
        assert_true(k >= 2);
        if (k < 1000000) { /* beyond, rounding decides */
            assert_true(worth_it(&x, k * (1 + 1e-9)) && (k == 2 || !worth_it(&x, (k - 1) * (1 - 1e-9))));
        }
        two += k == 2;
        more += k > 2;
    }
    assert_true(none && two && more);
}

/* A fast device behind a fast link takes every second chunk; behind a slow link none. */
static void a_slow_link_takes_nothing(void **state)
{
    (void)state;
    stride_rates fast = {14e9, 100e9, 2.2e9, INFINITY}, slow = {1e9, 100e9, 2.2e9, INFINITY};
    assert_int_equal(stride_choose(&fast), 2);
    assert_int_equal(stride_choose(&slow), 0);
}

static void rates_are_those_of_the_costs(void **state)
{
    (void)state;
    costs c;
    costs_init(&c);
    c.to_device = (cost_curve){1, {1}, {0.1}};      /* 10 bytes a ns */
    c.update_device = (cost_curve){1, {1}, {0.02}}; /* 50 elements a ns */
    c.update_host = (cost_curve){1, {1}, {0.5}};
    stride_rates r = stride_rates_of(&c, 1e8);
    assert_true(fabs(r.to_device / 2.5e9 - 1) < 1e-9 && fabs(r.update_device / 50e9 - 1) < 1e-9 && fabs(r.update_host / 2e9 - 1) < 1e-9);
    assert_true(isinf(r.convert_host));
    assert_int_equal(stride_choose(&r), 6); /* 1.22 <= 0.3 (k - 1) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_stride_that_is_worth_it),
        cmocka_unit_test(a_slow_link_takes_nothing),
        cmocka_unit_test(rates_are_those_of_the_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
