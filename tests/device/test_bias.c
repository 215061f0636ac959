/* The gradient of a bias: sums over rows. */
#include "device/reference.h"

static void bias_backward(int threads, const tensor *dy, bool accumulate, int64_t rows, int64_t cols, int64_t ld, float *acc)
{
    op_bias_backward o = {dy->type, accumulate, rows, cols, ld, dy->data, acc};
    run_op(threads, &(op){OP_BIAS_BACKWARD, .bias_backward = o});
}

static void rows_are_summed(void **state)
{
    static const int64_t shapes[][2] = {{1, 40}, {7, 257}, {513, 100}, {7, 50257}, {2048, 3}, {600, 96}, {1025, 768}};
    for (int turn = 0; turn < 14; turn++) {
        pt_dtype type = types[turn & 1];
        int64_t rows = shapes[turn / 2][0], cols = shapes[turn / 2][1], ld = cols + (random_below(2) ? 8 : 7);
        tensor dy = tensor_random(type, rows * ld, 0, 1), old = tensor_random(PT_F32, cols, 0, 1);
        float *got = test_alloc((size_t)cols * 4);
        bias_backward(1, &dy, false, rows, cols, ld, got);
        for (int64_t c = 0; c < cols; c++) {
            double want = 0, sizes = 0; /* of the terms and of the sums so far */
            for (int64_t r = 0; r < rows; r++) {
                const double term = dy.value[r * ld + c];
                want += term;
                sizes += fabs(want) + 6 * fabs(term);
            }
            near(PT_F32, got[c], want, 0x1p-24 * sizes, "sum", c); /* each addition rounds once, in any order of few */
        }
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            float *again = test_alloc((size_t)cols * 4), *added = test_copy(old.data, (size_t)cols * 4);
            bias_backward(threads, &dy, false, rows, cols, ld, again);
            same_bits(got, again, (size_t)cols * 4, "more threads");
            bias_backward(threads, &dy, true, rows, cols, ld, added);
            for (int64_t c = 0; c < cols; c++)
                assert_true(added[c] == (float)old.value[c] + got[c]);
        }
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(rows_are_summed)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
