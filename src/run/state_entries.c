/* state_entries.c - entries of a parameter, wherever the plan and the ranks keep them. */
#include "run/state_parts.h"

#include <string.h>

enum { BOUNCE_ELEMENTS = STATE_BOUNCE_BYTES / 2 / sizeof(bf16) }; /* [high halves][low halves] */

/* ---- entries in memory ---- */

/* Entries `at` .. of a piece's masters: their upper halves in the chunk's weights, and their low halves (NULL: none). */
typedef struct master { pt_dtype type; char *weights; uint16_t *low; } master;

static int64_t own_first(const state *s, const piece *p) { return (p->own_row0 - p->row0) * s->in->model->params[p->param].cols; }

static master master_of(const state *s, const chunk_memory *c, const piece *p, int64_t at)
{
    const int64_t own = at - own_first(s, p), values = p->own_rows * s->in->model->params[p->param].cols;
    const bool is_own = own >= 0 && own < values; /* values that another rank updates have no low halves here */
    const packing *k = s->in->packing;
    pt_dtype type = param_type(&s->in->model->params[p->param], k->type);
    char *weights = c->weights + (size_t)(p->offset - kept_weight_start(s->in, p->chunk)) * dtype_bytes(k->type) +
                    (size_t)at * dtype_bytes(type);
    return (master){type, weights, type == PT_BF16 && c->states && k->chunks[p->chunk].low &&
                    is_own ? (uint16_t *)(c->states + p->low) + own : NULL};
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

static kept kept_of(const state *s, const chunk_memory *c, int kind, const piece *p, int64_t at)
{
    const update_rule *r = optimizer_rule(s->in->packing->optimizer, &s->in->model->params[p->param]);
    const int k = rule_find(r, state_name(s->in, kind));
    const size_t own = (size_t)(r->slabs[k].of_part ? at : at - own_first(s, p) / r->slabs[k].values);
    return (kept){r->slabs[k].type, c->states + p->slab[k] + own * dtype_bytes(r->slabs[k].type)};
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

static int move(state *s, bool write, void *there, void *here, size_t bytes, pt_error *e)
{
    return write ? executor_move(s->x, there, here, bytes, e) : executor_move(s->x, here, there, bytes, e);
}

static int move_master(state *s, bool write, const chunk_memory *c, const piece *p, int64_t at, int64_t n, float *values, pt_error *e)
{
    master m = master_of(s, c, p, at);
    if (m.type == PT_F32)
        return move(s, write, m.weights, values, (size_t)n * sizeof *values, e);
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += BOUNCE_ELEMENTS) {
        int64_t part = n - done < BOUNCE_ELEMENTS ? n - done : BOUNCE_ELEMENTS;
        size_t bytes = (size_t)part * sizeof(bf16);
        m = master_of(s, c, p, at + done);
        master near = {m.type, s->bounce, m.low ? (uint16_t *)(s->bounce + STATE_BOUNCE_BYTES / 2) : NULL};
        if (write)
            write_master(&near, part, values + done);
        failed = move(s, write, m.weights, near.weights, bytes, e);
        if (!failed && m.low)
            failed = move(s, write, m.low, near.low, bytes, e);
        if (!failed && !write)
            read_master(&near, part, values + done);
    }
    return failed;
}

static int move_kept(state *s, bool write, int kind, const chunk_memory *c, const piece *p, int64_t at, int64_t n, float *values,
                     pt_error *e)
{
    kept m = kept_of(s, c, kind, p, at);
    if (m.type == PT_F32)
        return move(s, write, m.entries, values, (size_t)n * sizeof *values, e);
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += STATE_BOUNCE_BYTES) {
        int64_t part = n - done < STATE_BOUNCE_BYTES ? n - done : STATE_BOUNCE_BYTES;
        kept near = {m.type, s->bounce};
        if (write)
            write_kept(&near, part, values + done);
        failed = move(s, write, m.entries + done, s->bounce, (size_t)part, e);
        if (!failed && !write)
            read_kept(&near, part, values + done);
    }
    return failed;
}

/* ---- entries of a piece ---- */

static int use_piece(state *s, bool write, int kind, const piece *p, int64_t at, int64_t n, float *values, pt_error *e)
{
    chunk_memory c;
    int failed = state_chunk_open(s, p->chunk, write, &c, e);
    if (failed)
        return failed;
    if (c.away)
        return kind == STATE_MASTER ? move_master(s, write, &c, p, at, n, values, e) : move_kept(s, write, kind, &c, p, at, n, values, e);
    if (kind == STATE_MASTER) {
        const master m = master_of(s, &c, p, at);
        write ? write_master(&m, n, values) : read_master(&m, n, values);
    } else {
        const kept m = kept_of(s, &c, kind, p, at);
        write ? write_kept(&m, n, values) : read_kept(&m, n, values);
    }
    return 0;
}

/* ---- entries of a parameter ---- */

/* The part begin .. end of a piece's entries that rank `r` keeps. All ranks have the compute type's half of masters, unless sharded. */
static int use_share(state *s, bool write, int kind, const piece *p, int r, int64_t begin, int64_t end, float *values, pt_error *e)
{
    const bool own = r == s->in->packing->rank;
    if (begin >= end)
        return 0;
    int failed = own || (write && kind == STATE_MASTER && !s->in->plan->chunks[p->chunk].sharded)
                     ? use_piece(s, write, kind, p, begin, end - begin, values + begin, e)
                     : 0;
    return failed || write ? failed : state_pass(s, r, values + begin, (size_t)(end - begin) * sizeof *values, e);
}

/* Visits the part of each piece in some entries, rank by rank. */
static int use_entries(state *s, bool write, int kind, int index, int64_t from, int64_t n, float *values, pt_error *e)
{
    const packing *k = s->in->packing;
    int failed = 0;
    for (int i = k->piece_of_param[index]; i < k->piece_of_param[index + 1]; i++) {
        const piece *p = &k->pieces[i];
        const int64_t first = state_first_entry(s, kind, p);
        for (int r = 0; r < k->ranks && !failed; r++) {
            const kept_entries kept = state_kept_entries(s, kind, p, r);
            const int64_t begin = from - first > kept.begin ? from - first : kept.begin;
            const int64_t end = from + n - first < kept.begin + kept.n ? from + n - first : kept.begin + kept.n;
            failed = use_share(s, write, kind, p, r, begin, end, values + (first - from), e);
        }
    }
    return failed;
}

int state_read(state *s, int kind, int index, int64_t from, int64_t n, float *out, pt_error *e)
{
    const int64_t cols = s->in->model->params[index].cols;
    if (state_in_few_bits(s, kind, index))
        return state_read_few_bits(s, index, from / cols, n / cols, out, e);
    return use_entries(s, false, kind, index, from, n, out, e);
}

int state_write(state *s, int kind, int index, int64_t from, int64_t n, const float *in, pt_error *e)
{
    if (state_in_few_bits(s, kind, index))
        return state_write_few_bits(s, index, in, e);
    return use_entries(s, true, kind, index, from, n, (float *)in, e);
}

int state_each_own(state *s, int kind, int index, state_entries_fn fn, void *arg, pt_error *e)
{
    const packing *k = s->in->packing;
    const slab *l = state_slab(s->in, kind, index);
    const int64_t cols = l && !slab_is_of_values(l) ? 1 : s->in->model->params[index].cols;
    const int64_t step = (int64_t)(s->spare_bytes / sizeof(float)) / cols * cols; /* not 0: exporting needs more */
    float *values = (float *)s->spare;
    int failed = 0;
    for (int i = k->piece_of_param[index]; i < k->piece_of_param[index + 1]; i++) {
        const piece *p = &k->pieces[i];
        const kept_entries own = state_kept_entries(s, kind, p, k->rank);
        for (int64_t at = 0; at < own.n && !failed; at += step) {
            const int64_t n = own.n - at < step ? own.n - at : step;
            failed = use_piece(s, false, kind, p, own.begin + at, n, values, e);
            if (!failed)
                fn(arg, state_first_entry(s, kind, p) + own.begin + at, n, values);
        }
    }
    return failed;
}
