/* What DoRA does beside matmuls: the gain of each row of weights, and gradients times it. */
#include "device/reference.h"

static void gains_are_magnitudes_by_norms(void **state)
{
    static const int64_t shapes[][3] = {{1, 40, 3}, {7, 257, 16}, {33, 100, 1}, {70, 31, 5}, {130, 64, 8}};
    for (int turn = 0; turn < 10; turn++) {
        const pt_dtype type = types[turn & 1];
        const int64_t rows = shapes[turn / 2][0], cols = shapes[turn / 2][1], rank = shapes[turn / 2][2];
        const float scale = 0.75f;
        tensor w = tensor_random(type, rows * cols, 0, 1), a = tensor_random(type, rank * cols, 0, 1),
            b = tensor_random(type, rows * rank, 0, 1);
        tensor m = tensor_random(PT_F32, rows, 1, 1);
        float *one = NULL;
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            float *got = test_alloc((size_t)rows * 8);
            run_op(threads, &(op){OP_GAIN, .gain = {type, rows, cols, rank, scale, w.data, a.data, b.data, m.data, got, got + rows}});
            if (!one)
                one = got;
            same_bits(one, got, (size_t)rows * 8, "more threads");
        }
        for (int64_t r = 0; r < rows; r++) {
            double squares = 0;
            for (int64_t c = 0; c < cols; c++) {
                double v = w.value[r * cols + c];
                for (int64_t j = 0; j < rank; j++)
                    v += (double)scale * b.value[r * rank + j] * a.value[j * cols + c];
                squares += v * v;
            }
            near(PT_F32, one[rows + r] * sqrt(squares), 1, 4e-6, "inverse", r);
            near(PT_F32, one[r], m.value[r] / sqrt(squares), 4e-6 * fabs(m.value[r]), "gain", r);
        }
        test_teardown(state);
    }
}

static void gradients_are_scaled_and_summed(void **state)
{
    static const int64_t shapes[][2] = {{1, 40}, {7, 257}, {513, 100}, {9, 5000}, {600, 3}};
    for (int turn = 0; turn < 10; turn++) {
        const pt_dtype type = types[turn & 1];
        const int64_t rows = shapes[turn / 2][0], cols = shapes[turn / 2][1], ld = cols + (turn % 3 ? 8 : 0);
        tensor dy = tensor_random(type, rows * ld, 0, 1), y = tensor_random(type, rows * ld, 0, 1), old = tensor_random(PT_F32, cols, 0, 1);
        tensor gain = tensor_random(PT_F32, cols, 1, 0.2), inverse = tensor_random(PT_F32, cols, 2, 0.5);
        float *one = NULL;
        void *scaled = NULL;
        for (int threads = 1; threads <= TEST_THREADS; threads++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                float *acc = test_copy(old.data, (size_t)cols * 4);
                void *sums = test_copy(y.data, tensor_bytes(&y));
                run_op(threads, &(op){OP_GAIN_BACKWARD, .gain_backward = {type, accumulate, rows, cols, ld, dy.data, sums, gain.data,
                    inverse.data,
                                                                          0.5f, acc}});
                if (!one)
                    one = acc, scaled = sums;
                same_bits(scaled, sums, tensor_bytes(&y), "more threads");
                for (int64_t c = 0; c < cols; c++)
                    assert_true(acc[c] == (accumulate ? (float)old.value[c] + one[c] : one[c]));
            }
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0, size = 0;
            for (int64_t r = 0; r < rows; r++) {
                sum += dy.value[r * ld + c] * y.value[r * ld + c];
                size += fabs(dy.value[r * ld + c] * y.value[r * ld + c]);
                near(type, element(type, scaled, r * ld + c), gain.value[c] * dy.value[r * ld + c], 1e-7, "scaled", r * ld + c);
            }
            near(PT_F32, one[c], 0.5 * inverse.value[c] * sum, 4e-6 * fabs(inverse.value[c]) * size + 1e-12, "sum", c);
        }
        test_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(gains_are_magnitudes_by_norms), OP_TEST(gradients_are_scaled_and_summed)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
