/* Embedding: looked up whole or in slices; gradients added in the order of the tokens. */
#include "device/reference.h"

#include "device/dropout.h"

static const float scales[] = {0, 1, 33.9f};
static float the_noise;
enum { FIRST = 700 }; /* number of the first row */

static void look_up(int threads, pt_dtype type, int64_t rows, int64_t cols, int64_t row0, int64_t table_rows,
                    const int32_t *ids, const int32_t *positions, const tensor *table, const tensor *position_table, void *out,
                    float *stream, float scale)
{
    op_embedding o = {type, rows, cols, row0, table_rows, ids, positions,
                      (const char *)table->data + (size_t)(row0 * cols) * dtype_bytes(type),
                      position_table ? position_table->data : NULL, out, stream, scale, the_noise, the_test.seed, FIRST};
    run_op(threads, &(op){OP_EMBEDDING, .embedding = o});
}

/* By the definition, value by value. */
static float noise_of(int64_t row, int64_t column)
{
    const uint64_t bits = dropout_mix(the_test.seed + (((uint64_t)(FIRST + row) << 32) + (uint64_t)column / 2) * 0x9e3779b97f4a7c15u);
    return (float)(int32_t)(column & 1 ? bits >> 32 : bits) * (the_noise / 2147483648.0f);
}

static void rows_are_looked_up_and_positions_added(void **state)
{
    enum { VOCAB = 300, POSITIONS = 50 };
    static const int64_t shapes[][2] = {{1, 40}, {7, 257}, {500, 96}, {7, 3}, {7, 59}};
    for (int turn = 0; turn < 20; turn++) {
        pt_dtype type = types[turn & 1];
        bool with_positions = turn & 2;
        const float scale = scales[random_below(3)], factor = scale ? scale : 1;
        the_noise = turn % 3 == 1 ? 0.3f : 0;
        int64_t rows = shapes[turn / 4][0], cols = shapes[turn / 4][1];
        tensor table = tensor_random(type, VOCAB * cols, 0, 1), places = tensor_random(type, POSITIONS * cols, 0, 1);
        int32_t *ids = random_ids(rows, VOCAB), *positions = random_ids(rows, POSITIONS);
        size_t bytes = (size_t)(rows * cols) * dtype_bytes(type);
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            void *out = test_alloc(bytes);
            float *stream = threads == 1 ? NULL : test_alloc((size_t)(rows * cols) * sizeof *stream);
            look_up(threads, type, rows, cols, 0, VOCAB, ids, positions, &table, with_positions ? &places : NULL, out, stream, scale);
            for (int64_t i = 0; i < rows * cols; i++) {
                int64_t r = i / cols, c = i % cols;
                float want = factor * (float)table.value[ids[r] * cols + c];
                want += the_noise > 0 ? noise_of(r, c) : 0;
                if (with_positions)
                    want += (float)places.value[positions[r] * cols + c];
                double rounded = type == PT_BF16 ? bf16_to_f32(bf16_from_f32(want)) : want;
                assert_true(element(type, out, i) == rounded);
                assert_true(!stream || stream[i] == want);
            }
        }
        test_teardown(NULL);
    }
    the_noise = 0;
}

static void slices_of_the_table_fill_the_rows_of_their_ids_only(void **state)
{
    enum { VOCAB = 100, COLS = 20, ROWS = 400 };
    tensor table = tensor_random(PT_BF16, VOCAB * COLS, 0, 1);
    int32_t *ids = random_ids(ROWS, VOCAB);
    bf16 *whole = test_alloc(ROWS * COLS * 2), *sliced = test_alloc(ROWS * COLS * 2), *before = test_alloc(ROWS * COLS * 2);
    look_up(2, PT_BF16, ROWS, COLS, 0, VOCAB, ids, NULL, &table, NULL, whole, NULL, 0);
    look_up(2, PT_BF16, ROWS, COLS, 0, 37, ids, NULL, &table, NULL, sliced, NULL, 0);
    for (int64_t r = 0; r < ROWS; r++)
        same_bits(sliced + r * COLS, (ids[r] < 37 ? whole : before) + r * COLS, COLS * 2, "first slice");
    look_up(2, PT_BF16, ROWS, COLS, 37, VOCAB - 37, ids, NULL, &table, NULL, sliced, NULL, 0);
    same_bits(whole, sliced, ROWS * COLS * 2, "all slices");
}

static void without_ids_the_rows_are_taken_in_order(void **state)
{
    enum { ROWS = 90, COLS = 43 };
    for (int turn = 0; turn < 4; turn++) {
        const pt_dtype type = types[turn & 1];
        const float scale = scales[random_below(3)];
        tensor table = tensor_random(type, ROWS * COLS, 0, 1);
        int32_t *ids = test_alloc(ROWS * sizeof *ids);
        for (int i = 0; i < ROWS; i++)
            ids[i] = i;
        void *by_ids = test_alloc(ROWS * COLS * 4), *in_order = test_copy(by_ids, ROWS * COLS * 4);
        look_up(2, type, ROWS, COLS, 0, ROWS, ids, NULL, &table, NULL, by_ids, NULL, scale);
        look_up(2, type, ROWS, COLS, 0, ROWS, NULL, NULL, &table, NULL, in_order, NULL, scale);
        same_bits(by_ids, in_order, ROWS * COLS * dtype_bytes(type), "rows");
        test_teardown(NULL);
    }
}

static void add_back(int threads, const tensor *dy, bool accumulate, int64_t cols, int64_t row0, int64_t table_rows, int64_t skip,
                     const int32_t *ids, float *acc, float scale)
{
    op_embedding_backward o = {dy->type, accumulate, dy->n / cols, cols, row0, table_rows, skip, ids, dy->data, acc, scale};
    run_op(threads, &(op){OP_EMBEDDING_BACKWARD, .embedding_backward = o});
}

/* The same fp32 additions in the same order: equal to the bit. */
static void gradients_are_added_in_ascending_order(void **state)
{
    static const int64_t shapes[][3] = {{1, 40, 50257}, {7, 257, 5}, {900, 33, 70}, {300, 64, 1}};
    for (int turn = 0; turn < 32; turn++) {
        pt_dtype type = types[turn & 1];
        bool accumulate = turn & 2;
        int64_t rows = shapes[turn / 8][0], cols = shapes[turn / 8][1], vocab = shapes[turn / 8][2];
        tensor dy = tensor_random(type, rows * cols, 0, 1), old = tensor_random(PT_F32, vocab * cols, 0, 1);
        int32_t *ids = random_ids(rows, vocab);
        const float scale = scales[random_below(3)], factor = scale ? scale : 1;
        int64_t skip = turn & 4 ? ids[random_below(rows)] : -1;
        float *want = test_copy(old.data, tensor_bytes(&old));
        if (!accumulate)
            memset(want, 0, tensor_bytes(&old));
        for (int64_t i = 0; i < rows * cols; i++)
            if (ids[i / cols] != skip)
                want[ids[i / cols] * cols + i % cols] += factor * (float)dy.value[i];
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            float *got = test_copy(old.data, tensor_bytes(&old));
            add_back(threads, &dy, accumulate, cols, 0, vocab, skip, ids, got, scale);
            same_bits(want, got, tensor_bytes(&old), "acc");
        }
        float *sliced = test_copy(old.data, tensor_bytes(&old));
        int64_t cut = random_below(vocab);
        add_back(2, &dy, accumulate, cols, 0, cut, skip, ids, sliced, scale);
        add_back(2, &dy, accumulate, cols, cut, vocab - cut, skip, ids, sliced + cut * cols, scale);
        same_bits(want, sliced, tensor_bytes(&old), "acc in two slices");
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(rows_are_looked_up_and_positions_added),
        OP_TEST(slices_of_the_table_fill_the_rows_of_their_ids_only),
        OP_TEST(without_ids_the_rows_are_taken_in_order),
        OP_TEST(gradients_are_added_in_ascending_order),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
