/* The order of windows is a permutation, another one in every epoch and for every seed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "data/permute.h"
#include "seed.h"

#include <stdlib.h>
#include <string.h>

static uint64_t seed;

static void every_size_up_to_2000_is_permuted(void **state)
{
    for (uint64_t n = 1; n <= 2000; n++) {
        unsigned char seen[2000] = {0};
        for (uint64_t i = 0; i < n; i++) {
            uint64_t x = permute(seed, n % 7, i, n);
            assert_true(x < n);
            assert_false(seen[x]);
            seen[x] = 1;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void large_sizes_stay_in_range_and_collide_nowhere(void **state)
{
    enum { SAMPLES = 20000 };
    static uint64_t image[SAMPLES];
    for (uint32_t trial = 0; trial < 20; trial++) {
        uint32_t word[4];
        rng_words(seed, RNG_TEST, 1, trial, word);
        uint64_t n = (((uint64_t)word[0] << 30 | word[1] >> 2) >> word[2] % 40) + SAMPLES;
        uint64_t start = (((uint64_t)word[3] << 32) | word[2]) % (n - SAMPLES + 1);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            image[i] = permute(seed, trial, start + i, n);
            assert_true(image[i] < n);
        }
        qsort(image, SAMPLES, sizeof *image, by_value);
        for (int i = 1; i < SAMPLES; i++)
            assert_true(image[i - 1] < image[i]);
    }
}

static void epochs_and_seeds_have_different_orders(void **state)
{
    enum { N = 1000 };
    int same_epoch = 0, same_seed = 0, fixed = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t x = permute(seed, 0, i, N);
        same_epoch += x == permute(seed, 1, i, N);
        same_seed += x == permute(seed + 1, 0, i, N);
        fixed += x == i;
    }
    assert_true(same_epoch < 10 && same_seed < 10 && fixed < 10); /* one is expected */
}

/* Chi-square over where a fixed index goes in many epochs; the bounds are over six sigma away. */
static void each_place_is_equally_likely(void **state)
{
    static const uint64_t sizes[] = {2, 3, 5, 16, 17, 100};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s];
        enum { EPOCHS = 40000 };
        double count[100] = {0}, expected = (double)EPOCHS / (double)n, chi = 0;
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            count[permute(seed, epoch, n / 2, n)]++;
        for (uint64_t x = 0; x < n; x++)
            chi += (count[x] - expected) * (count[x] - expected) / expected;
        double freedom = (double)(n - 1);
        print_message("n = %d: chi-square %.1f at %.0f degrees of freedom\n", (int)n, chi, freedom);
        assert_true(chi < freedom + 40 + 6 * freedom / 4);
    }
}

static void the_order_is_the_same_everywhere(void **state)
{
    static const uint64_t want[] = {6, 9, 5, 3, 7, 8, 2, 0, 1, 4};
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(permute(42, 3, i, 10), want[i]);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_up_to_2000_is_permuted),
        cmocka_unit_test(large_sizes_stay_in_range_and_collide_nowhere),
        cmocka_unit_test(epochs_and_seeds_have_different_orders),
        cmocka_unit_test(each_place_is_equally_likely),
        cmocka_unit_test(the_order_is_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
