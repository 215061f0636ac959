/* linear.c - linear stages: matmuls with weights that may be in few bits, their adapters (LoRA, DoRA), and the gradients of all. */
#include "block/layer_parts.h"

#include "model/adapter.h"
#include "model/storage.h"

/* (outputs, inputs) of a linear stage's weights. */
static const param *matrix_of(const layer *y, const layer_stage *s)
{
    return block_param(y->c->model, &y->c->model->blocks[y->block], s->weight);
}

/* Decodes rows row0 .. row0 + rows of a matrix in few bits, columns col0 .. col0 + cols, into the stage's stripe. */
static void decode(const layer *y, const layer_stage *s, int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    op_dequantize o = {.type = y->type, .cols = cols, .ld = cols};
    for (int64_t done = 0, run; done < rows; done += run) {
        run = storage_run(matrix_of(y, s), weight_of(y, s->weight), row0 + done, rows - done, &o);
        o.first += col0;
        o.out = column(stripe(y, s), done * cols, y->type);
        queue_submit(y->c->queue, &(op){OP_DEQUANTIZE, .dequantize = o});
    }
}

/* Operand c, from column `col` on. */
static op_matmul from_column(op_matmul o, int64_t col)
{
    o.c = column(o.c, col, o.out_type);
    o.bias = o.bias ? column(o.bias, col, o.type) : NULL;
    o.residual = o.residual ? column(o.residual, col, o.type) : NULL;
    o.stream = o.stream ? o.stream + col : NULL;
    o.scale = o.scale ? o.scale + col : NULL;
    o.more_b = o.more_b ? column(o.more_b, o.layout == MATMUL_NT ? col * o.more_ldb : col, o.type) : NULL;
    return o;
}

/* Every matmul with a matrix of the base: with all of it, or with NT its o.n rows from row0 on. A matrix in few bits is decoded in stripes
 * of rows or columns, so that each stripe makes separate columns of c. */
static void base_matmul(const layer *y, const layer_stage *s, int64_t row0, const op_matmul *o)
{
    const param *w = matrix_of(y, s);
    op_matmul part = *o;
    if (w->storage == STORAGE_PLAIN) {
        part.b = column(weight_of(y, s->weight), row0 * w->cols, y->type);
        queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = part});
        return;
    }
    const bool by_rows = o->layout == MATMUL_NT;
    const int64_t each = by_rows ? stripe_rows(w, y->c->shape) : stripe_cols(w, y->c->shape);
    for (int64_t at = 0; at < o->n; at += each) {
        part = from_column(*o, at);
        part.n = o->n - at < each ? o->n - at : each;
        part.ldb = by_rows ? w->cols : part.n;
        part.b = stripe(y, s);
        if (by_rows)
            decode(y, s, row0 + at, part.n, 0, w->cols);
        else
            decode(y, s, 0, w->rows, at, part.n);
        queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = part});
    }
}

/* The factor of the matmul. */
static float factor_of(const layer *y, const layer_stage *s) { return s->kind == STAGE_LINEAR_ADD ? y->config->residual_scale : 1; }

/* acc (+)= factor dy^T . x */
static void weights_gradient(const layer *y, int64_t rows, int64_t cols, int64_t ldy, int64_t ldx, const void *dy, const void *x,
                             float factor,
                             float *acc)
{
    queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_TN, .type = y->type, .out_type = PT_F32, .accumulate = !y->first, .m = rows, .n = cols, .k = y->rows,
        .lda = ldy, .ldb = ldx, .ldc = cols, .alpha = factor, .a = dy, .b = x, .c = acc}});
}

/* ---- adapters (model/adapter.h) ---- */

/* The module of a row of a stage's matrix. */
typedef struct adapter_part {
    int64_t row0, end;     /* rows of the module; of a matrix without an adapter, all */
    int64_t rank, column;  /* columns of the low tensor, from `column` on; rank 0: no adapter */
    int64_t width;         /* of a row of the low tensor */
    float scale;
    param_role b;
} adapter_part;

static param_role adapter_a_of(const layer_stage *s) { return adapter_a(adapter_matrix(s->weight)); }

/* Other layers may have an adapter where this one has none. */
static bool has_adapter(const layer *y, const layer_stage *s)
{
    return y->c->model->adapters && block_param(y->c->model, &y->c->model->blocks[y->block], adapter_a_of(s));
}

static adapter_part module_of(const layer *y, const layer_stage *s, int part)
{
    const model *m = y->c->model;
    const int matrix = adapter_matrix(s->weight);
    const param_part *of = &matrix_of(y, s)->part[part];
    const adapter_module *a = adapter_at(m, y->block, matrix, part);
    return (adapter_part){.row0 = of->row0, .end = of->row0 + of->rows, .rank = a->rank,
                          .column = adapter_column(m, y->block, matrix, part),
                          .width = block_param(m, &m->blocks[y->block], adapter_a(matrix))->rows, .scale = a->scale,
                          .b = adapter_b(matrix, part)};
}

static adapter_part adapter_part_at(const layer *y, const layer_stage *s, int64_t row)
{
    const param *w = matrix_of(y, s);
    int part = 0;
    if (!has_adapter(y, s))
        return (adapter_part){.end = w->rows};
    while (part + 1 < w->parts && w->part[part].row0 + w->part[part].rows <= row)
        part++;
    return module_of(y, s, part);
}

/* t = s x A^T, together for all modules with the same scale. */
void adapter_low(const layer *y, const layer_stage *s)
{
    const param *w = matrix_of(y, s);
    adapter_part a = {0};
    int64_t from = 0;
    for (int part = 0; part <= w->parts && has_adapter(y, s); part++) {
        const adapter_part next = part < w->parts ? module_of(y, s, part) : (adapter_part){.column = a.width, .rank = 1};
        if (!next.rank)
            continue;
        if (next.column > from && (part == w->parts || next.scale != a.scale)) {
            queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = {
                .layout = MATMUL_NT, .type = y->type, .out_type = y->type, .m = y->rows, .n = next.column - from, .k = w->cols,
                .lda = w->cols, .ldb = w->cols, .ldc = a.width, .alpha = a.scale, .a = tensor(y, s->in),
                .b = column(weight_of(y, adapter_a_of(s)), from * w->cols, y->type), .c = column(tensor(y, s->out), from, y->type)}});
            from = next.column;
        }
        a = next;
    }
}

/* The gradient of a linear stage's sum: its output's gradient, with DoRA times the gain, in the scratch. */
static const void *sum_gradient(const layer *y, const layer_stage *s)
{
    return s->gain != LAYER_NONE && has_adapter(y, s) ? scratch(y, s) : gradient(y, s->out);
}

/* The product with rows from row0 on of the stored matrix. */
static void gain_rows(const layer *y, const layer_stage *s, op_gain o, int64_t row0)
{
    const param *w = matrix_of(y, s);
    const bool plain = w->storage == STORAGE_PLAIN;
    const int64_t end = o.rows, each = plain ? end : stripe_rows(w, y->c->shape);
    for (int64_t at = 0; at < end; at += o.rows) {
        op_gain part = o;
        part.rows = o.rows = end - at < each ? end - at : each;
        part.w = plain ? column(weight_of(y, s->weight), (row0 + at) * w->cols, y->type) : stripe(y, s);
        part.b = column(o.b, at * o.rank, y->type);
        part.magnitude = o.magnitude + at, part.gain = o.gain + at, part.inverse = o.inverse + at;
        if (!plain)
            decode(y, s, row0 + at, part.rows, 0, w->cols);
        queue_submit(y->c->queue, &(op){OP_GAIN, .gain = part});
    }
}

/* Computes the gains of the modules' columns (DoRA), and the norms for them. */
void adapter_measure_gain(const layer *y, const layer_stage *s, float *to)
{
    const param *w = matrix_of(y, s);
    const int matrix = adapter_matrix(s->weight);
    const float *magnitude = weight_of(y, adapter_magnitude(matrix));
    for (int part = 0; part < w->parts && has_adapter(y, s); part++) {
        const adapter_part a = module_of(y, s, part);
        if (!a.rank)
            continue;
        gain_rows(y, s, (op_gain){
            .type = y->type, .rows = a.end - a.row0, .cols = w->cols, .rank = a.rank, .scale = a.scale,
            .a = column(weight_of(y, adapter_a_of(s)), a.column * w->cols, y->type), .b = weight_of(y, a.b), .magnitude = magnitude,
            .gain = to + a.row0, .inverse = to + w->rows + a.row0}, a.row0);
        magnitude += a.end - a.row0;
    }
}

/* The gains that were computed before, else forward's. */
static float *gains_of(const layer *y, const layer_stage *s, layer_tensor t)
{
    float *before = y->w->gains[adapter_matrix(s->weight)];
    return before ? before : tensor(y, t);
}

void adapter_gain(const layer *y, const layer_stage *s)
{
    if (!y->w->gains[adapter_matrix(s->weight)])
        adapter_measure_gain(y, s, tensor(y, s->out));
}

/* Computes the sums of a stage with gains again, for the gradients of the magnitudes, which replace them. */
static void gain_input(const layer *y, const layer_stage *s)
{
    const param *w = matrix_of(y, s);
    const size_t size = dtype_bytes(y->type), stride = (size_t)w->rows * size;
    const float *gains = tensor(y, s->gain);
    float *acc = accumulator(y, adapter_magnitude(adapter_matrix(s->weight)));
    for (int part = 0; part < w->parts; part++) {
        const adapter_part a = module_of(y, s, part);
        const void *dy = column(gradient(y, s->out), a.row0, y->type);
        void *sums = column(scratch(y, s), a.row0, y->type);
        if (!a.rank) {
            queue_submit(y->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {sums, dy, y->rows, (size_t)(a.end - a.row0) * size, stride,
                stride}});
            continue;
        }
        base_matmul(y, s, a.row0, &(op_matmul){
            .layout = MATMUL_NT, .type = y->type, .out_type = y->type, .m = y->rows, .n = a.end - a.row0, .k = w->cols, .lda = w->cols,
            .ldb = w->cols, .ldc = w->rows, .a = tensor(y, s->in), .c = sums,
            .more_k = a.rank, .more_lda = a.width, .more_ldb = a.rank, .more_a = column(tensor(y, s->low), a.column, y->type),
            .more_b = weight_of(y, a.b)});
        queue_submit(y->c->queue, &(op){OP_GAIN_BACKWARD, .gain_backward = {
            .type = y->type, .accumulate = !y->first, .rows = y->rows, .cols = a.end - a.row0, .ld = w->rows, .dy = dy, .sums = sums,
            .gain = gains + a.row0, .inverse = gains + w->rows + a.row0, .factor = factor_of(y, s), .acc = acc}});
        acc += a.end - a.row0;
    }
}

/* Computes the gradient of the low tensor, and with DoRA of the sum. Returns its width, 0 if there is no adapter. */
static int64_t adapter_input(const layer *y, const layer_stage *s)
{
    const param *w = matrix_of(y, s);
    if (!has_adapter(y, s))
        return 0;
    if (s->gain != LAYER_NONE)
        gain_input(y, s);
    for (int part = 0; part < w->parts; part++) {
        const adapter_part a = module_of(y, s, part);
        if (a.rank)
            queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = {
                .layout = MATMUL_NN, .type = y->type, .out_type = y->type, .m = y->rows, .n = a.rank, .k = a.end - a.row0, .lda = w->rows,
                .ldb = a.rank, .ldc = a.width, .alpha = a.scale, .a = column(sum_gradient(y, s), a.row0, y->type),
                .b = weight_of(y, a.b), .c = column(gradient(y, s->low), a.column, y->type)}});
    }
    return module_of(y, s, 0).width;
}

static void adapter_weights(const layer *y, const layer_stage *s)
{
    const param *w = matrix_of(y, s);
    if (!has_adapter(y, s))
        return;
    const int64_t width = module_of(y, s, 0).width;
    weights_gradient(y, width, w->cols, width, w->cols, gradient(y, s->low), operand(y, s->in), factor_of(y, s),
                     accumulator(y, adapter_a_of(s)));
    for (int part = 0; part < w->parts; part++) {
        const adapter_part a = module_of(y, s, part);
        if (a.rank)
            weights_gradient(y, a.end - a.row0, a.rank, w->rows, a.width, column(sum_gradient(y, s), a.row0, y->type),
                             column(tensor(y, s->low), a.column, y->type), factor_of(y, s), accumulator(y, a.b));
    }
}

/* ---- linear, forward and backward ---- */

/* o: the rows row0 .. row0 + o.n of W (outputs). A matrix with adapters is computed module by module, because each adds its own columns of
 * the low tensor times its B. */
void linear_rows(const layer *y, const layer_stage *s, op_matmul o, int64_t row0)
{
    const int64_t end = row0 + o.n;
    const size_t out = dtype_bytes(o.out_type);
    const op_matmul whole = o;
    for (int64_t row = row0; row < end; row += o.n) {
        const adapter_part a = adapter_part_at(y, s, row);
        o.n = (a.end < end ? a.end : end) - row;
        o.bias = weight_of(y, s->bias) ? column(weight_of(y, s->bias), row, y->type) : NULL;
        o.c = (char *)whole.c + (size_t)(row - row0) * out;
        o.residual = whole.residual ? (const char *)whole.residual + (size_t)(row - row0) * out : NULL;
        o.stream = whole.stream ? whole.stream + (row - row0) : NULL;
        o.more_k = a.rank;
        if (a.rank) {
            o.more_a = column(tensor(y, s->low), a.column, y->type);
            o.more_b = column(weight_of(y, a.b), (row - a.row0) * a.rank, y->type);
            o.more_lda = a.width, o.more_ldb = a.rank;
        }
        o.scale = a.rank && s->gain != LAYER_NONE ? gains_of(y, s, s->gain) + row : NULL;
        base_matmul(y, s, row, &o);
    }
}

op_matmul linear_op(const layer *y, const layer_stage *s, int64_t n, int64_t ldc, void *c)
{
    const int64_t k = matrix_of(y, s)->cols;
    return (op_matmul){.layout = MATMUL_NT, .type = y->type, .out_type = y->type, .m = y->rows, .n = n, .k = k, .lda = k, .ldb = k,
                       .ldc = ldc, .a = tensor(y, s->in), .c = c};
}

void linear(const layer *y, const layer_stage *s)
{
    const int64_t n = matrix_of(y, s)->rows;
    linear_rows(y, s, linear_op(y, s, n, n, tensor(y, s->out)), 0);
}

void linear_add(const layer *y, const layer_stage *s)
{
    op_matmul o = linear_op(y, s, y->hidden, y->hidden, tensor(y, s->out));
    o.alpha = y->config->residual_scale;
    o.residual = residual_of(y, s);
    o.stream = y->stream;
    linear_rows(y, s, o, 0);
}

/* If the stage reads the residual stream, the gradient is added to the stream's. */
void linear_input(const layer *y, const layer_stage *s)
{
    const param *w = matrix_of(y, s);
    const bool adds = layer_is_residual(s->in);
    void *d = gradient(y, s->in);
    const int64_t width = adapter_input(y, s);
    const op_matmul o = {
        .layout = MATMUL_NN, .type = y->type, .out_type = y->type, .m = y->rows, .n = w->cols, .k = w->rows, .lda = w->rows, .ldb = w->cols,
        .ldc = w->cols, .alpha = factor_of(y, s), .a = sum_gradient(y, s),
        .residual = adds && !y->u->stream ? d : NULL, .stream = adds ? y->u->stream : NULL, .c = d, .more_k = width, .more_lda = width,
        .more_ldb = w->cols, .more_a = width ? gradient(y, s->low) : NULL, .more_b = width ? weight_of(y, adapter_a_of(s)) : NULL};
    base_matmul(y, s, 0, &o);
}

void linear_weights(const layer *y, const layer_stage *s)
{
    const param *w = matrix_of(y, s);
    const void *dy = gradient(y, s->out);
    float *dw = accumulator(y, s->weight), *db = accumulator(y, s->bias);
    if (dw)
        weights_gradient(y, w->rows, w->cols, w->rows, w->cols, dy, operand(y, s->in), factor_of(y, s), dw);
    if (db)
        queue_submit(y->c->queue, &(op){OP_BIAS_BACKWARD, .bias_backward = {
            .type = y->type, .accumulate = !y->first, .rows = y->rows, .cols = w->rows, .ld = w->rows, .dy = dy, .acc = db}});
    adapter_weights(y, s);
}
