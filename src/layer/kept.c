/* kept.c - tensors that the gradients read rounded to codes of 8 bits (program.h): their codes into the saved memory, and their rounding
 * into the workspace of backward. */
#include "layer/work.h"

static code_kind kind_of(const layer_work *work) { return work->c->shape->saved == SAVED_FP8 ? CODES_FP8 : CODES_INT8; }

/* The rows that are computed: their codes, and the largest magnitudes of their groups. */
typedef struct kept_rows { int64_t rows, cols; uint8_t *codes; char *largest; } kept_rows;

static kept_rows rows_of(const layer_work *work, int t)
{
    const layer_tensor *of = &work->l->program.tensor[t];
    char *at = work->saved + work->l->saved_at[t];
    const int64_t row = work->row * of->times;
    return (kept_rows){work->rows * of->times, of->cols, (uint8_t *)at + row * of->cols,
                       column(at + layer_code_bytes(&work->l->program, work->c->shape, t), row * code_groups(of->cols), work->type)};
}

static void encode(const layer_work *work, int t, const void *x, bool keep, void *out)
{
    const kept_rows r = rows_of(work, t);
    queue_submit(work->c->queue, &(op){OP_ENCODE, .encode = {
        .kind = kind_of(work), .type = work->type, .rows = r.rows, .cols = r.cols, .x = x, .codes = keep ? r.codes : NULL,
        .largest = keep ? r.largest : NULL, .out = out}});
}

static void decode(const layer_work *work, int t, void *out)
{
    const kept_rows r = rows_of(work, t);
    queue_submit(work->c->queue, &(op){OP_DECODE, .decode = {
        .kind = kind_of(work), .type = work->type, .rows = r.rows, .cols = r.cols, .codes = r.codes, .largest = r.largest, .out = out}});
}

void kept_run(const layer_work *work, int t)
{
    void *at = tensor(work, t);
    if (work->pass == PASS_KEEP)
        encode(work, t, at, true, NULL);
    else if (work->pass == PASS_ROUND)
        encode(work, t, at, false, at);
    else if (work->l->coded[t])
        decode(work, t, at);
    else
        encode(work, t, work->saved + work->l->saved_at[t] + row_offset(work, t), false, at);
}
