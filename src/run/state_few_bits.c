/* state_few_bits.c - matrices in few bits as part of a state: their bytes in the chunks, written by quantizing and read by decoding. */
#include "run/state_parts.h"

#include "model/quantize.h"
#include "model/storage.h"

#include <stdlib.h>
#include <string.h>

bool state_in_few_bits(const state *s, int kind, int index)
{
    return kind == STATE_MASTER && s->in->model->params[index].storage != STORAGE_PLAIN;
}

static const piece *whole_piece(const state *s, int index) { return &s->in->packing->pieces[s->in->packing->piece_of_param[index]]; }

/* The byte of the chunk where a piece's bytes begin. */
static int64_t piece_at(const state *s, const piece *p) { return p->offset * (int64_t)dtype_bytes(s->in->packing->type); }

int state_put_bytes(void *arg, uint64_t at, const void *bytes, size_t n, pt_error *e)
{
    const quantizing *q = arg;
    const piece *p = whole_piece(q->s, q->index);
    const int64_t from = piece_at(q->s, p) + (int64_t)at;
    int64_t begin, end;
    chunk_memory c;
    if (q->copy) {
        memcpy(q->copy + at, bytes, n);
        return 0;
    }
    state_kept_range(q->s, p->chunk, &begin, &end);
    const int64_t first = from > begin ? from : begin, last = from + (int64_t)n < end ? from + (int64_t)n : end;
    int failed = first < last ? state_chunk_open(q->s, p->chunk, true, &c, e) : 0;
    if (failed || first >= last)
        return failed;
    const char *own = (const char *)bytes + (first - from);
    if (c.away)
        return executor_move(q->s->x, c.weights + (first - begin), own, (size_t)(last - first), e);
    memcpy(c.weights + (first - begin), own, (size_t)(last - first));
    return 0;
}

static int rows_of_memory(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const quantizing *q = arg;
    const int64_t cols = q->s->in->model->params[index].cols;
    memcpy(out, q->values + row0 * cols, (size_t)(n_rows * cols) * sizeof *out);
    return 0;
}

int state_write_few_bits(state *s, int index, const float *values, pt_error *e)
{
    quantizing q = {s, index, values, NULL, NULL};
    return quantize(s->in->model, index, &(quantize_io){rows_of_memory, state_put_bytes, NULL, &q}, (float *)s->spare,
                    state_half_of_spare(s) / sizeof(float), e);
}

/* Bytes of the weights kept here, counted from the beginning of the chunk. */
static int read_own_bytes(state *s, int chunk, int64_t from, int64_t n, char *out, pt_error *e)
{
    int64_t begin, end;
    chunk_memory c;
    state_kept_range(s, chunk, &begin, &end);
    if (from < begin || n > end - from)
        return pt_fail(e, PT_FAILED, "bytes of chunk %d were asked for that are not kept here; this is a bug", chunk);
    int failed = state_chunk_open(s, chunk, false, &c, e);
    if (!failed && c.away)
        return executor_move(s->x, out, c.weights + (from - begin), (size_t)n, e);
    if (!failed)
        memcpy(out, c.weights + (from - begin), (size_t)n);
    return failed;
}

static int read_bytes(state *s, int chunk, int64_t from, int64_t n, char *out, pt_error *e)
{
    const packing *k = s->in->packing;
    if (!s->in->plan->chunks[chunk].sharded)
        return state_reads(s) ? read_own_bytes(s, chunk, from, n, out, e) : 0;
    int failed = 0;
    for (int r = 0; r < k->ranks && !failed; r++) {
        int64_t begin = shard_start(k, chunk, r) * (int64_t)dtype_bytes(k->type);
        int64_t end = shard_start(k, chunk, r + 1) * (int64_t)dtype_bytes(k->type);
        begin = begin > from ? begin : from;
        end = end < from + n ? end : from + n;
        if (begin >= end)
            continue;
        if (r == k->rank)
            failed = read_own_bytes(s, chunk, begin, end - begin, out + (begin - from), e);
        if (!failed)
            failed = state_pass(s, r, out + (begin - from), (size_t)(end - begin), e);
    }
    return failed;
}

/* Rows of a matrix in few bits, read from a decoded copy. */
int state_read_few_bits(state *s, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const param *p = &s->in->model->params[index];
    const piece *k = whole_piece(s, index);
    char *copy = malloc(storage_bytes(p));
    int failed = copy ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = read_bytes(s, k->chunk, piece_at(s, k), (int64_t)storage_bytes(p), copy, e);
    if (!failed && state_reads(s))
        dequantize_rows(p, copy, row0, n_rows, out);
    free(copy);
    return failed;
}
