/* matrix.c - matmuls with a layer's matrices, which may be in few bits. A matrix in few bits is decoded in stripes of rows or columns, so
 * that each stripe makes separate columns of the result. */
#include "layer/work.h"

#include "model/storage.h"

uint64_t matrix_scratch_bytes(const stage_site *at) { return stripe_bytes(stage_param(at, 0), at->shape); }

int64_t matrix_rows_at_once(const layer_work *work, const param *matrix)
{
    return matrix->storage == STORAGE_PLAIN ? matrix->rows : stripe_rows(matrix, work->c->shape);
}

/* Rows row0 .. row0 + rows of a matrix in few bits, columns col0 .. col0 + cols, into the stage's scratch. */
static void decode(const layer_work *work, const layer_stage *s, int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    op_dequantize o = {.type = work->type, .cols = cols, .ld = cols};
    for (int64_t done = 0, run; done < rows; done += run) {
        run = storage_run(matrix_of(work, s), weight_of(work, s->param[0]), row0 + done, rows - done, &o);
        o.first += col0;
        o.out = column(scratch(work, s, LINEAR_DECODED), done * cols, work->type);
        queue_submit(work->c->queue, &(op){OP_DEQUANTIZE, .dequantize = o});
    }
}

void matrix_decode(const layer_work *work, const layer_stage *s, int64_t row0, int64_t rows)
{
    decode(work, s, row0, rows, 0, matrix_of(work, s)->cols);
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

void matrix_matmul(const layer_work *work, const layer_stage *s, int64_t row0, const op_matmul *o)
{
    const param *w = matrix_of(work, s);
    op_matmul part = *o;
    if (w->storage == STORAGE_PLAIN) {
        part.b = column(weight_of(work, s->param[0]), row0 * w->cols, work->type);
        queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = part});
        return;
    }
    const bool by_rows = o->layout == MATMUL_NT;
    const int64_t each = by_rows ? stripe_rows(w, work->c->shape) : stripe_cols(w, work->c->shape);
    for (int64_t at = 0; at < o->n; at += each) {
        part = from_column(*o, at);
        part.n = o->n - at < each ? o->n - at : each;
        part.ldb = by_rows ? w->cols : part.n;
        part.b = scratch(work, s, LINEAR_DECODED);
        if (by_rows)
            decode(work, s, row0 + at, part.n, 0, w->cols);
        else
            decode(work, s, 0, w->rows, at, part.n);
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
