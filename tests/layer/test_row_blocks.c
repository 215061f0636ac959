/* Gradients of weights, summed over the rows of a long unit at once or in tiles of whole blocks: the same bits. */
#include "device/reference.h"

#include "layer/row_blocks.h"

enum { BLOCK = CPU_GRADIENT_ROWS, ROWS = 2 * BLOCK + 300, COLS = 40, MORE = 24 };

static const int64_t tiles[][3] = {{ROWS, 0, 0}, {BLOCK, ROWS - BLOCK, 0}, {2 * BLOCK, 300, 0}, {BLOCK, BLOCK, 300}};
enum { TILES = sizeof tiles / sizeof *tiles };

static queue *the_queue(void) { return the_test.queues[1]; }

static void finish(void)
{
    pt_error e = {0};
    assert_int_equal(queue_sync(the_queue(), queue_signal(the_queue()), &e), 0);
}

static const char *row_of(const tensor *t, int64_t row, int64_t ld) { return (char *)t->data + (size_t)(row * ld) * dtype_bytes(t->type); }

static void matmuls(void **state)
{
    const step_shape s = {.type = PT_BF16};
    for (int turn = 0; turn < 2; turn++) {
        tensor dy = tensor_random(types[turn], ROWS * COLS, 0, 1), x = tensor_random(types[turn], ROWS * MORE, 0, 1);
        float *whole = NULL, *bias = NULL;
        for (int t = 0; t < TILES; t++) {
            float *acc = test_alloc(COLS * MORE * sizeof *acc), *sums = test_alloc(COLS * sizeof *sums);
            for (int64_t i = 0, row = 0; i < 3 && tiles[t][i]; row += tiles[t][i++]) {
                submit_matmul_gradient(the_queue(), &s, (op_matmul){
                    .layout = MATMUL_TN, .type = types[turn], .out_type = PT_F32, .accumulate = row > 0, .m = COLS, .n = MORE,
                    .k = tiles[t][i], .lda = COLS, .ldb = MORE, .ldc = MORE, .a = row_of(&dy, row, COLS), .b = row_of(&x, row, MORE),
                    .c = acc});
                submit_bias_gradient(the_queue(), &s, (op_bias_backward){
                    .type = types[turn], .accumulate = row > 0, .rows = tiles[t][i], .cols = COLS, .ld = COLS,
                    .dy = row_of(&dy, row, COLS), .acc = sums});
            }
            finish();
            whole = whole ? whole : acc;
            bias = bias ? bias : sums;
            same_bits(whole, acc, COLS * MORE * sizeof *acc, "matmul in tiles");
            same_bits(bias, sums, COLS * sizeof *sums, "bias in tiles");
        }
        for (int64_t c = 0; c < COLS; c++) {
            double sum = 0;
            for (int64_t r = 0; r < ROWS; r++)
                sum += dy.value[r * COLS + c];
            near(PT_F32, bias[c], sum, 1e-6 * ROWS, "bias", c);
        }
        test_teardown(state);
    }
}

static void norms(void **state)
{
    const step_shape s = {.type = PT_F32};
    tensor x = tensor_random(PT_F32, ROWS * COLS, 0, 1), dy = tensor_random(PT_F32, ROWS * COLS, 0, 1);
    tensor w = tensor_random(PT_F32, COLS, 1, 1), before = tensor_random(PT_F32, ROWS * COLS, 0, 1);
    float *whole = NULL, *dx_whole = NULL;
    for (int t = 0; t < TILES; t++) {
        float *dw = test_alloc(2 * COLS * sizeof *dw), *dx = test_copy(before.data, ROWS * COLS * sizeof *dx);
        char *scratch = test_alloc(norm_backward_scratch_bytes(ROWS, 1, COLS));
        for (int64_t i = 0, row = 0; i < 3 && tiles[t][i]; row += tiles[t][i++])
            submit_norm_backward(the_queue(), &s, (op_norm_backward){
                .kind = NORM_LAYER, .type = PT_F32, .accumulate = row > 0, .rows = tiles[t][i], .heads = 1, .dim = COLS, .ldx = COLS,
                .lddy = COLS, .lddx = COLS, .eps = 1e-5f, .x = row_of(&x, row, COLS), .weight = w.data, .dy = row_of(&dy, row, COLS),
                .dx = dx + row * COLS, .dx_add = dx + row * COLS, .dweight = dw, .dbias = dw + COLS, .scratch = scratch});
        finish();
        whole = whole ? whole : dw;
        dx_whole = dx_whole ? dx_whole : dx;
        same_bits(whole, dw, 2 * COLS * sizeof *dw, "norm in tiles");
        same_bits(dx_whole, dx, ROWS * COLS * sizeof *dx, "its input's gradient");
    }
    test_teardown(state);
}

static void gains(void **state)
{
    const step_shape s = {.type = PT_F32};
    tensor dy = tensor_random(PT_F32, ROWS * COLS, 0, 1), y = tensor_random(PT_F32, ROWS * COLS, 0, 1);
    tensor gain = tensor_random(PT_F32, COLS, 1, 0.2), inverse = tensor_random(PT_F32, COLS, 2, 0.5);
    float *whole = NULL, *scaled = NULL;
    for (int t = 0; t < TILES; t++) {
        float *acc = test_alloc(COLS * sizeof *acc), *sums = test_copy(y.data, ROWS * COLS * sizeof *sums);
        for (int64_t i = 0, row = 0; i < 3 && tiles[t][i]; row += tiles[t][i++])
            submit_gain_backward(the_queue(), &s, (op_gain_backward){
                .type = PT_F32, .accumulate = row > 0, .rows = tiles[t][i], .cols = COLS, .ld = COLS, .dy = row_of(&dy, row, COLS),
                .sums = sums + row * COLS, .gain = gain.data, .inverse = inverse.data, .factor = 0.5f, .acc = acc});
        finish();
        whole = whole ? whole : acc;
        scaled = scaled ? scaled : sums;
        same_bits(whole, acc, COLS * sizeof *acc, "magnitudes in tiles");
        same_bits(scaled, sums, ROWS * COLS * sizeof *sums, "gradients of sums");
    }
    test_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(matmuls), OP_TEST(norms), OP_TEST(gains)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
