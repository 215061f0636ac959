/* matrix.c - matmuls with a layer's matrices, which may be in few bits. A matrix in few bits is decoded in stripes of rows or columns, so
 * that each stripe makes separate columns of the result. */
#include "layer/work.h"

#include "model/storage.h"

/* The rows of a group are gathered, too. */
uint64_t matrix_scratch_bytes(const stage_site *at)
{
    const param *w = stage_param(at, 0);
    const int groups = at->stage->param[0] == PARAM_QKV ? layer_groups(at->model, at->layer, at->shape) : 1;
    return groups > 1 && w->storage == STORAGE_PLAIN ? (uint64_t)(w->rows / groups * w->cols) * dtype_bytes(at->shape->type)
                                                     : stripe_bytes(w, at->shape);
}

int64_t matrix_rows_at_once(const layer_work *work, const param *matrix)
{
    return matrix->storage == STORAGE_PLAIN ? matrix->rows : stripe_rows(matrix, work->c->shape);
}

/* Rows row0 .. row0 + rows of a matrix in few bits, columns col0 .. col0 + cols. */
static void decode(const layer_work *work, const layer_stage *stage, int64_t row0, int64_t rows, int64_t col0, int64_t cols, void *out)
{
    op_dequantize o = {.type = work->type, .cols = cols, .ld = cols};
    for (int64_t done = 0, run; done < rows; done += run) {
        run = storage_run(matrix_of(work, stage), storage_all_rows(matrix_of(work, stage)), weight_of(work, stage->param[0]), row0 + done,
                          rows - done, &o);
        o.first += col0;
        o.out = column(out, done * cols, work->type);
        queue_submit(work->c->queue, &(op){OP_DEQUANTIZE, .dequantize = o});
    }
}

void matrix_decode(const layer_work *work, const layer_stage *stage, int64_t row0, int64_t rows)
{
    decode(work, stage, row0, rows, 0, matrix_of(work, stage)->cols, scratch(work, stage, LINEAR_DECODED));
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

void matrix_matmul(const layer_work *work, const layer_stage *stage, int64_t row0, const op_matmul *o)
{
    const param *w = matrix_of(work, stage);
    op_matmul part = *o;
    if (w->storage == STORAGE_PLAIN) {
        part.b = column(weight_of(work, stage->param[0]), row0 * w->cols, work->type);
        queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = part});
        return;
    }
    const int64_t each = stripe_rows(w, work->c->shape);
    for (int64_t at = 0; at < o->n; at += each) {
        part = from_column(*o, at);
        part.n = o->n - at < each ? o->n - at : each;
        part.b = scratch(work, stage, LINEAR_DECODED);
        matrix_decode(work, stage, row0 + at, part.n);
        queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = part});
    }
}

/* Columns col0 .. col0 + cols of the rows that are computed, into the stage's scratch. */
static void gather(const layer_work *work, const layer_stage *stage, int64_t col0, int64_t cols)
{
    const param *w = matrix_of(work, stage);
    const size_t row = (size_t)cols * dtype_bytes(work->type);
    row_range of[LINEAR_RANGES];
    const int n = linear_ranges(work, stage, of);
    char *out = scratch(work, stage, LINEAR_DECODED);
    for (int i = 0; i < n; i++) {
        if (w->storage != STORAGE_PLAIN)
            decode(work, stage, of[i].row0, of[i].rows, col0, cols, out);
        else
            queue_submit(work->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {
                out, column(weight_of(work, stage->param[0]), of[i].row0 * cols, work->type), of[i].rows, row, row, row}});
        out += (size_t)of[i].rows * row;
    }
}

void matrix_matmul_rows(const layer_work *work, const layer_stage *stage, const op_matmul *o)
{
    const param *w = matrix_of(work, stage);
    op_matmul part = *o;
    if (w->storage == STORAGE_PLAIN && work->groups == 1) {
        part.b = weight_of(work, stage->param[0]);
        queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = part});
        return;
    }
    const int64_t each = w->storage == STORAGE_PLAIN ? o->n : stripe_cols(w, work->c->shape);
    for (int64_t at = 0; at < o->n; at += each) {
        part = from_column(*o, at);
        part.n = o->n - at < each ? o->n - at : each;
        part.ldb = part.n;
        part.b = scratch(work, stage, LINEAR_DECODED);
        gather(work, stage, at, part.n);
        queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = part});
    }
}

void matrix_gradient(const layer_work *work, int64_t rows, int64_t cols, int64_t ldy, int64_t ldx, const void *dy, const void *x,
                     float factor, float *acc)
{
    submit_matmul_gradient(work->c->queue, work->c->shape, (op_matmul){
        .layout = MATMUL_TN, .type = work->type, .out_type = PT_F32, .accumulate = !work->first, .m = rows, .n = cols, .k = work->rows,
        .lda = ldy, .ldb = ldx, .ldc = cols, .alpha = factor, .a = dy, .b = x, .c = acc});
}
