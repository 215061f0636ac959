/* Rounding gradients: once, to the nearest; squares summed per 8 rows; in place. */
#include "device/reference.h"

typedef struct finish_result { void *g; double *sumsq; } finish_result;

static finish_result finish(int threads, pt_dtype type, int64_t rows, int64_t cols, const float *acc, const float *acc2, void *g)
{
    int64_t parts = (rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS;
    finish_result r = {g ? g : test_alloc((size_t)(rows * cols) * dtype_bytes(type)), test_alloc((size_t)parts * 8)};
    op_gradient_finish o = {type, rows, cols, acc, acc2, r.g, r.sumsq, NULL};
    run_op(threads, &(op){OP_GRADIENT_FINISH, .gradient_finish = o});
    return r;
}

static const int64_t shapes[][2] = {{1, 50257}, {7, 257}, {64, 40}, {65, 3}, {50257, 1}, {1000, 100}, {4097, 40}, {300, 3001}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void sums_are_rounded_once_and_squared(void **state)
{
    for (int turn = 0; turn < (SANITIZED ? 1 : 4) * SHAPES; turn++) {
        pt_dtype type = types[turn & 1];
        int64_t rows = shapes[turn / 4][0], cols = shapes[turn / 4][1];
        tensor a = tensor_random(PT_F32, rows * cols, 0, 1), b = tensor_random(PT_F32, rows * cols, 0, 1);
        bool two = turn & 2;
        finish_result r = finish(1, type, rows, cols, a.data, two ? b.data : NULL, NULL);
        double squares = 0;
        for (int64_t i = 0; i < rows * cols; i++) {
            float sum = two ? (float)a.value[i] + (float)b.value[i] : (float)a.value[i];
            double want = type == PT_BF16 ? bf16_to_f32(bf16_from_f32(sum)) : sum;
            assert_true(element(type, r.g, i) == want);
            squares += want * want;
            if ((i + 1) % (SUMSQ_ROWS * cols) == 0 || i + 1 == rows * cols) {
                double got = r.sumsq[i / cols / SUMSQ_ROWS];
                assert_true(fabs(got - squares) <= 1e-12 * squares);
                squares = 0;
            }
        }
        test_teardown(NULL);
    }
}

static void in_place_and_with_more_threads_has_the_same_bits(void **state)
{
    for (int turn = 0; turn < (SANITIZED ? 1 : 2) * SHAPES; turn++) {
        pt_dtype type = types[turn & 1];
        int64_t rows = shapes[turn / 2][0], cols = shapes[turn / 2][1];
        size_t bytes = (size_t)(rows * cols) * dtype_bytes(type), parts = (size_t)((rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS) * 8;
        tensor a = tensor_random(PT_F32, rows * cols, 0, 1), b = tensor_random(PT_F32, rows * cols, 0, 1);
        finish_result want = finish(1, type, rows, cols, a.data, b.data, NULL);
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            finish_result got = finish(threads, type, rows, cols, a.data, b.data, NULL);
            same_bits(want.g, got.g, bytes, "g");
            same_bits(want.sumsq, got.sumsq, parts, "sumsq");
            float *over = test_copy(a.data, tensor_bytes(&a));
            got = finish(threads, type, rows, cols, over, b.data, over);
            same_bits(want.g, got.g, bytes, "g over acc");
            same_bits(want.sumsq, got.sumsq, parts, "sumsq in place");
        }
        test_teardown(NULL);
    }
}

/* Rows with numbers have the bits that they and their sums have among all rows, of which the others are 0. */
static void listed_rows_have_the_sums_of_the_whole(void **state)
{
    for (int turn = 0; turn < 24; turn++) {
        const pt_dtype type = types[turn & 1];
        const int64_t rows = 1 + random_below(300), cols = turn % 3 ? 1 + random_below(300) : SUMSQ_LANES * (1 + random_below(3));
        const int64_t parts = (rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS, one_in = 1 + random_below(12);
        const size_t row_bytes = (size_t)cols * dtype_bytes(type);
        tensor a = tensor_random(PT_F32, rows * cols, 0, 1);
        int32_t *ids = test_alloc((size_t)rows * sizeof *ids);
        float *some = test_alloc((size_t)(rows * cols) * sizeof *some), *all = a.data;
        int64_t n = 0;
        for (int64_t r = 0; r < rows; r++) {
            if (random_below(one_in) == 0) {
                memcpy(some + n * cols, all + r * cols, (size_t)cols * sizeof *some);
                ids[n++] = (int32_t)r;
            } else
                memset(all + r * cols, 0, (size_t)cols * sizeof *all);
        }
        finish_result want = finish(1, type, rows, cols, all, NULL, NULL);
        for (int threads = 1; threads <= TEST_THREADS && n; threads++) {
            char *g = test_alloc((size_t)n * row_bytes);
            double *sums = test_alloc((size_t)parts * sizeof *sums);
            memset(sums, 0, (size_t)parts * sizeof *sums);
            run_op(threads, &(op){OP_GRADIENT_FINISH, .gradient_finish = {type, n, cols, some, NULL, g, sums, ids}});
            same_bits(want.sumsq, sums, (size_t)parts * sizeof *sums, "sumsq");
            for (int64_t r = 0; r < n; r++)
                same_bits((char *)want.g + (size_t)ids[r] * row_bytes, g + (size_t)r * row_bytes, row_bytes, "g");
        }
        test_teardown(NULL);
    }
}

/* A slice that starts at a multiple of SUMSQ_ROWS has the sums that the whole tensor has there. */
static void slices_have_the_sums_of_the_whole(void **state)
{
    enum { ROWS = 500, COLS = 37 };
    tensor a = tensor_random(PT_F32, ROWS * COLS, 0, 1);
    finish_result whole = finish(2, PT_BF16, ROWS, COLS, a.data, NULL, NULL);
    for (int64_t row = 0; row < ROWS; row += SUMSQ_ROWS) {
        finish_result slice = finish(2, PT_BF16, ROWS - row, COLS, (float *)a.data + row * COLS, NULL, NULL);
        same_bits(whole.sumsq + row / SUMSQ_ROWS, slice.sumsq, (size_t)((ROWS - row + SUMSQ_ROWS - 1) / SUMSQ_ROWS) * 8, "sumsq");
    }
}

static void special_numbers_are_rounded_as_base_dtype_does(void **state)
{
    static const uint32_t bits[] = {0x00000000, 0x80000000, 0x00000001, 0x80008000, 0x00018000, 0x3f808000, 0x3f818000,
                                    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff,
                                    0x7fffffff, 0x0000ffff, 0x00008000, 0x3f80ffff, 0x7f7f8000, 0x7f7f7fff};
    enum { N = sizeof bits / sizeof *bits, MOST = 4 * N };
    uint32_t repeated[MOST];
    for (int64_t i = 0; i < MOST; i++)
        repeated[i] = bits[i % N];
    for (int64_t n = 1; n <= MOST; n++) {
        float *acc = test_copy(repeated, sizeof repeated);
        bf16 *g = finish(1, PT_BF16, 1, n, acc, NULL, NULL).g;
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(g[i], bf16_from_f32(acc[i]));
    }
}

static void not_finite_sums_are_seen_in_the_squares(void **state)
{
    for (int turn = 0; turn < 40; turn++) {
        int64_t rows = 1 + random_below(200), cols = 1 + random_below(50), i = random_below(rows * cols);
        tensor a = tensor_random(PT_F32, rows * cols, 0, 1);
        tensor_set(&a, i, turn & 1 ? NAN : -INFINITY);
        finish_result r = finish(2, types[turn / 2 & 1], rows, cols, a.data, NULL, NULL);
        for (int64_t part = 0; part * SUMSQ_ROWS < rows; part++)
            assert_true(!isfinite(r.sumsq[part]) == (i / cols / SUMSQ_ROWS == part));
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(sums_are_rounded_once_and_squared),
        OP_TEST(in_place_and_with_more_threads_has_the_same_bits),
        OP_TEST(listed_rows_have_the_sums_of_the_whole),
        OP_TEST(slices_have_the_sums_of_the_whole),
        OP_TEST(special_numbers_are_rounded_as_base_dtype_does),
        OP_TEST(not_finite_sums_are_seen_in_the_squares),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
