#include "run/state_parts.h"

#include "base/sum.h"
#include "comm/comm.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/prequantized.h"
#include "model/quantize.h"
#include "model/weights.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE_BYTES = 64 << 20 }; /* more would not make reading and writing faster */
enum { BOUNCE_BYTES = 1 << 20, BOUNCE_ELEMENTS = BOUNCE_BYTES / 2 / sizeof(bf16) }; /* [high halves][low halves] */

/* ---- kinds ---- */

int state_kinds(const schedule_input *in)
{
    const char *names[OPTIMIZER_STATES];
    return 1 + optimizer_states(in->packing->optimizer, names);
}

const char *state_name(const schedule_input *in, int kind)
{
    const char *names[OPTIMIZER_STATES];
    optimizer_states(in->packing->optimizer, names);
    return kind == STATE_MASTER ? "master" : names[kind - 1];
}

const slab *state_slab(const schedule_input *in, int kind, int index)
{
    const update_rule *r = optimizer_rule(in->packing->optimizer, &in->model->params[index]);
    const int k = kind == STATE_MASTER ? -1 : rule_find(r, state_name(in, kind));
    return k < 0 ? NULL : &r->slabs[k];
}

static int64_t values_of(const schedule_input *in, int index) { return in->model->params[index].rows * in->model->params[index].cols; }

int64_t state_entries(const schedule_input *in, int kind, int index)
{
    const slab *l = state_slab(in, kind, index);
    return kind == STATE_MASTER ? values_of(in, index) : l ? slab_entries(l, values_of(in, index)) : 0;
}

/* ---- chunks ---- */

typedef struct chunk_memory { char *weights, *states; bool away; } chunk_memory; /* away: accessible only by copies */

static int window_disk(state *s, bool write, pt_error *e)
{
    const packing *k = s->in->packing;
    uint64_t at;
    const uint64_t weights = kept_weight_bytes(s->in, s->chunk);
    executor_placement(s->x, kept_weights(s->in, s->chunk), s->chunk, &at);
    int failed = executor_disk(s->x, write, at, s->window, weights, e);
    if (failed || !s->in->training || !chunk_state_bytes(k, s->chunk))
        return failed;
    executor_placement(s->x, OBJECT_STATES, s->chunk, &at);
    return executor_disk(s->x, write, at, s->window + weights, chunk_state_bytes(k, s->chunk), e);
}

static int window_close(state *s, pt_error *e)
{
    int failed = s->chunk >= 0 && s->changed ? window_disk(s, true, e) : 0;
    s->chunk = -1;
    s->changed = false;
    return failed;
}

static int window_open(state *s, pt_error *e)
{
    const packing *k = s->in->packing;
    if (!s->fresh || !s->fresh[s->chunk])
        return window_disk(s, false, e);
    memset(s->window, 0, kept_weight_bytes(s->in, s->chunk) + (s->in->training ? chunk_state_bytes(k, s->chunk) : 0));
    s->fresh[s->chunk] = false;
    s->changed = true;
    return 0;
}

static int chunk_open(state *s, int chunk, bool change, chunk_memory *out, pt_error *e)
{
    uint64_t at;
    if (s->in->plan->chunks[chunk].placement != TIER_DISK) {
        out->weights = executor_placement(s->x, kept_weights(s->in, chunk), chunk, &at);
        out->states = s->in->training ? executor_placement(s->x, OBJECT_STATES, chunk, &at) : NULL;
        out->away = s->bounce && s->in->plan->chunks[chunk].placement == TIER_DEVICE;
        return 0;
    }
    int failed = 0;
    if (s->chunk != chunk) {
        failed = window_close(s, e);
        s->chunk = chunk;
        if (!failed)
            failed = window_open(s, e);
        if (failed)
            s->chunk = -1;
    }
    s->changed |= change;
    out->weights = s->window;
    out->states = s->window + kept_weight_bytes(s->in, chunk);
    out->away = false;
    return failed;
}

void state_open(state *s, executor *x)
{
    *s = (state){.x = x, .in = executor_input_of(x), .chunk = -1};
    uint64_t taken = schedule_window_bytes(s->in), bytes = taken + BOUNCE_BYTES + SPARE_BYTES;
    s->window = executor_scratch(x, &bytes);
    if (s->in->host_tier) {
        s->bounce = s->window + taken;
        taken += BOUNCE_BYTES;
    }
    s->spare = s->window + taken;
    s->spare_bytes = bytes - taken;
}

int state_close(state *s, pt_error *e) { return window_close(s, e); }

/* ---- entries ---- */

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
    const size_t own = (size_t)(at - own_first(s, p) / r->slabs[k].values);
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
        master near = {m.type, s->bounce, m.low ? (uint16_t *)(s->bounce + BOUNCE_BYTES / 2) : NULL};
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
    for (int64_t done = 0; done < n && !failed; done += BOUNCE_BYTES) {
        int64_t part = n - done < BOUNCE_BYTES ? n - done : BOUNCE_BYTES;
        kept near = {m.type, s->bounce};
        if (write)
            write_kept(&near, part, values + done);
        failed = move(s, write, m.entries + done, s->bounce, (size_t)part, e);
        if (!failed && !write)
            read_kept(&near, part, values + done);
    }
    return failed;
}

/* ---- matrices in few bits ---- */

bool state_in_few_bits(const state *s, int kind, int index)
{
    return kind == STATE_MASTER && s->in->model->params[index].storage != STORAGE_PLAIN;
}

static const piece *whole_piece(const state *s, int index) { return &s->in->packing->pieces[s->in->packing->piece_of_param[index]]; }

/* The byte of the chunk where a piece's bytes begin. */
static int64_t piece_at(const state *s, const piece *p) { return p->offset * (int64_t)dtype_bytes(s->in->packing->type); }

/* The bytes of the chunk that this rank keeps: all, or its shard. */
static void kept_range(const state *s, int chunk, int64_t *begin, int64_t *end)
{
    const packing *k = s->in->packing;
    const int64_t e = (int64_t)dtype_bytes(k->type);
    const bool sharded = s->in->plan->chunks[chunk].sharded;
    *begin = kept_weight_start(s->in, chunk) * e;
    *end = sharded ? shard_start(k, chunk, k->rank + 1) * e : (int64_t)chunk_weight_bytes(k, chunk);
}

/* copy: destination of the whole piece, instead of the chunk. */
typedef struct quantizing { state *s; int index; const float *values; const state_origin *origin; char *copy; } quantizing;

static int put_bytes(void *arg, uint64_t at, const void *bytes, size_t n, pt_error *e)
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
    kept_range(q->s, p->chunk, &begin, &end);
    const int64_t first = from > begin ? from : begin, last = from + (int64_t)n < end ? from + (int64_t)n : end;
    int failed = first < last ? chunk_open(q->s, p->chunk, true, &c, e) : 0;
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

size_t state_half_of_spare(const state *s) { return s->spare_bytes / 2 / 64 * 64; }

static int quantize_memory(state *s, int index, const float *values, pt_error *e)
{
    quantizing q = {s, index, values, NULL, NULL};
    return quantize(s->in->model, index, &(quantize_io){rows_of_memory, put_bytes, NULL, &q}, (float *)s->spare,
                    state_half_of_spare(s) / sizeof(float), e);
}

/* ---- entries anywhere ---- */

static int use_piece(state *s, bool write, int kind, const piece *p, int64_t at, int64_t n, float *values, pt_error *e)
{
    chunk_memory c;
    int failed = chunk_open(s, p->chunk, write, &c, e);
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

/* ---- other ranks ---- */

static int own_rank(const state *s) { return s->in->packing->rank; }

/* What rank `keeper` has, to the reader: `values` is room for it on both. */
static int pass(const state *s, int keeper, void *values, size_t bytes, pt_error *e)
{
    comm *c = executor_comm(s->x);
    if (keeper == s->reader || (own_rank(s) != keeper && own_rank(s) != s->reader))
        return 0;
    const comm_move move = own_rank(s) == keeper ? comm_send(s->reader, values, bytes) : comm_receive(keeper, values, bytes);
    return comm_exchange(c, &move, 1, e);
}

/* Bytes of the weights kept here, counted from the beginning of the chunk. */
static int read_own_bytes(state *s, int chunk, int64_t from, int64_t n, char *out, pt_error *e)
{
    int64_t begin, end;
    chunk_memory c;
    kept_range(s, chunk, &begin, &end);
    if (from < begin || n > end - from)
        return pt_fail(e, PT_FAILED, "bytes of chunk %d were asked for that are not kept here; this is a bug", chunk);
    int failed = chunk_open(s, chunk, false, &c, e);
    if (!failed && c.away)
        return executor_move(s->x, out, c.weights + (from - begin), (size_t)n, e);
    if (!failed)
        memcpy(out, c.weights + (from - begin), (size_t)n);
    return failed;
}

bool state_reads(const state *s) { return own_rank(s) == s->reader; }

/* Of a piece the entries that rank `r` keeps, from the piece's first one on. */
typedef struct kept_entries { int64_t begin, n; } kept_entries;

static kept_entries entries_of(const state *s, int kind, const piece *p, int r)
{
    static const slab one = {.values = 1};
    const packing *k = s->in->packing;
    const slab *l = kind == STATE_MASTER ? &one : state_slab(s->in, kind, p->param);
    const int64_t cols = s->in->model->params[p->param].cols;
    const piece_share share = packing_share(k, s->in->model, p, r);
    return (kept_entries){share.row0 * cols / l->values - p->row0 * cols / l->values, slab_entries(l, share.rows * cols)};
}

static int64_t first_entry(const state *s, int kind, const piece *p)
{
    const slab *l = kind == STATE_MASTER ? NULL : state_slab(s->in, kind, p->param);
    return p->row0 * s->in->model->params[p->param].cols / (l ? l->values : 1);
}

void state_choose_reader(state *s, int kind, int index, int64_t from, int64_t n)
{
    const packing *k = s->in->packing;
    int64_t kept[COMM_RANKS_MOST] = {0};
    s->reader = 0;
    for (int r = 0; r < k->ranks && s->spread; r++) {
        for (int i = k->piece_of_param[index]; i < k->piece_of_param[index + 1]; i++) {
            const kept_entries own = entries_of(s, kind, &k->pieces[i], r);
            const int64_t begin = first_entry(s, kind, &k->pieces[i]) + own.begin, end = begin + own.n;
            const int64_t common = (end < from + n ? end : from + n) - (begin > from ? begin : from);
            kept[r] += common > 0 ? common : 0;
        }
        s->reader = kept[r] > kept[s->reader] ? r : s->reader;
    }
}

int state_share(state *s, bool spread, pt_error *e)
{
    comm *c = executor_comm(s->x);
    uint64_t all[COMM_RANKS_MOST], own = s->spare_bytes;
    s->spread = spread && c;
    int failed = c ? comm_all_gather(c, &own, sizeof own, all, e) : 0;
    for (int r = 0; c && r < c->ranks && !failed; r++)
        s->spare_bytes = all[r] < s->spare_bytes ? (size_t)all[r] : s->spare_bytes;
    return failed;
}

/* ---- entries of a parameter ---- */

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
            failed = pass(s, r, out + (begin - from), (size_t)(end - begin), e);
    }
    return failed;
}

/* Rows of a matrix in few bits, read from a decoded copy. */
static int read_few_bits(state *s, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
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

/* The part begin .. end of a piece's entries that rank `r` keeps. All ranks have the compute type's half of masters, unless sharded. */
static int use_share(state *s, bool write, int kind, const piece *p, int r, int64_t begin, int64_t end, float *values, pt_error *e)
{
    const bool own = r == own_rank(s);
    if (begin >= end)
        return 0;
    int failed = own || (write && kind == STATE_MASTER && !s->in->plan->chunks[p->chunk].sharded)
                     ? use_piece(s, write, kind, p, begin, end - begin, values + begin, e)
                     : 0;
    return failed || write ? failed : pass(s, r, values + begin, (size_t)(end - begin) * sizeof *values, e);
}

/* Visits the part of each piece in some entries, rank by rank. */
static int use_entries(state *s, bool write, int kind, int index, int64_t from, int64_t n, float *values, pt_error *e)
{
    const packing *k = s->in->packing;
    int failed = 0;
    for (int i = k->piece_of_param[index]; i < k->piece_of_param[index + 1]; i++) {
        const piece *p = &k->pieces[i];
        const int64_t first = first_entry(s, kind, p);
        for (int r = 0; r < k->ranks && !failed; r++) {
            const kept_entries kept = entries_of(s, kind, p, r);
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
    return state_in_few_bits(s, kind, index) ? read_few_bits(s, index, from / cols, n / cols, out, e) : use_entries(s, false, kind, index,
        from, n, out, e);
}

int state_write(state *s, int kind, int index, int64_t from, int64_t n, const float *in, pt_error *e)
{
    return state_in_few_bits(s, kind, index) ? quantize_memory(s, index, in, e) : use_entries(s, true, kind, index, from, n,
        (float *)in, e);
}

int state_each_own(state *s, int kind, int index, state_entries_fn fn, void *arg, pt_error *e)
{
    const packing *k = s->in->packing;
    const slab *l = state_slab(s->in, kind, index);
    const int64_t cols = l && l->values > 1 ? 1 : s->in->model->params[index].cols;
    const int64_t step = (int64_t)(s->spare_bytes / sizeof(float)) / cols * cols; /* not 0: exporting needs more */
    float *values = (float *)s->spare;
    int failed = 0;
    for (int i = k->piece_of_param[index]; i < k->piece_of_param[index + 1]; i++) {
        const piece *p = &k->pieces[i];
        const kept_entries own = entries_of(s, kind, p, k->rank);
        for (int64_t at = 0; at < own.n && !failed; at += step) {
            const int64_t n = own.n - at < step ? own.n - at : step;
            failed = use_piece(s, false, kind, p, own.begin + at, n, values, e);
            if (!failed)
                fn(arg, first_entry(s, kind, p) + own.begin + at, n, values);
        }
    }
    return failed;
}

/* ---- whole states ---- */

uint64_t state_rows_sum(int index, int64_t row0, int64_t n_rows, int64_t cols, const float *values)
{
    uint64_t sum = 0;
    for (int64_t row = 0; row < n_rows; row++, values += cols)
        sum += sum_bytes((uint64_t)index + 1, (uint64_t)(row0 + row) + 1, values, (size_t)cols * sizeof *values);
    return sum;
}

/* States and paddings of chunks in memory. */
static int clear_memory(state *s, pt_error *e)
{
    const packing *k = s->in->packing;
    for (int c = 0; s->in->training && c < k->chunks_n; c++) {
        chunk_memory m;
        if (s->in->plan->chunks[c].placement == TIER_DISK)
            continue;
        const uint64_t states = chunk_state_bytes(k, c);
        int failed = chunk_open(s, c, true, &m, e);
        if (!failed && m.away) {
            if (states)
                failed = executor_move(s->x, m.states, NULL, states, e);
            if (!failed)
                failed = executor_move(s->x, m.weights, NULL, kept_weight_bytes(s->in, c), e);
        }
        if (failed)
            return failed;
        if (m.away)
            continue;
        if (states)
            memset(m.states, 0, states);
        memset(m.weights, 0, kept_weight_bytes(s->in, c));
    }
    return 0;
}

/* Random values of some rows. They depend on the row alone, so that all threads can compute them. */
typedef struct making { const model *m; uint64_t seed; int index; int64_t row, rows; float *out; } making;

static void *make_rows(void *arg)
{
    const making *x = arg;
    weights_init(x->m, x->seed, x->index, x->row, x->rows, x->out);
    return NULL;
}

static void init_rows(const model *m, uint64_t seed, int index, int64_t row, int64_t rows, int threads, float *out)
{
    enum { THREADS_MOST = 64, LITTLE = 1 << 14 };
    const int64_t cols = m->params[index].cols, most = rows * cols / LITTLE + 1;
    making part[THREADS_MOST];
    pthread_t thread[THREADS_MOST];
    bool begun[THREADS_MOST] = {false};
    int n = threads < 1 ? 1 : threads < THREADS_MOST ? threads : THREADS_MOST;
    n = n < most ? n : (int)most;
    for (int i = 0; i < n; i++) {
        int64_t from = rows * i / n, to = rows * (i + 1) / n;
        part[i] = (making){m, seed, index, row + from, to - from, out + from * cols};
        begun[i] = i + 1 < n && !pthread_create(&thread[i], NULL, make_rows, &part[i]);
        if (!begun[i])
            make_rows(&part[i]);
    }
    for (int i = 0; i < n; i++)
        if (begun[i])
            pthread_join(thread[i], NULL);
}

/* The reader has one half of the spare scratch. */
int state_read_origin(state *s, const state_origin *from, int index, int64_t row, int64_t rows, float *out, pt_error *e)
{
    const size_t half = state_half_of_spare(s);
    if (from->st)
        return weights_read(s->in->model, from->st, index, row, rows, out, s->spare + half, half, e);
    init_rows(s->in->model, from->seed, index, row, rows, executor_threads(s->x), out);
    return 0;
}

static int rows_of_origin(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const quantizing *q = arg;
    int failed = state_read_origin(q->s, q->origin, index, row0, n_rows, out, e);
    if (!failed && !q->copy)
        q->s->origin_sum += state_rows_sum(index, row0, n_rows, q->s->in->model->params[index].cols, out);
    return failed;
}

static int take_slab(const quantizing *q, const prequantized *from, int part, int slab, pt_error *e)
{
    const param *p = &q->s->in->model->params[q->index];
    const uint64_t bytes = storage_slab_bytes(p, part, slab), at = storage_slab_at(p, part, slab), room = state_half_of_spare(q->s);
    int failed = 0;
    for (uint64_t done = 0, n; done < bytes && !failed; done += n) {
        n = bytes - done < room ? bytes - done : room;
        failed = prequantized_take(from, slab, done, n, q->s->spare, e);
        if (!failed)
            failed = put_bytes((void *)q, at + done, q->s->spare, n, e);
        q->s->origin_sum += failed || q->copy ? 0 : sum_bytes((uint64_t)q->index + 1, at + done + 1, q->s->spare, n);
    }
    return failed;
}

/* Values that the files have in the same format are not decoded. */
static int take_stored(void *arg, int index, int part, pt_error *e)
{
    const quantizing *q = arg;
    const model *m = q->s->in->model;
    prequantized from;
    const int few = q->origin->st ? weights_in_few_bits(m, q->origin->st, index, part, &from, e) : 0;
    if (few <= 0 || from.format != m->params[index].storage)
        return few < 0 ? few : 0;
    int failed = 0;
    for (int slab = 0; slab < STORAGE_SLABS && !failed; slab++)
        failed = take_slab(q, &from, part, slab, e);
    return failed ? failed : 1;
}

static int fill_few_bits(state *s, int index, const state_origin *from, pt_error *e)
{
    quantizing q = {s, index, NULL, from, NULL};
    return quantize(s->in->model, index, &(quantize_io){rows_of_origin, put_bytes, take_stored, &q}, (float *)s->spare,
                    state_half_of_spare(s) / sizeof(float), e);
}

/* As many rows at a time as fit the other half of the spare scratch. */
static int fill_values(state *s, int kind, int index, const state_origin *from, bool summed, pt_error *e)
{
    const param *p = &s->in->model->params[index];
    float *values = (float *)s->spare;
    const int64_t step = (int64_t)(state_half_of_spare(s) / sizeof(float)) / p->cols;
    if (step < 1)
        return pt_fail(e, PT_FAILED, "a row of %lld values does not fit into %zu bytes", (long long)p->cols, state_half_of_spare(s));
    int failed = 0;
    for (int64_t row = 0; row < p->rows && !failed; row += step) {
        const int64_t rows = p->rows - row < step ? p->rows - row : step;
        failed = state_read_origin(s, from, index, row, rows, values, e);
        const uint64_t sum = !failed && (summed || executor_comm(s->x)) ? state_rows_sum(index, row, rows, p->cols, values) : 0;
        s->base_sum += summed ? sum : 0;
        s->read_sum += sum;
        if (!failed)
            failed = state_write(s, kind, index, row * p->cols, rows * p->cols, values, e);
    }
    return failed;
}

/* Parameter by parameter. */
int state_fill(state *s, int kind, const state_source *from, pt_error *e)
{
    const model *m = s->in->model;
    int failed = 0;
    for (int i = 0; i < m->params_n && !failed; i++) {
        const bool theirs = !m->params[i].trainable && (from->frozen || from->apart);
        const state_origin o = {theirs ? from->frozen : from->st, from->seed};
        if (state_in_few_bits(s, kind, i))
            failed = fill_few_bits(s, i, s->origin ? s->origin : &o, e);
        else if (state_entries(s->in, kind, i))
            failed = fill_values(s, kind, i, &o, from->apart && !m->params[i].trainable, e);
    }
    return failed;
}

/* Writes masters, and zeros for all other kinds. A chunk on the disk is written once without being read first: every chunk has a piece, and
 * fill writes all pieces. */
int state_begin(state *s, const state_source *from, pt_error *e)
{
    const int n = s->in->packing->chunks_n;
    s->fresh = malloc((size_t)n * sizeof *s->fresh);
    if (!s->fresh)
        return pt_fail(e, PT_FAILED, "out of memory");
    s->chunk = -1; /* whichever chunk is in the window */
    s->changed = false;
    for (int c = 0; c < n; c++)
        s->fresh[c] = s->in->plan->chunks[c].placement == TIER_DISK;
    int failed = clear_memory(s, e);
    if (!failed)
        failed = state_fill(s, STATE_MASTER, from, e);
    free(s->fresh);
    s->fresh = NULL;
    return failed;
}

static float row_norm(const float *row, int64_t n, pt_dtype type, bool few_bits)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        bf16 hi;
        uint16_t lo;
        master_split(row[i], &hi, &lo);
        hi = few_bits ? bf16_from_f32(row[i]) : hi;
        const double x = type == PT_BF16 ? (double)bf16_to_f32(hi) : (double)row[i];
        sum += x * x;
    }
    return (float)sqrt(sum);
}

static int magnitude_matrix(param_role role)
{
    int i = 0;
    while (adapter_magnitude(i) != role)
        i++;
    return i;
}

/* Reads a frozen matrix again as it is stored; with several ranks each may keep a part of it. *few_bits: NULL if the matrix is not in few
 * bits. */
static int copy_base(state *s, int index, const state_origin *origin, char **few_bits, pt_error *e)
{
    const param *w = &s->in->model->params[index];
    *few_bits = w->storage == STORAGE_PLAIN ? NULL : malloc(storage_bytes(w));
    if (w->storage == STORAGE_PLAIN)
        return 0;
    if (!*few_bits)
        return pt_fail(e, PT_FAILED, "out of memory");
    quantizing q = {s, index, NULL, origin, *few_bits};
    return quantize(s->in->model, index, &(quantize_io){rows_of_origin, put_bytes, take_stored, &q}, (float *)s->spare,
                    state_half_of_spare(s) / sizeof(float), e);
}

static int read_base(state *s, int index, const state_origin *origin, const char *few_bits, int64_t row, int64_t rows, float *out,
                     pt_error *e)
{
    if (!few_bits)
        return state_read_origin(s, origin, index, row, rows, out, e);
    dequantize_rows(&s->in->model->params[index], few_bits, row, rows, out);
    return 0;
}

/* A new magnitude is the norm of its row of W, as computation reads W. */
static int measure_magnitude(state *s, int index, const state_origin *origin, pt_error *e)
{
    const model *m = s->in->model;
    const param *p = &m->params[index];
    const int matrix = magnitude_matrix(p->role), of = m->blocks[p->block].param_of_role[adapter_base(matrix)];
    const param *w = &m->params[of];
    float *values = (float *)s->spare;
    int64_t at = 0, step = (int64_t)(state_half_of_spare(s) / sizeof *values) / w->cols;
    char *few_bits;
    int failed = copy_base(s, of, origin, &few_bits, e);
    for (int k = 0; k < w->parts; k++) {
        const int64_t first = w->part[k].row0, end = first + w->part[k].rows;
        for (int64_t row = first; row < end && adapter_at(m, p->block, matrix, k)->rank && !failed; row += step) {
            const int64_t rows = end - row < step ? end - row : step;
            failed = read_base(s, of, origin, few_bits, row, rows, values, e);
            for (int64_t i = 0; i < rows && !failed; i++, at++) {
                const float norm = row_norm(values + i * w->cols, w->cols, s->in->packing->type, w->storage != STORAGE_PLAIN);
                failed = state_write(s, STATE_MASTER, index, at, 1, &norm, e);
            }
        }
    }
    free(few_bits);
    return failed;
}

int state_load_adapted(state *s, const struct safetensors *base, const struct safetensors *adapter, uint64_t seed, pt_error *e)
{
    const model *m = s->in->model;
    int failed = base ? weights_check(m, base, NULL, e) : 0;
    if (!failed && adapter)
        failed = weights_check_adapter(m, adapter, e);
    s->base_sum = 0;
    if (!failed)
        failed = state_begin(s, &(state_source){.st = adapter, .frozen = base, .seed = seed, .apart = true}, e);
    for (int i = 0; i < m->params_n && !adapter && !failed; i++)
        if (m->params[i].kind->use == USE_MAGNITUDE)
            failed = measure_magnitude(s, i, s->origin ? s->origin : &(state_origin){base, seed}, e);
    return failed;
}

int state_load(state *s, const struct safetensors *st, pt_error *e)
{
    int failed = weights_check(s->in->model, st, NULL, e);
    return failed ? failed : state_begin(s, &(state_source){.st = st}, e);
}

int state_init(state *s, uint64_t seed, pt_error *e) { return state_begin(s, &(state_source){.seed = seed}, e); }
