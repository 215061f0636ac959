/* state_few_bits.c - matrices in few bits as part of a state: their bytes in the chunks, written by quantizing and read by decoding. */
#include "run/state_parts.h"

#include "model/quantize.h"
#include "model/storage.h"

#include <stdlib.h>
#include <string.h>

bool state_in_few_bits(const state *state, int kind, int index)
{
    return kind == STATE_MASTER && state->in->model->params[index].storage != STORAGE_PLAIN;
}

/* The byte of the chunk where a piece's bytes begin. */
static int64_t piece_at(const state *state, const piece *piece) { return piece->offset * (int64_t)dtype_bytes(state->in->packing->type); }

/* Bytes that lie together in a matrix of one piece, and in one of the pieces: `whole` and `at` are where. */
typedef int (*few_bits_fn)(void *arg, const piece *p, uint64_t whole, uint64_t at, uint64_t n, pt_error *e);

/* Calls fn for a slab of a part, from byte `begin` of the whole matrix to `end`, in each piece that has some of it. */
static int each_piece(const state *state, int index, int part, int slab, uint64_t begin, uint64_t end, few_bits_fn fn, void *arg,
                      pt_error *e)
{
    const packing *packing = state->in->packing;
    const param *p = &state->in->model->params[index];
    const uint64_t first = storage_slab_at(p, part, slab);
    int failed = 0;
    for (int i = packing->piece_of_param[index]; i < packing->piece_of_param[index + 1] && !failed; i++) {
        const storage_rows held = {packing->pieces[i].row0, packing->pieces[i].rows};
        const uint64_t bytes = storage_rows_slab_bytes(p, held, part, slab);
        if (!bytes)
            continue;
        const uint64_t here = first + storage_rows_skipped(p, held, part, slab);
        const uint64_t from = begin > here ? begin : here, to = end < here + bytes ? end : here + bytes;
        if (from < to)
            failed = fn(arg, &packing->pieces[i], from, storage_rows_slab_at(p, held, part, slab) + (from - here), to - from, e);
    }
    return failed;
}

/* The same of all slabs. What lies between them means nothing. */
static int each_range(const state *state, int index, uint64_t begin, uint64_t end, few_bits_fn fn, void *arg, pt_error *e)
{
    const param *p = &state->in->model->params[index];
    uint64_t at = 0;
    int failed = 0;
    for (int part = 0; part < p->parts && at < end; part++)
        for (int slab = 0; slab < STORAGE_SLABS && at < end && !failed; slab++) {
            const uint64_t bytes = storage_slab_bytes(p, part, slab);
            if (at + bytes > begin)
                failed = each_piece(state, index, part, slab, begin, end, fn, arg, e);
            at += align_up(bytes, STORAGE_LINE);
        }
    return failed;
}

typedef struct putting { state *s; const char *bytes; uint64_t at; } putting;

static int put_range(void *arg, const piece *piece, uint64_t whole, uint64_t at, uint64_t n, pt_error *e)
{
    const putting *x = arg;
    const int64_t from = piece_at(x->s, piece) + (int64_t)at;
    int64_t begin, end;
    chunk_memory c;
    state_kept_range(x->s, piece->chunk, &begin, &end);
    const int64_t first = from > begin ? from : begin, last = from + (int64_t)n < end ? from + (int64_t)n : end;
    int failed = first < last ? state_chunk_open(x->s, piece->chunk, true, &c, e) : 0;
    if (failed || first >= last)
        return failed;
    const char *own = x->bytes + (whole - x->at) + (first - from);
    if (c.away)
        return executor_move(x->s->x, c.weights + (first - begin), own, (size_t)(last - first), e);
    memcpy(c.weights + (first - begin), own, (size_t)(last - first));
    return 0;
}

int state_put_bytes(void *arg, uint64_t at, const void *bytes, size_t n, pt_error *e)
{
    const quantizing *q = arg;
    if (q->copy) {
        memcpy(q->copy + at, bytes, n);
        return 0;
    }
    return each_range(q->s, q->index, at, at + n, put_range, &(putting){q->s, bytes, at}, e);
}

static int rows_of_memory(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const quantizing *q = arg;
    const int64_t cols = q->s->in->model->params[index].cols;
    memcpy(out, q->values + row0 * cols, (size_t)(n_rows * cols) * sizeof *out);
    return 0;
}

int state_write_few_bits(state *state, int index, const float *values, pt_error *e)
{
    quantizing q = {state, index, values, NULL, NULL};
    return quantize(state->in->model, index, &(quantize_io){rows_of_memory, state_put_bytes, NULL, &q}, (float *)state->spare,
                    state_half_of_spare(state) / sizeof(float), e);
}

/* Bytes of the weights kept here, counted from the beginning of the chunk. */
static int read_own_bytes(state *state, int chunk, int64_t from, int64_t n, char *out, pt_error *e)
{
    int64_t begin, end;
    chunk_memory c;
    state_kept_range(state, chunk, &begin, &end);
    if (from < begin || n > end - from)
        return pt_fail(e, PT_FAILED, "bytes of chunk %d were asked for that are not kept here; this is a bug", chunk);
    int failed = state_chunk_open(state, chunk, false, &c, e);
    if (!failed && c.away)
        return executor_move(state->x, out, c.weights + (from - begin), (size_t)n, e);
    if (!failed)
        memcpy(out, c.weights + (from - begin), (size_t)n);
    return failed;
}

static int read_bytes(state *state, int chunk, int64_t from, int64_t n, char *out, pt_error *e)
{
    const packing *packing = state->in->packing;
    if (!state->in->plan->chunks[chunk].sharded)
        return state_reads(state) ? read_own_bytes(state, chunk, from, n, out, e) : 0;
    int failed = 0;
    for (int r = 0; r < packing->ranks && !failed; r++) {
        int64_t begin = shard_start(packing, chunk, r) * (int64_t)dtype_bytes(packing->type);
        int64_t end = shard_start(packing, chunk, r + 1) * (int64_t)dtype_bytes(packing->type);
        begin = begin > from ? begin : from;
        end = end < from + n ? end : from + n;
        if (begin >= end)
            continue;
        if (r == packing->rank)
            failed = read_own_bytes(state, chunk, begin, end - begin, out + (begin - from), e);
        if (!failed)
            failed = state_pass(state, r, out + (begin - from), (size_t)(end - begin), e);
    }
    return failed;
}

typedef struct taking { state *s; char *copy; } taking;

static int take_range(void *arg, const piece *piece, uint64_t whole, uint64_t at, uint64_t n, pt_error *e)
{
    const taking *x = arg;
    return read_bytes(x->s, piece->chunk, piece_at(x->s, piece) + (int64_t)at, (int64_t)n, x->copy + whole, e);
}

/* Rows of a matrix in few bits, read from a decoded copy. */
int state_read_few_bits(state *state, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const param *p = &state->in->model->params[index];
    char *copy = malloc(storage_bytes(p));
    int failed = copy ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = each_range(state, index, 0, storage_bytes(p), take_range, &(taking){state, copy}, e);
    if (!failed && state_reads(state))
        dequantize_rows(p, copy, row0, n_rows, out);
    free(copy);
    return failed;
}
