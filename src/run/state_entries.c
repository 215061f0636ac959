/* state_entries.c - entries of a parameter, wherever the plan and the ranks keep them. */
#include "run/state_parts.h"

#include <string.h>

enum { BOUNCE_ELEMENTS = STATE_BOUNCE_BYTES / 2 / sizeof(bf16) }; /* [high halves][low halves] */

/* ---- entries in memory ---- */

/* Entries `at` .. of a piece's masters: their upper halves in the chunk's weights, and their low halves (NULL: none). */
typedef struct master { pt_dtype type; char *weights; uint16_t *low; } master;

static int64_t own_first(const state *state, const piece *piece)
{
    return (piece->own_row0 - piece->row0) * state->in->model->params[piece->param].cols;
}

static master master_of(const state *state, const chunk_memory *c, const piece *piece, int64_t at)
{
    const int64_t own = at - own_first(state, piece), values = piece->own_rows * state->in->model->params[piece->param].cols;
    const bool is_own = own >= 0 && own < values; /* values that another rank updates have no low halves here */
    const packing *packing = state->in->packing;
    pt_dtype type = param_type(&state->in->model->params[piece->param], packing->type);
    char *weights = c->weights + (size_t)(piece->offset - kept_weight_start(state->in, piece->chunk)) * dtype_bytes(packing->type) +
                    (size_t)at * dtype_bytes(type);
    return (master){type, weights, type == PT_BF16 && c->states && packing->chunks[piece->chunk].low &&
                    is_own ? (uint16_t *)(c->states + piece->low) + own : NULL};
}

static void read_master(const master *m, int64_t n, float *out)
{
    const bf16 *hi = (const bf16 *)m->weights;
    if (m->type == PT_F32)
        memcpy(out, m->weights, (size_t)n * sizeof *out);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = m->low ? master_join(hi[i], m->low[i]) : bf16_to_f32(hi[i]);
}

static void write_master(const master *m, int64_t n, const float *in)
{
    bf16 *hi = (bf16 *)m->weights;
    uint16_t unused;
    if (m->type == PT_F32)
        memcpy(m->weights, in, (size_t)n * sizeof *in);
    else
        for (int64_t i = 0; i < n; i++)
            master_split(in[i], &hi[i], m->low ? &m->low[i] : &unused);
}

/* Entries `at` .. of a piece in a slab. */
typedef struct kept { pt_dtype type; char *entries; } kept;

static kept kept_of(const state *state, const chunk_memory *c, int kind, const piece *piece, int64_t at)
{
    const update_rule *r = optimizer_rule(state->in->packing->optimizer, &state->in->model->params[piece->param]);
    const int k = rule_find(r, state_name(state->in, kind));
    const size_t own = (size_t)(r->slabs[k].of_part ? at : at - own_first(state, piece) / r->slabs[k].values);
    return (kept){r->slabs[k].type, c->states + piece->slab[k] + own * dtype_bytes(r->slabs[k].type)};
}

static void read_kept(const kept *m, int64_t n, float *out)
{
    if (m->type == PT_F32)
        memcpy(out, m->entries, (size_t)n * sizeof *out);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const uint8_t *)m->entries)[i];
}

static void write_kept(const kept *m, int64_t n, const float *in)
{
    if (m->type == PT_F32)
        memcpy(m->entries, in, (size_t)n * sizeof *in);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)m->entries)[i] = (uint8_t)in[i];
}

/* ---- entries on a device: through the bounce buffer, except fp32 as stored ---- */

static int move(state *state, bool write, void *there, void *here, size_t bytes, pt_error *e)
{
    return write ? executor_move(state->x, there, here, bytes, e) : executor_move(state->x, here, there, bytes, e);
}

static int move_master(state *state, bool write, const chunk_memory *c, const piece *piece, int64_t at, int64_t n, float *values,
                       pt_error *e)
{
    master m = master_of(state, c, piece, at);
    if (m.type == PT_F32)
        return move(state, write, m.weights, values, (size_t)n * sizeof *values, e);
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += BOUNCE_ELEMENTS) {
        int64_t part = n - done < BOUNCE_ELEMENTS ? n - done : BOUNCE_ELEMENTS;
        size_t bytes = (size_t)part * sizeof(bf16);
        m = master_of(state, c, piece, at + done);
        master near = {m.type, state->bounce, m.low ? (uint16_t *)(state->bounce + STATE_BOUNCE_BYTES / 2) : NULL};
        if (write)
            write_master(&near, part, values + done);
        failed = move(state, write, m.weights, near.weights, bytes, e);
        if (!failed && m.low)
            failed = move(state, write, m.low, near.low, bytes, e);
        if (!failed && !write)
            read_master(&near, part, values + done);
    }
    return failed;
}

static int move_kept(state *state, bool write, int kind, const chunk_memory *c, const piece *piece, int64_t at, int64_t n, float *values,
                     pt_error *e)
{
    kept m = kept_of(state, c, kind, piece, at);
    if (m.type == PT_F32)
        return move(state, write, m.entries, values, (size_t)n * sizeof *values, e);
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += STATE_BOUNCE_BYTES) {
        int64_t part = n - done < STATE_BOUNCE_BYTES ? n - done : STATE_BOUNCE_BYTES;
        kept near = {m.type, state->bounce};
        if (write)
            write_kept(&near, part, values + done);
        failed = move(state, write, m.entries + done, state->bounce, (size_t)part, e);
        if (!failed && !write)
            read_kept(&near, part, values + done);
    }
    return failed;
}

/* ---- entries of a piece ---- */

static int use_piece(state *state, bool write, int kind, const piece *piece, int64_t at, int64_t n, float *values, pt_error *e)
{
    chunk_memory c;
    int failed = state_chunk_open(state, piece->chunk, write, &c, e);
    if (failed)
        return failed;
    if (c.away)
        return kind == STATE_MASTER ? move_master(state, write, &c, piece, at, n, values, e)
                                    : move_kept(state, write, kind, &c, piece, at, n, values, e);
    if (kind == STATE_MASTER) {
        const master m = master_of(state, &c, piece, at);
        write ? write_master(&m, n, values) : read_master(&m, n, values);
    } else {
        const kept m = kept_of(state, &c, kind, piece, at);
        write ? write_kept(&m, n, values) : read_kept(&m, n, values);
    }
    return 0;
}

/* ---- entries of a parameter ---- */

/* The part begin .. end of a piece's entries that rank `r` keeps. All ranks have the compute type's half of masters, unless sharded. */
static int use_share(state *state, bool write, int kind, const piece *piece, int r, int64_t begin, int64_t end, float *values, pt_error *e)
{
    const bool own = r == state->in->packing->rank;
    if (begin >= end)
        return 0;
    int failed = own || (write && kind == STATE_MASTER && !state->in->plan->chunks[piece->chunk].sharded)
                     ? use_piece(state, write, kind, piece, begin, end - begin, values + begin, e)
                     : 0;
    return failed || write ? failed : state_pass(state, r, values + begin, (size_t)(end - begin) * sizeof *values, e);
}

/* Visits the part of each piece in some entries, rank by rank. */
static int use_entries(state *state, bool write, int kind, int index, int64_t from, int64_t n, float *values, pt_error *e)
{
    const packing *packing = state->in->packing;
    int failed = 0;
    for (int i = packing->piece_of_param[index]; i < packing->piece_of_param[index + 1]; i++) {
        const piece *piece = &packing->pieces[i];
        const int64_t first = state_first_entry(state, kind, piece);
        for (int r = 0; r < packing->ranks && !failed; r++) {
            const kept_entries kept = state_kept_entries(state, kind, piece, r);
            const int64_t begin = from - first > kept.begin ? from - first : kept.begin;
            const int64_t end = from + n - first < kept.begin + kept.n ? from + n - first : kept.begin + kept.n;
            failed = use_share(state, write, kind, piece, r, begin, end, values + (first - from), e);
        }
    }
    return failed;
}

int state_read(state *state, int kind, int index, int64_t from, int64_t n, float *out, pt_error *e)
{
    const int64_t cols = state->in->model->params[index].cols;
    if (state_in_few_bits(state, kind, index))
        return state_read_few_bits(state, index, from / cols, n / cols, out, e);
    return use_entries(state, false, kind, index, from, n, out, e);
}

int state_write(state *state, int kind, int index, int64_t from, int64_t n, const float *in, pt_error *e)
{
    if (state_in_few_bits(state, kind, index))
        return state_write_few_bits(state, index, in, e);
    return use_entries(state, true, kind, index, from, n, (float *)in, e);
}

int state_each_own(state *state, int kind, int index, state_entries_fn fn, void *arg, pt_error *e)
{
    const packing *packing = state->in->packing;
    const slab *slab = state_slab(state->in, kind, index);
    const int64_t cols = slab && !slab_is_of_values(slab) ? 1 : state->in->model->params[index].cols;
    const int64_t step = (int64_t)(state->spare_bytes / sizeof(float)) / cols * cols; /* not 0: exporting needs more */
    float *values = (float *)state->spare;
    int failed = 0;
    for (int i = packing->piece_of_param[index]; i < packing->piece_of_param[index + 1]; i++) {
        const piece *piece = &packing->pieces[i];
        const kept_entries own = state_kept_entries(state, kind, piece, packing->rank);
        for (int64_t at = 0; at < own.n && !failed; at += step) {
            const int64_t n = own.n - at < step ? own.n - at : step;
            failed = use_piece(state, false, kind, piece, own.begin + at, n, values, e);
            if (!failed)
                fn(arg, state_first_entry(state, kind, piece) + own.begin + at, n, values);
        }
    }
    return failed;
}
