#include "layer/row_blocks.h"

static int64_t block_at(const step_shape *shape, int64_t row, int64_t rows)
{
    const int64_t most = gradient_rows(shape);
    return rows - row < most ? rows - row : most;
}

static const void *from_row(const void *p, int64_t row, int64_t ld, pt_dtype type)
{
    return p ? (const char *)p + (size_t)(row * ld) * dtype_bytes(type) : NULL;
}

void submit_matmul_gradient(queue *q, const step_shape *shape, op_matmul o)
{
    const op_matmul whole = o;
    for (int64_t row = 0; row < whole.k; row += o.k) {
        o.k = block_at(shape, row, whole.k);
        o.a = from_row(whole.a, row, o.lda, o.type);
        o.b = from_row(whole.b, row, o.ldb, o.type);
        o.accumulate = whole.accumulate || row > 0;
        queue_submit(q, &(op){OP_MATMUL, .matmul = o});
    }
}

void submit_bias_gradient(queue *q, const step_shape *shape, op_bias_backward o)
{
    const op_bias_backward whole = o;
    for (int64_t row = 0; row < whole.rows; row += o.rows) {
        o.rows = block_at(shape, row, whole.rows);
        o.dy = from_row(whole.dy, row, o.ld, o.type);
        o.accumulate = whole.accumulate || row > 0;
        queue_submit(q, &(op){OP_BIAS_BACKWARD, .bias_backward = o});
    }
}

void submit_norm_backward(queue *q, const step_shape *shape, op_norm_backward o)
{
    const op_norm_backward whole = o;
    for (int64_t row = 0; row < whole.rows; row += o.rows) {
        o.rows = block_at(shape, row, whole.rows);
        o.accumulate = whole.accumulate || row > 0;
        o.x = from_row(whole.x, row, o.ldx, o.type);
        o.dy = from_row(whole.dy, row, o.lddy, o.type);
        o.y = (void *)from_row(whole.y, row, o.lddy, o.type);
        o.dx = (void *)from_row(whole.dx, row, o.lddx, o.type);
        o.dx_add = from_row(whole.dx_add, row, o.lddx, o.type);
        o.stream = whole.stream ? whole.stream + row * o.lddx : NULL;
        o.stream_add = whole.stream_add ? whole.stream_add + row * o.lddx : NULL;
        queue_submit(q, &(op){OP_NORM_BACKWARD, .norm_backward = o});
    }
}

void submit_gain_backward(queue *q, const step_shape *shape, op_gain_backward o)
{
    const op_gain_backward whole = o;
    for (int64_t row = 0; row < whole.rows; row += o.rows) {
        o.rows = block_at(shape, row, whole.rows);
        o.accumulate = whole.accumulate || row > 0;
        o.dy = from_row(whole.dy, row, o.ld, o.type);
        o.sums = (void *)from_row(whole.sums, row, o.ld, o.type);
        queue_submit(q, &(op){OP_GAIN_BACKWARD, .gain_backward = o});
    }
}
