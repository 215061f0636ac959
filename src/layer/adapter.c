/* adapter.c - low-rank adapters of linear stages (model/adapter.h): the stages that make x A^T and DoRA's gains, and what an adapter adds
 * to the backward of its linear stage, which computes the gradients of all. */
#include "layer/work.h"

#include "device/dropout.h"
#include "model/adapter.h"

static int matrix_index(const layer_stage *stage) { return adapter_matrix(stage->param[0]); }

param_role adapter_a_role(const layer_stage *stage) { return adapter_a(matrix_index(stage)); }

static bool has_adapter(const layer_stage *stage) { return stage->in[LINEAR_LOW] != LAYER_NONE; }
static bool has_gains(const layer_stage *stage) { return stage->in[LINEAR_GAIN] != LAYER_NONE; }

static adapter_part module_of(const layer_work *work, const layer_stage *stage, int part)
{
    const model *m = work->c->model;
    const int matrix = matrix_index(stage);
    const param_part *of = &matrix_of(work, stage)->part[part];
    const adapter_module *a = adapter_at(m, work->block, matrix, part);
    return (adapter_part){.row0 = of->row0, .end = of->row0 + of->rows, .first = of->row0, .output = of->row0, .rank = a->rank,
                          .column = adapter_column(m, work->block, matrix, part),
                          .width = block_param(m, &m->blocks[work->block], adapter_a(matrix))->rows, .scale = a->scale,
                          .b = adapter_b(matrix, part)};
}

static int part_at(const param *w, int64_t row)
{
    int part = 0;
    while (part + 1 < w->parts && w->part[part].row0 + w->part[part].rows <= row)
        part++;
    return part;
}

adapter_part adapter_part_at(const layer_work *work, const layer_stage *stage, int64_t row)
{
    const param *w = matrix_of(work, stage);
    return has_adapter(stage) ? module_of(work, stage, part_at(w, row)) : (adapter_part){.end = w->rows};
}

/* The parts of modules with an adapter that are among the computed rows. */
enum { MOST_PARTS = MODEL_MAX_PARTS + LINEAR_RANGES };
static int parts_of(const layer_work *work, const layer_stage *stage, adapter_part out[MOST_PARTS])
{
    row_range of[LINEAR_RANGES];
    const int ranges = linear_ranges(work, stage, of);
    int n = 0;
    for (int i = 0; i < ranges; i++)
        for (int64_t row = of[i].row0, end = row + of[i].rows; row < end; row = out[n].end, n += out[n].rank > 0) {
            out[n] = adapter_part_at(work, stage, row);
            out[n].row0 = row;
            out[n].end = out[n].end < end ? out[n].end : end;
            out[n].output = of[i].col + row - of[i].row0;
            out[n].again = n && out[n - 1].first == out[n].first;
        }
    return n;
}

/* ---- dropout ---- */

/* Every module has its own dropout. */
static op_dropout dropout_of(const layer_work *work, const layer_stage *stage, int part)
{
    const uint64_t site = (uint64_t)(work->layer << 8 | matrix_index(stage) << 4 | part);
    return (op_dropout){.type = work->type, .rows = work->rows, .cols = matrix_of(work, stage)->cols, .row0 = work->u->row,
                        .key = dropout_key(work->u->dropout, site), .p = work->c->model->adapters->dropout};
}

/* x after a module's dropout, in the stage's scratch. */
static const void *drop(const layer_work *work, const layer_stage *stage, int part, const void *x)
{
    op_dropout o = dropout_of(work, stage, part);
    o.x = x;
    o.out = scratch(work, stage, LINEAR_DROPPED);
    queue_submit(work->c->queue, &(op){OP_DROPOUT, .dropout = o});
    return o.out;
}

void adapter_add_dropped(const layer_work *work, const layer_stage *stage, void *dx, float *stream)
{
    const param *w = matrix_of(work, stage);
    for (int part = 0; part < w->parts; part++) {
        const adapter_part a = module_of(work, stage, part);
        op_dropout o = dropout_of(work, stage, part);
        if (!a.rank)
            continue;
        queue_submit(work->c->queue,
                     &(op){OP_MATMUL, .matmul = {.layout = MATMUL_NN,
                                                 .type = work->type,
                                                 .out_type = work->type,
                                                 .m = work->rows,
                                                 .n = w->cols,
                                                 .k = a.rank,
                                                 .lda = a.width,
                                                 .ldb = w->cols,
                                                 .ldc = w->cols,
                                                 .alpha = linear_factor(work, stage),
                                                 .a = column(gradient(work, stage->in[LINEAR_LOW]), a.column, work->type),
                                                 .b = column(weight_of(work, adapter_a_role(stage)), a.column * w->cols, work->type),
                                                 .c = scratch(work, stage, LINEAR_DROPPED)}});
        o.add = true;
        o.x = scratch(work, stage, LINEAR_DROPPED);
        o.out = dx;
        o.stream = stream;
        queue_submit(work->c->queue, &(op){OP_DROPOUT, .dropout = o});
    }
}

/* The gradient of A, module by module, because each has its own input. */
static void dropped_gradient(const layer_work *work, const layer_stage *stage)
{
    const param *w = matrix_of(work, stage);
    float *acc = accumulator(work, adapter_a_role(stage));
    for (int part = 0; part < w->parts; part++) {
        const adapter_part a = module_of(work, stage, part);
        if (a.rank)
            matrix_gradient(work, a.rank, w->cols, a.width, w->cols, column(gradient(work, stage->in[LINEAR_LOW]), a.column, work->type),
                            drop(work, stage, part, operand(work, stage)), linear_factor(work, stage), acc + a.column * w->cols);
    }
}

/* ---- x A^T ---- */

static unsigned low_touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | TOUCH_OUT(0) | (stage->drops ? TOUCH_SCRATCH(LINEAR_DROPPED) : 0);
}

static uint64_t low_scratch_bytes(const stage_site *at, int k)
{
    return k == LINEAR_DROPPED ? (uint64_t)(at->shape->unit_rows * stage_param(at, 0)->cols) * dtype_bytes(at->shape->type) : 0;
}

/* Of x A^T, and of its product with B in the linear stage. */
static double low_flops(const stage_site *at)
{
    const param *w = stage_param(at, 0), *a = block_param(at->model, &at->model->blocks[at->layer + 1], adapter_a_role(at->stage));
    double values = (double)a->rows * (double)a->cols;
    for (int part = 0; part < w->parts; part++)
        values += (double)adapter_at(at->model, at->layer + 1, matrix_index(at->stage), part)->rank * (double)w->part[part].rows;
    return 2 * values * (double)at->shape->unit_rows;
}

/* The columns from .. end of the low tensor. */
static void low_columns(const layer_work *work, const layer_stage *stage, const adapter_part *a, int64_t from, int64_t end, const void *x)
{
    const int64_t cols = matrix_of(work, stage)->cols;
    queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = {.layout = MATMUL_NT,
                                                             .type = work->type,
                                                             .out_type = work->type,
                                                             .m = work->rows,
                                                             .n = end - from,
                                                             .k = cols,
                                                             .lda = cols,
                                                             .ldb = cols,
                                                             .ldc = a->width,
                                                             .alpha = a->scale,
                                                             .a = x,
                                                             .b = column(weight_of(work, adapter_a_role(stage)), from * cols, work->type),
                                                             .c = column(tensor(work, stage->out[0]), from, work->type)}});
}

static void low_dropped(const layer_work *work, const layer_stage *stage)
{
    for (int part = 0; part < matrix_of(work, stage)->parts; part++) {
        const adapter_part a = module_of(work, stage, part);
        if (a.rank)
            low_columns(work, stage, &a, a.column, a.column + a.rank, drop(work, stage, part, tensor(work, stage->in[0])));
    }
}

/* Without dropout together for all modules with the same scale. */
static void low_forward(const layer_work *work, const layer_stage *stage)
{
    const param *w = matrix_of(work, stage);
    adapter_part a = {0};
    int64_t from = 0;
    if (adapter_drops(work, stage)) {
        low_dropped(work, stage);
        return;
    }
    for (int part = 0; part <= w->parts; part++) {
        const adapter_part next = part < w->parts ? module_of(work, stage, part) : (adapter_part){.column = a.width, .rank = 1};
        if (!next.rank)
            continue;
        if (next.column > from && (part == w->parts || next.scale != a.scale)) {
            low_columns(work, stage, &a, from, next.column, tensor(work, stage->in[0]));
            from = next.column;
        }
        a = next;
    }
}

const stage_type stage_low = {.name = "low", .by_row = true, .touches = low_touches, .scratch = low_scratch_bytes, .flops = low_flops,
                               .pass = {low_forward}};

/* ---- DoRA's gains ---- */

static unsigned gain_touches(const layer_stage *stage, step_pass pass) { return TOUCH_OUT(0) | TOUCH_SCRATCH(LINEAR_DECODED); }

static uint64_t gain_scratch_bytes(const stage_site *at, int k) { return k == LINEAR_DECODED ? matrix_scratch_bytes(at) : 0; }

/* The product with rows from row0 on of the stored matrix. */
static void gain_rows(const layer_work *work, const layer_stage *stage, op_gain o, int64_t row0)
{
    const param *w = matrix_of(work, stage);
    const bool plain = w->storage == STORAGE_PLAIN;
    const int64_t end = o.rows, each = plain ? end : matrix_rows_at_once(work, w);
    for (int64_t at = 0; at < end; at += o.rows) {
        op_gain part = o;
        part.rows = o.rows = end - at < each ? end - at : each;
        part.w = plain ? column(weight_of(work, stage->param[0]), (row0 + at) * w->cols, work->type) : scratch(work, stage, LINEAR_DECODED);
        part.b = column(o.b, at * o.rank, work->type);
        part.magnitude = o.magnitude + at, part.gain = o.gain + at, part.inverse = o.inverse + at;
        if (!plain)
            matrix_decode(work, stage, row0 + at, part.rows);
        queue_submit(work->c->queue, &(op){OP_GAIN, .gain = part});
    }
}

void adapter_measure_gain(const layer_work *work, const layer_stage *stage, float *to)
{
    const param *w = matrix_of(work, stage);
    const float *magnitude = weight_of(work, adapter_magnitude(matrix_index(stage)));
    for (int part = 0; part < w->parts; part++) {
        const adapter_part a = module_of(work, stage, part);
        if (!a.rank)
            continue;
        gain_rows(work, stage, (op_gain){
            .type = work->type, .rows = a.end - a.row0, .cols = w->cols, .rank = a.rank, .scale = a.scale,
            .a = column(weight_of(work, adapter_a_role(stage)), a.column * w->cols, work->type), .b = weight_of(work, a.b),
            .magnitude = magnitude, .gain = to + a.row0, .inverse = to + w->rows + a.row0}, a.row0);
        magnitude += a.end - a.row0;
    }
}

static void gain_forward(const layer_work *work, const layer_stage *stage)
{
    if (!work->w->gains[matrix_index(stage)])
        adapter_measure_gain(work, stage, tensor(work, stage->out[0]));
}

const stage_type stage_gain = {.name = "gain", .touches = gain_touches, .scratch = gain_scratch_bytes, .pass = {gain_forward}};

/* ---- parts of a linear stage ---- */

/* The gains that were computed before, else forward's. */
float *adapter_gains(const layer_work *work, const layer_stage *stage)
{
    if (!has_gains(stage))
        return NULL;
    float *before = work->w->gains[matrix_index(stage)];
    return before ? before : tensor(work, stage->in[LINEAR_GAIN]);
}

const void *adapter_sum_gradient(const layer_work *work, const layer_stage *stage)
{
    return has_gains(stage) ? scratch(work, stage, LINEAR_SUMS) : gradient(work, stage->out[0]);
}

/* Computes the sums of a stage with gains again, for the gradients of the magnitudes; the sums' gradients replace them. */
static void gain_input(const layer_work *work, const layer_stage *stage)
{
    const param *w = matrix_of(work, stage);
    const size_t size = dtype_bytes(work->type), stride = (size_t)w->rows * size;
    const float *gains = tensor(work, stage->in[LINEAR_GAIN]);
    float *acc = accumulator(work, adapter_magnitude(matrix_index(stage)));
    for (int part = 0; part < w->parts; part++) {
        const adapter_part a = module_of(work, stage, part);
        const void *dy = column(gradient(work, stage->out[0]), a.row0, work->type);
        void *sums = column(scratch(work, stage, LINEAR_SUMS), a.row0, work->type);
        if (!a.rank) {
            queue_submit(work->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {sums, dy, work->rows, (size_t)(a.end - a.row0) * size, stride,
                stride}});
            continue;
        }
        matrix_matmul(work, stage, a.row0, &(op_matmul){
            .layout = MATMUL_NT, .type = work->type, .out_type = work->type, .m = work->rows, .n = a.end - a.row0, .k = w->cols,
            .lda = w->cols, .ldb = w->cols, .ldc = w->rows, .a = tensor(work, stage->in[LINEAR_X]), .c = sums,
            .more_k = a.rank, .more_lda = a.width, .more_ldb = a.rank,
            .more_a = column(tensor(work, stage->in[LINEAR_LOW]), a.column, work->type), .more_b = weight_of(work, a.b)});
        submit_gain_backward(work->c->queue, work->c->shape, (op_gain_backward){
            .type = work->type, .accumulate = !work->first, .rows = work->rows, .cols = a.end - a.row0, .ld = w->rows, .dy = dy,
            .sums = sums, .gain = gains + a.row0, .inverse = gains + w->rows + a.row0, .factor = linear_factor(work, stage), .acc = acc});
        acc += a.end - a.row0;
    }
}

/* B, from the first of the computed rows on. */
static const void *b_from(const layer_work *work, const adapter_part *a)
{
    return column(weight_of(work, a->b), (a->row0 - a->first) * a->rank, work->type);
}

int64_t adapter_input(const layer_work *work, const layer_stage *stage)
{
    if (!has_adapter(stage))
        return 0;
    if (has_gains(stage))
        gain_input(work, stage);
    adapter_part of[MOST_PARTS];
    const int n = parts_of(work, stage, of);
    for (int i = 0; i < n; i++) {
        const adapter_part a = of[i];
        char *low = column(gradient(work, stage->in[LINEAR_LOW]), a.column, work->type);
        queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = {
            .layout = MATMUL_NN, .type = work->type, .out_type = work->type, .m = work->rows, .n = a.rank, .k = a.end - a.row0,
            .lda = linear_outputs(work, stage), .ldb = a.rank, .ldc = a.width, .alpha = a.scale,
            .a = column(adapter_sum_gradient(work, stage), a.output, work->type), .b = b_from(work, &a), .residual = a.again ? low : NULL,
            .c = low}});
    }
    return module_of(work, stage, 0).width;
}

void adapter_weights(const layer_work *work, const layer_stage *stage)
{
    const param *w = matrix_of(work, stage);
    if (!has_adapter(stage))
        return;
    const int64_t width = module_of(work, stage, 0).width;
    if (adapter_drops(work, stage))
        dropped_gradient(work, stage);
    else
        matrix_gradient(work, width, w->cols, width, w->cols, gradient(work, stage->in[LINEAR_LOW]), operand(work, stage),
                        linear_factor(work, stage), accumulator(work, adapter_a_role(stage)));
    const layer_work own = group_alone(work);
    adapter_part of[MOST_PARTS];
    const int n = parts_of(work, stage, of);
    for (int i = 0; i < n; i++) {
        const adapter_part a = of[i];
        matrix_gradient(&own, a.end - a.row0, a.rank, linear_outputs(work, stage), a.width,
                        column(adapter_sum_gradient(work, stage), a.output, work->type),
                        column(tensor(work, stage->in[LINEAR_LOW]), a.column, work->type), linear_factor(work, stage),
                        accumulator(work, a.b) + (a.row0 - a.first) * a.rank);
    }
}
