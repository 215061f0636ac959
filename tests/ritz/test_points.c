/* Points: SciPy's Sobol points, nets by counting elementary intervals, what scrambling must keep, and what it is for. */
#include "base/rng.h"
#include "fixtures/ritz/sobol.h"
#include "ritz/points.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed;

static points *open_points(points_kind kind, points_randomize how, int64_t dim, int64_t n)
{
    pt_error e = {0};
    points *p;
    if (points_open(kind, how, dim, n, seed, &p, &e))
        fail_msg("%s", e.text);
    return p;
}

static double *points_of(points_kind kind, points_randomize how, int64_t dim, int64_t n, uint64_t draw)
{
    points *p = open_points(kind, how, dim, n);
    double *x = malloc((size_t)(n * dim) * sizeof *x);
    points_draw(p, draw, 0);
    points_get(p, 0, n, x);
    points_close(p);
    return x;
}

static void sobol_points_are_scipys(void **state)
{
    double *x = points_of(POINTS_SOBOL, RANDOMIZE_NONE, SOBOL_FEW, SOBOL_POINTS, 0);
    for (int i = 0; i < SOBOL_POINTS; i++)
        for (int j = 0; j < SOBOL_FEW; j++)
            assert_true(x[i * SOBOL_FEW + j] == sobol_few[i][j] * 0x1p-30);
    free(x);
    x = points_of(POINTS_SOBOL, RANDOMIZE_NONE, SOBOL_ALL, SOBOL_ALL_POINTS, 0);
    unsigned long long sum = 0;
    for (int64_t i = 0; i < (int64_t)SOBOL_ALL * SOBOL_ALL_POINTS; i++)
        sum += (unsigned long long)(x[i] * 0x1p30) * (2 * (unsigned long long)i + 1);
    assert_true(sum == sobol_sum);
    free(x);
}

/* Points in each interval of the shape k, of volume 2^-total; -1 where they are not equally many. */
static int64_t in_each(const double *x, int64_t dim, int64_t n, const int *k, int total)
{
    int64_t *count = calloc((size_t)1 << total, sizeof *count), equal;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = 0;
        for (int64_t j = 0; j < dim; j++)
            at = at << k[j] | (uint64_t)ldexp(x[i * dim + j], k[j]);
        count[at]++;
    }
    equal = count[0];
    for (int64_t i = 0; i < INT64_C(1) << total; i++)
        if (count[i] != count[0])
            equal = -1;
    free(count);
    return equal;
}

/* Of every shape of elementary intervals with 2^t points each. */
static bool is_net(const double *x, int dim, int m, int t, int *k, int j, int left)
{
    if (j == dim - 1) {
        k[j] = left;
        return in_each(x, dim, INT64_C(1) << m, k, m - t) == INT64_C(1) << t;
    }
    for (k[j] = 0; k[j] <= left; k[j]++)
        if (!is_net(x, dim, m, t, k, j + 1, left - k[j]))
            return false;
    return true;
}

/* t of the first dimensions is at most the sum of the degrees of their polynomials, each less 1: 1, 2, 3, 3, ... */
static void scrambled_points_are_nets(void **state)
{
    static const int quality[] = {0, 0, 0, 1, 3, 5};
    for (int dim = 1; dim <= 5; dim++)
        for (int m = quality[dim] + 1; m <= 10; m += 3)
            for (points_randomize how = RANDOMIZE_NONE; how <= RANDOMIZE_OWEN; how++)
                for (uint64_t draw = 0; draw < 3; draw++) {
                    int k[8];
                    double *x = points_of(POINTS_SOBOL, how, dim, INT64_C(1) << m, draw);
                    if (!is_net(x, dim, m, quality[dim], k, 0, m - quality[dim]))
                        fail_msg("%s, draw %d: no (%d,%d,%d)-net", randomize_names[how], (int)draw, quality[dim], m, dim);
                    free(x);
                }
    int k[8];
    double *x = points_of(POINTS_MC, RANDOMIZE_DEFAULT, 2, 256, 0);
    assert_false(is_net(x, 2, 8, 0, k, 0, 8)); /* the count can fail */
    free(x);
}

/* Nested: two numbers that share k digits and no more do so afterwards; and the next digits are flipped each by its own coin. */
static void nested_scrambling_keeps_common_digits(void **state)
{
    enum { M = 12, N = 1 << M };
    double *plain = points_of(POINTS_SOBOL, RANDOMIZE_NONE, 3, N, 0);
    double *owen = points_of(POINTS_SOBOL, RANDOMIZE_OWEN, 3, N, 5);
    for (int turn = 0; turn < 20000; turn++) {
        const uint64_t a = (uint64_t)rand() % N, b = (uint64_t)rand() % N, j = (uint64_t)rand() % 3;
        const uint64_t was = (uint64_t)ldexp(plain[3 * a + j], 53) ^ (uint64_t)ldexp(plain[3 * b + j], 53);
        const uint64_t is = (uint64_t)ldexp(owen[3 * a + j], 53) ^ (uint64_t)ldexp(owen[3 * b + j], 53);
        assert_true(a == b || __builtin_clzll(was) == __builtin_clzll(is));
    }
    for (int level = 6; level < M; level++) { /* flips of the 2^level nodes of a level, of one dimension: half of them */
        int64_t flips = 0;
        for (int i = 0; i < N; i++) {
            const uint64_t was = (uint64_t)ldexp(plain[3 * i], 53), is = (uint64_t)ldexp(owen[3 * i], 53);
            flips += (was ^ is) >> (52 - level) & 1;
        }
        assert_true(fabs((double)flips / N - 0.5) < 5 * 0.5 / sqrt(1 << level));
    }
    free(plain);
    free(owen);
}

static double smooth(const double *x, int dim)
{
    double f = 1;
    for (int j = 0; j < dim; j++)
        f *= 1 + (exp(x[j]) - (M_E - 1)) / (1 + j);
    return f; /* of integral 1 */
}

/* Mean and variance of the estimate over drawings. */
static double variance_of(points_kind kind, points_randomize how, int dim, int64_t n, double *bias)
{
    enum { DRAWS = 60 };
    double sum = 0, squares = 0;
    points *p = open_points(kind, how, dim, n);
    double *x = malloc((size_t)(n * dim) * sizeof *x);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        double mean = 0;
        points_draw(p, draw, 0);
        points_get(p, 0, n, x);
        for (int64_t i = 0; i < n; i++)
            mean += smooth(x + i * dim, dim) / (double)n;
        sum += mean - 1;
        squares += (mean - 1) * (mean - 1);
    }
    free(x);
    points_close(p);
    *bias = sum / DRAWS;
    return squares / DRAWS - *bias * *bias;
}

static void randomized_points_integrate_without_bias_and_with_less_variance(void **state)
{
    static const struct { points_kind kind; points_randomize how; double least_gain; } cases[] = {
        {POINTS_MC, RANDOMIZE_DEFAULT, 0},       {POINTS_SOBOL, RANDOMIZE_OWEN, 100},  {POINTS_SOBOL, RANDOMIZE_LMS, 100},
        {POINTS_SOBOL, RANDOMIZE_SHIFT, 100},    {POINTS_HALTON, RANDOMIZE_OWEN, 20},  {POINTS_HALTON, RANDOMIZE_SHIFT, 10},
        {POINTS_HALTON, RANDOMIZE_DIGITS, 20},   {POINTS_LATTICE, RANDOMIZE_SHIFT, 20}, {POINTS_LATTICE, RANDOMIZE_TENT, 1000}};
    double mc = 0, bias;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const double variance = variance_of(cases[c].kind, cases[c].how, 4, 1024, &bias);
        mc = c ? mc : variance;
        printf("%s %s: variance 1 / %.1f of mc's, bias %.2f standard errors\n", points_names[cases[c].kind], randomize_names[cases[c].how],
               mc / variance, bias / sqrt(variance / 60));
        assert_true(fabs(bias) < 6 * sqrt(variance / 60) && variance * cases[c].least_gain < mc);
    }
}

/* Two points share as many leading digits in each base as they did before; the digits behind differ, as do those of points that share
 * none: their first digits are any two with the same probability. */
static void nested_halton_points_keep_common_digits(void **state)
{
    enum { N = 900, DIM = 4, DRAWS = 3000 };
    static const int primes[DIM] = {2, 3, 5, 7};
    double *plain = points_of(POINTS_HALTON, RANDOMIZE_NONE, DIM, N, 0), *owen = points_of(POINTS_HALTON, RANDOMIZE_OWEN, DIM, N, 5), x[14];
    for (int turn = 0; turn < 20000; turn++) {
        const int a = rand() % N, b = rand() % N, j = rand() % DIM;
        int was = 0, is = 0;
        for (double power = primes[j]; a != b && floor(plain[DIM * a + j] * power + 1e-9) == floor(plain[DIM * b + j] * power + 1e-9);
             power *= primes[j])
            was++;
        for (double power = primes[j]; a != b && floor(owen[DIM * a + j] * power) == floor(owen[DIM * b + j] * power); power *= primes[j])
            is++;
        if (was != is)
            fail_msg("points %d and %d share %d digits of coordinate %d, and then %d", a, b, was, j, is);
    }
    int pairs[7][7] = {{0}};
    points *p = open_points(POINTS_HALTON, RANDOMIZE_OWEN, DIM, 2);
    for (int draw = 0; draw < DRAWS; draw++) {
        points_draw(p, (uint64_t)draw, 0);
        points_get(p, 0, 2, x);
        pairs[(int)(7 * x[3])][(int)(7 * x[DIM + 3])]++;
    }
    for (int i = 0; i < 49; i++)
        assert_true(i / 7 == i % 7 ? !pairs[i / 7][i % 7] : fabs(pairs[i / 7][i % 7] - DRAWS / 42.) < 6 * sqrt(DRAWS / 42.));
    points_close(p);
    free(plain), free(owen);
}

/* Any drawing and any part of it, alone. */
static void a_point_is_a_function_of_its_numbers(void **state)
{
    enum { DIM = 7, N = 300 };
    for (points_kind kind = 0; kind < POINTS_KINDS; kind++) {
        points *p = open_points(kind, RANDOMIZE_DEFAULT, DIM, N);
        double all[N * DIM], part[N * DIM], other[N * DIM];
        points_draw(p, 3, 1);
        points_get(p, 0, N, all);
        points_draw(p, 4, 1);
        points_get(p, 0, N, other);
        assert_memory_not_equal(all, other, sizeof all);
        points_draw(p, 3, 2);
        points_get(p, 0, N, other);
        assert_memory_not_equal(all, other, sizeof all);
        points_draw(p, 3, 1);
        for (int64_t first = 0, n; first < N; first += n) {
            n = 1 + rand() % (N - first);
            points_get(p, first, n, part + first * DIM);
        }
        assert_memory_equal(all, part, sizeof all);
        for (int i = 0; i < N * DIM; i++)
            assert_true(all[i] >= 0 && all[i] < 1);
        points_close(p);
    }
}

/* Without randomization the sequence goes on, and point 0 is the corner. */
static void unrandomized_drawings_are_the_next_blocks(void **state)
{
    for (points_kind kind = POINTS_SOBOL; kind <= POINTS_LATTICE; kind++) {
        double *whole = points_of(kind, RANDOMIZE_NONE, 5, 96, 0), *third = points_of(kind, RANDOMIZE_NONE, 5, 32, 2);
        assert_memory_equal(whole + 64 * 5, third, 32 * 5 * sizeof *third);
        assert_true(whole[0] == 0 && whole[4] == 0);
        free(whole);
        free(third);
    }
    double *halton = points_of(POINTS_HALTON, RANDOMIZE_NONE, 3, 6, 0);
    static const double want[6][3] = {{0, 0, 0}, {1 / 2., 1 / 3., 1 / 5.}, {1 / 4., 2 / 3., 2 / 5.}, {3 / 4., 1 / 9., 3 / 5.},
                                      {1 / 8., 4 / 9., 4 / 5.}, {5 / 8., 7 / 9., 1 / 25.}};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 3; j++)
            assert_true(fabs(halton[3 * i + j] - want[i][j]) < 1e-15);
    free(halton);
    enum { BLOCK = 64 };
    double *blocks = points_of(POINTS_LATTICE, RANDOMIZE_NONE, 2, BLOCK, 3),
        *once = points_of(POINTS_LATTICE, RANDOMIZE_SHIFT, 2, BLOCK, 0);
    int found = 0; /* a block is the lattice, moved: differences between its points are those of the lattice */
    for (int a = 1; a < BLOCK; a++)
        for (int b = 1; b < BLOCK; b++) {
            double off = 0;
            for (int j = 0; j < 2; j++) {
                const double d = blocks[2 * a + j] - blocks[j] - (once[2 * b + j] - once[j]);
                off += fabs(d - round(d));
            }
            found += off < 1e-12;
        }
    assert_int_equal(found, BLOCK - 1);
    free(blocks), free(once);
}

static void refused(points_kind kind, points_randomize how, int64_t dim, int64_t n, const char *words)
{
    pt_error e = {0};
    points *p;
    assert_int_equal(points_open(kind, how, dim, n, 0, &p, &e), PT_USAGE);
    if (!strstr(e.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, e.text);
}

static void what_is_not_there_is_refused(void **state)
{
    refused(POINTS_SOBOL, RANDOMIZE_DEFAULT, 21202, 8, "1 to 21201 dimensions, but 21202");
    refused(POINTS_LATTICE, RANDOMIZE_DEFAULT, 1000, 8, "but 1000 are needed; mc points have any number");
    refused(POINTS_HALTON, RANDOMIZE_DEFAULT, 0, 8, "but 0");
    refused(POINTS_SOBOL, RANDOMIZE_DEFAULT, 2, 0, "1 to 2^32 points, but 0");
    refused(POINTS_LATTICE, RANDOMIZE_OWEN, 2, 8, "no randomization owen: give none, shift or tent");
    refused(POINTS_HALTON, RANDOMIZE_LMS, 2, 8, "no randomization lms: give none, shift, owen or digits");
    refused(POINTS_SOBOL, RANDOMIZE_TENT, 2, 8, "no randomization tent: give none, shift, lms or owen");
    assert_true(points_whole(POINTS_SOBOL, 4096) && !points_whole(POINTS_SOBOL, 4095) && points_whole(POINTS_MC, 4095));
}

static int setup(void **state)
{
    seed = test_seed();
    srand((unsigned)seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sobol_points_are_scipys),
        cmocka_unit_test(scrambled_points_are_nets),
        cmocka_unit_test(nested_scrambling_keeps_common_digits),
        cmocka_unit_test(nested_halton_points_keep_common_digits),
        cmocka_unit_test(randomized_points_integrate_without_bias_and_with_less_variance),
        cmocka_unit_test(a_point_is_a_function_of_its_numbers),
        cmocka_unit_test(unrandomized_drawings_are_the_next_blocks),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
