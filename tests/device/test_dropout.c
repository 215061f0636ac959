/* Dropout: what is kept, and how often; the same bits however the rows are cut. */
#include "device/reference.h"

#include "device/dropout.h"

/* By the definition, value by value. */
static bool kept(uint64_t key, int64_t row, int64_t column, double p)
{
    const uint64_t bits = dropout_mix(key + (((uint64_t)row << 32) + (uint64_t)column / 2) * 0x9e3779b97f4a7c15u);
    return (column & 1 ? bits >> 32 : bits & 0xffffffffu) >= (uint64_t)(p * 4294967296.0);
}

static void values_are_kept_and_scaled_or_dropped(void **state)
{
    static const int64_t shapes[][2] = {{1, 40}, {7, 257}, {33, 5}, {9, 1000}, {70, 3}};
    for (int turn = 0; turn < 20; turn++) {
        const pt_dtype type = types[turn & 1];
        const bool add = turn / 2 % 2, streams = add && turn >= 10;
        const int64_t rows = shapes[turn / 4][0], cols = shapes[turn / 4][1], row0 = turn * 1000;
        const uint64_t key = dropout_key(the_test.seed, (uint64_t)turn);
        const double p = 0.05 + 0.04 * turn;
        tensor x = tensor_random(type, rows * cols, 0, 1), old = tensor_random(type, rows * cols, 0, 1),
               stream = tensor_random(PT_F32, rows * cols, 0, 1);
        void *one = NULL;
        float *sums = NULL;
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            void *out = test_copy(old.data, tensor_bytes(&old));
            float *s = streams ? test_copy(stream.data, tensor_bytes(&stream)) : NULL;
            const int64_t cut = threads == 1 ? rows : rows / 2; /* in two parts */
            for (int64_t row = 0, n = cut; row < rows; row += n, n = rows - row) {
                const size_t at = (size_t)(row * cols), size = dtype_bytes(type);
                if (n)
                    run_op(threads, &(op){OP_DROPOUT, .dropout = {type, add, n, cols, row0 + row, key, p, (const char *)x.data + at * size,
                                                                  (char *)out + at * size, s ? s + at : NULL}});
            }
            if (!one)
                one = out, sums = s;
            same_bits(one, out, tensor_bytes(&old), "more threads");
            if (streams)
                same_bits(sums, s, tensor_bytes(&stream), "more threads");
        }
        for (int64_t i = 0; i < rows * cols; i++) {
            const double d = kept(key, row0 + i / cols, i % cols, p) ? x.value[i] / (1 - p) : 0;
            const double expected = d + (streams ? stream.value[i] : add ? old.value[i] : 0);
            near(type, element(type, one, i), expected, 1e-6 * fabs(d) + 1e-9, "value", i);
            if (streams)
                near(PT_F32, sums[i], expected, 1e-6 * fabs(d), "stream", i);
        }
        test_teardown(state);
    }
}

/* Over a thousand rows of keys that differ in one bit: the share that is kept, and how neighbours by row, column and key go together. */
static void the_share_is_right_and_neighbours_are_independent(void **state)
{
    (void)state;
    enum { ROWS = 1000, COLS = 512 };
    const double p = 0.1, n = (double)ROWS * COLS, spread = sqrt(p * (1 - p) / n), both = sqrt(p * p * (1 - p * p) / n);
    for (int turn = 0; turn < 4; turn++) {
        const uint64_t key = dropout_key(the_test.seed + (uint64_t)turn, 3);
        int64_t dropped = 0, below = 0, beside = 0, next_key = 0;
        for (int64_t row = 0; row < ROWS; row++)
            for (int64_t col = 0; col < COLS; col++)
                if (!kept(key, row, col, p)) {
                    dropped++;
                    below += !kept(key, row + 1, col, p);
                    beside += !kept(key, row, col + 1, p);
                    next_key += !kept(dropout_key(the_test.seed + (uint64_t)turn, 4), row, col, p);
                }
        assert_true(fabs((double)dropped / n - p) < 5 * spread);
        assert_true(fabs((double)below / n - p * p) < 6 * both && fabs((double)beside / n - p * p) < 6 * both &&
                    fabs((double)next_key / n - p * p) < 6 * both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(values_are_kept_and_scaled_or_dropped),
                                       cmocka_unit_test(the_share_is_right_and_neighbours_are_independent)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
