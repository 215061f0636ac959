/* Curves in bounded memory: nothing of a long run's range is lost, whatever its length. */
#include "report/series.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

static double value_at(int64_t step) { return step == 777 ? -50 : step == 1234 ? 90 : (double)(step % 10); }

static void the_buckets_cover_every_point_and_keep_its_extremes(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, SERIES_BUCKETS - 1, SERIES_BUCKETS, SERIES_BUCKETS + 1, 5 * SERIES_BUCKETS + 3, 100000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        series *s = calloc(1, sizeof *s);
        for (int64_t step = 1; step <= lengths[l]; step++)
            series_add(s, step, value_at(step));
        int64_t next = 1;
        assert_in_range(s->used, 1, SERIES_BUCKETS);
        assert_true(lengths[l] < SERIES_BUCKETS || s->used >= SERIES_BUCKETS / 2);
        for (int i = 0; i < s->used; i++) {
            const series_bucket *b = &s->buckets[i];
            double low = INFINITY, high = -INFINITY, sum = 0;
            assert_int_equal(b->first, next);
            assert_int_equal(b->n, b->last - b->first + 1);
            assert_true(i == s->used - 1 ? b->n <= s->width : b->n == s->width);
            for (int64_t step = b->first; step <= b->last; step++) {
                low = fmin(low, value_at(step));
                high = fmax(high, value_at(step));
                sum += value_at(step);
            }
            assert_true(b->low == low && b->high == high && fabs(b->mean - sum / (double)b->n) < 1e-9);
            next = b->last + 1;
        }
        assert_int_equal(next, lengths[l] + 1);
        free(s);
    }
}

static void the_median_is_that_of_the_newest_values(void **state)
{
    (void)state;
    recent *r = calloc(1, sizeof *r);
    assert_true(isnan(recent_median(r)));
    recent_add(r, 7);
    assert_true(recent_median(r) == 7);
    recent_add(r, 1);
    assert_true(recent_median(r) == 4);
    recent_add(r, 2);
    assert_true(recent_median(r) == 2);
    for (int i = 1; i <= RECENT_VALUES; i++)
        recent_add(r, i);
    assert_true(recent_median(r) == (RECENT_VALUES + 1) / 2.0);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_buckets_cover_every_point_and_keep_its_extremes),
        cmocka_unit_test(the_median_is_that_of_the_newest_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
