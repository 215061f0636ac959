/* linear.c - linear stages: a matmul with a layer's matrix, its adapter (adapter.c), and the gradients of all. With two outputs, the first
 * takes as many columns as it has, and the second has all columns of the sum, of which the stage writes the others. */
#include "layer/work.h"

#include <math.h>

static float factor_of(const model_factors *f, param_role matrix)
{
    switch (matrix) {
    case PARAM_QKV: return f->qkv;
    case PARAM_OUT: return f->out;
    case PARAM_MIX_IN: return f->mix_in;
    case PARAM_MIX_OUT: return f->mix_out;
    case PARAM_DOWN: return f->down;
    default: return 1;
    }
}

/* The factors of layers' inputs are those of the linear stages before and after them. */
float linear_factor(const layer_work *work, const layer_stage *stage)
{
    if (stage->param[0] == PARAM_INPUTS)
        return (float)(1 / sqrt((double)work->hidden));
    if (stage->param[0] == PARAM_INPUT_OUT)
        return (float)sqrt(0.5);
    return factor_of(&work->config->factor, stage->param[0]) * (stage->kind == STAGE_LINEAR_ADD ? work->config->residual_scale : 1);
}

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    const bool gains = stage->in[LINEAR_GAIN] != LAYER_NONE;
    const unsigned outputs = TOUCH_OUT_GRADIENT(0) | TOUCH_OUT_GRADIENT(1), low = TOUCH_IN_GRADIENT(LINEAR_LOW),
                   sums = gains ? TOUCH_SCRATCH(LINEAR_SUMS) : stage->drops ? TOUCH_SCRATCH(LINEAR_DROPPED) : 0;
    switch (pass) {
    case PASS_FORWARD:
        return TOUCH_IN(LINEAR_X) | TOUCH_IN(LINEAR_RESIDUAL) | TOUCH_IN(LINEAR_LOW) | TOUCH_IN(LINEAR_GAIN) | TOUCH_OUT(0) |
               TOUCH_OUT(1) | TOUCH_SCRATCH(LINEAR_DECODED);
    case PASS_INPUT: /* with gains, the sum is computed again */
        return outputs | low | sums | TOUCH_IN_GRADIENT(LINEAR_X) | TOUCH_SCRATCH(LINEAR_DECODED) |
               (gains ? TOUCH_IN(LINEAR_X) | TOUCH_IN(LINEAR_LOW) | TOUCH_IN(LINEAR_GAIN) : 0);
    default: return outputs | low | sums | TOUCH_OPERAND | TOUCH_IN(LINEAR_LOW);
    }
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    if (k == LINEAR_DECODED)
        return matrix_scratch_bytes(at);
    const int64_t values = at->stage->drops ? stage_param(at, 0)->cols : stage_param(at, 0)->rows;
    return (uint64_t)(at->shape->unit_rows * values) * dtype_bytes(at->shape->type);
}

static double flops(const stage_site *at)
{
    const param *w = stage_param(at, 0);
    return 2 * (double)w->rows * (double)w->cols * (double)at->shape->unit_rows;
}

/* ---- forward ---- */

/* o: the rows row0 .. row0 + o.n of W (outputs). A matrix with adapters is computed module by module, because each adds its own columns of
 * the low tensor times its B. */
static void rows_of(const layer_work *work, const layer_stage *stage, op_matmul o, int64_t row0)
{
    const int64_t end = row0 + o.n;
    const size_t out = dtype_bytes(o.out_type);
    const op_matmul whole = o;
    const float *gains = adapter_gains(work, stage);
    for (int64_t row = row0; row < end; row += o.n) {
        const adapter_part a = adapter_part_at(work, stage, row);
        o.n = (a.end < end ? a.end : end) - row;
        o.bias = weight_of(work, stage->param[1]) ? column(weight_of(work, stage->param[1]), row, work->type) : NULL;
        o.c = (char *)whole.c + (size_t)(row - row0) * out;
        o.residual = whole.residual ? (const char *)whole.residual + (size_t)(row - row0) * out : NULL;
        o.stream = whole.stream ? whole.stream + (row - row0) : NULL;
        o.more_k = a.rank;
        if (a.rank) {
            o.more_a = column(tensor(work, stage->in[LINEAR_LOW]), a.column, work->type);
            o.more_b = column(weight_of(work, a.b), (row - a.row0) * a.rank, work->type);
            o.more_lda = a.width, o.more_ldb = a.rank;
        }
        o.scale = a.rank && gains ? gains + row : NULL;
        matrix_matmul(work, stage, row, &o);
    }
}

/* The matmul of n outputs into the tensor `to`, from its column `col` on. */
static op_matmul matmul_of(const layer_work *work, const layer_stage *stage, int64_t n, int to, int64_t col)
{
    const int64_t k = matrix_of(work, stage)->cols;
    return (op_matmul){.layout = MATMUL_NT, .type = work->type, .out_type = work->type, .m = work->rows, .n = n, .k = k, .lda = k,
                       .ldb = k, .ldc = columns(work, to), .alpha = linear_factor(work, stage), .a = tensor(work, stage->in[LINEAR_X]),
                       .c = column(tensor(work, to), col, work->type)};
}

static void forward(const layer_work *work, const layer_stage *stage)
{
    row_range of[LINEAR_RANGES];
    const int n = linear_ranges(work, stage, of);
    for (int i = 0; i < n; i++) {
        const row_range r = of[i];
        const int64_t left = stage->out[1] == LAYER_NONE ? r.rows : columns(work, stage->out[0]) - r.col;
        const int64_t first = left < 0 ? 0 : left < r.rows ? left : r.rows;
        if (first)
            rows_of(work, stage, matmul_of(work, stage, first, stage->out[0], r.col), r.row0);
        if (first < r.rows)
            rows_of(work, stage, matmul_of(work, stage, r.rows - first, stage->out[1], r.col + first), r.row0 + first);
    }
}

static void add_forward(const layer_work *work, const layer_stage *stage)
{
    op_matmul o = matmul_of(work, stage, work->hidden, stage->out[0], 0);
    o.residual = residual_of(work, stage);
    o.stream = work->stream;
    rows_of(work, stage, o, 0);
}

/* ---- backward ---- */

/* If the stage reads the residual stream, the gradient is added to the stream's. */
static void input(const layer_work *work, const layer_stage *stage)
{
    const int64_t n = matrix_of(work, stage)->cols, k = linear_outputs(work, stage);
    const bool adds = is_residual(work, stage->in[LINEAR_X]) || gradient_begun(work, stage, stage->in[LINEAR_X]);
    float *stream = is_residual(work, stage->in[LINEAR_X]) ? work->u->stream : NULL;
    void *d = gradient(work, stage->in[LINEAR_X]);
    const int64_t low = adapter_input(work, stage), width = adapter_drops(work, stage) ? 0 : low;
    const op_matmul o = {.layout = MATMUL_NN,
                         .type = work->type,
                         .out_type = work->type,
                         .m = work->rows,
                         .n = n,
                         .k = k,
                         .lda = k,
                         .ldb = n,
                         .ldc = n,
                         .alpha = linear_factor(work, stage),
                         .a = adapter_sum_gradient(work, stage),
                         .residual = adds && !stream ? d : NULL,
                         .stream = stream,
                         .c = d,
                         .more_k = width,
                         .more_lda = width,
                         .more_ldb = n,
                         .more_a = width ? gradient(work, stage->in[LINEAR_LOW]) : NULL,
                         .more_b = width ? weight_of(work, adapter_a_role(stage)) : NULL};
    matrix_matmul_rows(work, stage, &o);
    if (adapter_drops(work, stage))
        adapter_add_dropped(work, stage, d, stream);
}

static void weights(const layer_work *work, const layer_stage *stage)
{
    const int64_t cols = matrix_of(work, stage)->cols, ld = linear_outputs(work, stage);
    float *dw = accumulator(work, stage->param[0]), *db = accumulator(work, stage->param[1]);
    const layer_work own = group_alone(work);
    row_range of[LINEAR_RANGES];
    const int n = linear_ranges(work, stage, of);
    for (int i = 0; i < n; i++) {
        const row_range r = of[i];
        const void *dy = column(gradient(work, stage->out[0]), r.col, work->type);
        if (dw)
            matrix_gradient(&own, r.rows, cols, ld, cols, dy, operand(work, stage), linear_factor(work, stage), dw + r.row0 * cols);
        if (db)
            submit_bias_gradient(work->c->queue, work->c->shape, (op_bias_backward){
                .type = work->type, .accumulate = !own.first, .rows = work->rows, .cols = r.rows, .ld = ld, .dy = dy, .acc = db + r.row0});
    }
    adapter_weights(work, stage);
}

const stage_type stage_linear = {.name = "linear", .by_row = true, .touches = touches, .scratch = scratch_bytes, .flops = flops,
                                 .pass = {forward, input, weights}};
const stage_type stage_linear_add = {.name = "linear_add", .by_row = true, .touches = touches, .scratch = scratch_bytes, .flops = flops,
                                     .pass = {add_forward, input, weights}};
