#include "train/state.h"

#include "base/sum.h"
#include "io/safetensors.h"
#include "model/weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE_BYTES = 64 << 20 }; /* at most: more would not make reading and writing faster */
enum { BOUNCE_BYTES = 1 << 20, BOUNCE_ELEMENTS = BOUNCE_BYTES / 2 / sizeof(bf16) }; /* [high halves][low halves] */

/* ---- chunks ---- */

typedef struct chunk_memory { char *weights, *states; bool away; } chunk_memory; /* away: only to be moved */

static int window_disk(state *s, bool write, pt_error *e)
{
    const packing *k = s->in->packing;
    uint64_t at;
    executor_home(s->x, OBJECT_WEIGHTS, s->chunk, &at);
    int failed = executor_disk(s->x, write, at, s->window, chunk_weight_bytes(k, s->chunk), e);
    if (failed || !s->in->training || !chunk_state_bytes(k, s->chunk))
        return failed;
    executor_home(s->x, OBJECT_STATES, s->chunk, &at);
    return executor_disk(s->x, write, at, s->window + chunk_weight_bytes(k, s->chunk), chunk_state_bytes(k, s->chunk), e);
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
    memset(s->window, 0, chunk_weight_bytes(k, s->chunk) + (s->in->training ? chunk_state_bytes(k, s->chunk) : 0));
    s->fresh[s->chunk] = false;
    s->changed = true;
    return 0;
}

static int chunk_open(state *s, int chunk, bool change, chunk_memory *out, pt_error *e)
{
    uint64_t at;
    if (s->in->plan->chunks[chunk].home != TIER_DISK) {
        out->weights = executor_home(s->x, OBJECT_WEIGHTS, chunk, &at);
        out->states = s->in->training ? executor_home(s->x, OBJECT_STATES, chunk, &at) : NULL;
        out->away = s->bounce && s->in->plan->chunks[chunk].home == TIER_DEVICE;
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
    out->states = s->window + chunk_weight_bytes(s->in->packing, chunk);
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

/* ---- rows ---- */

/* Values `at` .. of a piece: in the chunk's weights, and where its low halves are (NULL: it has none). */
typedef struct master { pt_dtype type; char *weights; uint16_t *low; } master;

static master master_of(const state *s, const chunk_memory *c, const piece *p, int64_t at)
{
    const packing *k = s->in->packing;
    pt_dtype type = param_type(&s->in->model->params[p->param], k->type);
    char *weights = c->weights + (size_t)p->offset * dtype_bytes(k->type) + (size_t)at * dtype_bytes(type);
    return (master){type, weights, type == PT_BF16 && c->states && k->chunks[p->chunk].low ? (uint16_t *)c->states + p->offset + at : NULL};
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

static float *moments(const state *s, const chunk_memory *c, int chunk, state_kind kind)
{
    const packing *k = s->in->packing;
    float *first = (float *)(c->states + chunk_low_bytes(k, chunk));
    return kind == STATE_EXP_AVG ? first : first + k->chunks[chunk].elements;
}

/* Values `at` .. of a piece on the device, by the bounce buffer where the weights are in two halves. */
static int move_piece(state *s, bool write, state_kind kind, const chunk_memory *c, const piece *p, int64_t at, int64_t n,
                      float *values, pt_error *e)
{
    int failed = 0;
    master m = master_of(s, c, p, at);
    char *whole = kind == STATE_MASTER ? m.weights : (char *)(moments(s, c, p->chunk, kind) + p->offset + at);
    if (kind != STATE_MASTER || m.type == PT_F32)
        return write ? executor_move(s->x, whole, values, (size_t)n * sizeof *values, e)
                     : executor_move(s->x, values, whole, (size_t)n * sizeof *values, e);
    for (int64_t done = 0; done < n && !failed; done += BOUNCE_ELEMENTS) {
        int64_t part = n - done < BOUNCE_ELEMENTS ? n - done : BOUNCE_ELEMENTS;
        size_t bytes = (size_t)part * sizeof(bf16);
        m = master_of(s, c, p, at + done);
        master near = {m.type, s->bounce, m.low ? (uint16_t *)(s->bounce + BOUNCE_BYTES / 2) : NULL};
        if (write)
            write_master(&near, part, values + done);
        failed = write ? executor_move(s->x, m.weights, near.weights, bytes, e) : executor_move(s->x, near.weights, m.weights, bytes, e);
        if (!failed && m.low)
            failed = write ? executor_move(s->x, m.low, near.low, bytes, e) : executor_move(s->x, near.low, m.low, bytes, e);
        if (!failed && !write)
            read_master(&near, part, values + done);
    }
    return failed;
}

/* The part of some rows that lies in a piece: n values from the piece's value `at`. */
typedef int (*rows_fn)(state *s, state_kind kind, const piece *p, int64_t at, int64_t n, float *values, pt_error *e);

static int each_piece(state *s, state_kind kind, int index, int64_t row0, int64_t n_rows, float *values, rows_fn fn, pt_error *e)
{
    const packing *k = s->in->packing;
    int64_t cols = s->in->model->params[index].cols;
    for (int i = k->piece_of_param[index]; i < k->piece_of_param[index + 1]; i++) {
        const piece *p = &k->pieces[i];
        int64_t from = row0 > p->row0 ? row0 : p->row0, end = row0 + n_rows < p->row0 + p->rows ? row0 + n_rows : p->row0 + p->rows;
        if (from >= end)
            continue;
        int failed = fn(s, kind, p, (from - p->row0) * cols, (end - from) * cols, values + (from - row0) * cols, e);
        if (failed)
            return failed;
    }
    return 0;
}

static int read_piece(state *s, state_kind kind, const piece *p, int64_t at, int64_t n, float *values, pt_error *e)
{
    chunk_memory c;
    int failed = chunk_open(s, p->chunk, false, &c, e);
    if (failed || c.away)
        return failed ? failed : move_piece(s, false, kind, &c, p, at, n, values, e);
    master m = master_of(s, &c, p, at);
    if (kind == STATE_MASTER)
        read_master(&m, n, values);
    else
        memcpy(values, moments(s, &c, p->chunk, kind) + p->offset + at, (size_t)n * sizeof *values);
    return 0;
}

static int write_piece(state *s, state_kind kind, const piece *p, int64_t at, int64_t n, float *values, pt_error *e)
{
    chunk_memory c;
    int failed = chunk_open(s, p->chunk, true, &c, e);
    if (failed || c.away)
        return failed ? failed : move_piece(s, true, kind, &c, p, at, n, values, e);
    master m = master_of(s, &c, p, at);
    if (kind == STATE_MASTER)
        write_master(&m, n, values);
    else
        memcpy(moments(s, &c, p->chunk, kind) + p->offset + at, values, (size_t)n * sizeof *values);
    return 0;
}

int state_read(state *s, state_kind kind, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    return each_piece(s, kind, index, row0, n_rows, out, read_piece, e);
}

int state_write(state *s, state_kind kind, int index, int64_t row0, int64_t n_rows, const float *in, pt_error *e)
{
    return each_piece(s, kind, index, row0, n_rows, (float *)in, write_piece, e);
}

/* ---- whole states ---- */

/* Moments and paddings of chunks in memory. */
static int clear_memory(state *s, pt_error *e)
{
    const packing *k = s->in->packing;
    for (int c = 0; s->in->training && c < k->chunks_n; c++) {
        chunk_memory m;
        if (s->in->plan->chunks[c].home == TIER_DISK)
            continue;
        const uint64_t states = chunk_state_bytes(k, c);
        int failed = chunk_open(s, c, true, &m, e);
        if (!failed && m.away) {
            if (states)
                failed = executor_move(s->x, m.states, NULL, states, e);
            if (!failed)
                failed = executor_move(s->x, m.weights, NULL, chunk_weight_bytes(k, c), e);
        }
        if (failed)
            return failed;
        if (m.away)
            continue;
        if (states)
            memset(m.states, 0, states);
        memset(m.weights, 0, chunk_weight_bytes(k, c));
    }
    return 0;
}

/* Of the values: files, or a seed where there are none. What is frozen may lie in other files. */
typedef struct source { const struct safetensors *st, *frozen; uint64_t seed; } source;

/* Random values of some rows, which depend on nothing else: all threads of the processor make them. */
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

/* What is frozen has no moments. */
static bool has_state(const param *p, state_kind kind) { return kind == STATE_MASTER || p->trainable; }

/* Parameter by parameter, as many rows at a time as half of the spare room holds; the other half is the reader's. */
static int fill(state *s, state_kind kind, const source *from, pt_error *e)
{
    const model *m = s->in->model;
    float *values = (float *)s->spare;
    size_t half = s->spare_bytes / 2 / 64 * 64;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        const struct safetensors *st = p->trainable || !from->frozen ? from->st : from->frozen;
        int64_t step = (int64_t)(half / sizeof(float)) / p->cols;
        if (!has_state(p, kind))
            continue;
        if (step < 1)
            return pt_fail(e, PT_FAILED, "a row of %lld values does not fit into %zu bytes", (long long)p->cols, half);
        for (int64_t row = 0; row < p->rows; row += step) {
            int64_t rows = p->rows - row < step ? p->rows - row : step;
            int failed = 0;
            if (st)
                failed = weights_read(m, st, i, row, rows, values, s->spare + half, half, e);
            else
                init_rows(m, from->seed, i, row, rows, executor_threads(s->x), values);
            if (!failed)
                failed = state_write(s, kind, i, row, rows, values, e);
            if (failed)
                return failed;
        }
    }
    return 0;
}

/* Masters, and moments of zero. A chunk on the disk is written once, and not read before: each has a piece, which fill writes. */
static int begin(state *s, const source *from, pt_error *e)
{
    const int n = s->in->packing->chunks_n;
    s->fresh = malloc((size_t)n * sizeof *s->fresh);
    if (!s->fresh)
        return pt_fail(e, PT_FAILED, "out of memory");
    s->chunk = -1; /* whatever is in the window */
    s->changed = false;
    for (int c = 0; c < n; c++)
        s->fresh[c] = s->in->plan->chunks[c].home == TIER_DISK;
    int failed = clear_memory(s, e);
    if (!failed)
        failed = fill(s, STATE_MASTER, from, e);
    free(s->fresh);
    s->fresh = NULL;
    return failed;
}

int state_load(state *s, const struct safetensors *st, pt_error *e)
{
    int failed = weights_check(s->in->model, st, NULL, e);
    return failed ? failed : begin(s, &(source){.st = st}, e);
}

int state_load_beside(state *s, const struct safetensors *trained, const struct safetensors *all, pt_error *e)
{
    int failed = weights_check_trained(s->in->model, trained, e);
    if (!failed)
        failed = weights_check(s->in->model, all, NULL, e);
    return failed ? failed : begin(s, &(source){.st = trained, .frozen = all}, e);
}

int state_init(state *s, uint64_t seed, pt_error *e) { return begin(s, &(source){.seed = seed}, e); }

int state_load_kind(state *s, state_kind kind, const struct safetensors *st, pt_error *e)
{
    int failed = weights_check_trained(s->in->model, st, e);
    return failed ? failed : fill(s, kind, &(source){.st = st}, e);
}

typedef struct getter { state *s; state_kind kind; } getter;

static int get_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    getter *g = arg;
    return state_read(g->s, g->kind, index, row0, n_rows, out, e);
}

int state_export(state *s, state_kind kind, weights_set set, const char *folder, const char *name, pt_dtype dtype, bool bare, pt_error *e)
{
    safetensors_writer *w;
    int failed = safetensors_writer_open(folder, name, SAFETENSORS_SHARD_DEFAULT, &w, e);
    if (failed)
        return failed;
    getter g = {s, kind};
    failed = weights_export(s->in->model, set, w, dtype, bare, get_rows, &g, s->spare, s->spare_bytes, e);
    safetensors_writer_close(w);
    return failed;
}

/* ---- sums ---- */

/* Whatever the portions: an accident that damages, moves or exchanges values changes it. */
static uint64_t rows_sum(int index, int64_t row0, int64_t n_rows, int64_t cols, const float *values)
{
    uint64_t sum = 0;
    for (int64_t row = 0; row < n_rows; row++, values += cols)
        sum += sum_bytes((uint64_t)index + 1, (uint64_t)(row0 + row) + 1, values, (size_t)cols * sizeof *values);
    return sum;
}

int state_sums(state *s, uint64_t sums[STATE_KINDS], pt_error *e)
{
    const model *m = s->in->model;
    float *values = (float *)s->spare;
    memset(sums, 0, STATE_KINDS * sizeof *sums);
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        int64_t step = (int64_t)(s->spare_bytes / sizeof *values) / p->cols; /* not 0: exporting needs more */
        for (int64_t row = 0; row < p->rows; row += step)
            for (int k = 0; k < STATE_KINDS && has_state(p, (state_kind)k); k++) {
                int64_t rows = p->rows - row < step ? p->rows - row : step;
                int failed = state_read(s, (state_kind)k, i, row, rows, values, e);
                if (failed)
                    return failed;
                sums[k] += rows_sum(i, row, rows, p->cols, values);
            }
    }
    return 0;
}
