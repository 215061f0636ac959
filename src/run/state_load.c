/* state_load.c - whole states: loaded from files, or initialized from a seed. */
#include "run/state_parts.h"

#include "base/sum.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/prequantized.h"
#include "model/quantize.h"
#include "model/weights.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

uint64_t state_rows_sum(int index, int64_t row0, int64_t n_rows, int64_t cols, const float *values)
{
    uint64_t sum = 0;
    for (int64_t row = 0; row < n_rows; row++, values += cols)
        sum += sum_bytes((uint64_t)index + 1, (uint64_t)(row0 + row) + 1, values, (size_t)cols * sizeof *values);
    return sum;
}

/* States and paddings of chunks in memory. */
static int clear_memory(state *state, pt_error *e)
{
    const packing *packing = state->in->packing;
    for (int c = 0; state->in->training && c < packing->chunks_n; c++) {
        chunk_memory m;
        if (state->in->plan->chunks[c].placement == TIER_DISK)
            continue;
        const uint64_t states = chunk_state_bytes(packing, c);
        int failed = state_chunk_open(state, c, true, &m, e);
        if (!failed && m.away) {
            if (states)
                failed = executor_move(state->x, m.states, NULL, states, e);
            if (!failed)
                failed = executor_move(state->x, m.weights, NULL, kept_weight_bytes(state->in, c), e);
        }
        if (failed)
            return failed;
        if (m.away)
            continue;
        if (states)
            memset(m.states, 0, states);
        memset(m.weights, 0, kept_weight_bytes(state->in, c));
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
int state_read_origin(state *state, const state_origin *from, int index, int64_t row, int64_t rows, float *out, pt_error *e)
{
    const size_t half = state_half_of_spare(state);
    if (from->st)
        return weights_read(state->in->model, from->st, index, row, rows, out, state->spare + half, half, e);
    init_rows(state->in->model, from->seed, index, row, rows, executor_threads(state->x), out);
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
            failed = state_put_bytes((void *)q, at + done, q->s->spare, n, e);
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

static int fill_few_bits(state *state, int index, const state_origin *from, pt_error *e)
{
    quantizing q = {state, index, NULL, from, NULL};
    return quantize(state->in->model, index, &(quantize_io){rows_of_origin, state_put_bytes, take_stored, &q}, (float *)state->spare,
                    state_half_of_spare(state) / sizeof(float), e);
}

/* As bf16 weights that are frozen have them, which have no low halves. */
static void round_values(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bf16 hi;
        uint16_t lo;
        master_split(values[i], &hi, &lo);
        values[i] = bf16_to_f32(hi);
    }
}

/* Layers come from the files of their blocks, or from what a run began with, when their turn to be trained or frozen comes. Until then they
 * were frozen, but a file of fp32 has what they were when their last turn ended. */
static bool were_rounded(const state *state, const state_source *from, const param *p)
{
    return from->of_block && state->in->model->stored_bf16 && param_type(p, state->in->packing->type) == PT_BF16;
}

/* Reads the values in runs of rows that fit the other half of the spare scratch. */
static int fill_values(state *state, int kind, int index, const state_origin *from, bool summed, bool rounded, pt_error *e)
{
    const param *p = &state->in->model->params[index];
    float *values = (float *)state->spare;
    const int64_t step = (int64_t)(state_half_of_spare(state) / sizeof(float)) / p->cols;
    if (step < 1)
        return pt_fail(e, PT_FAILED, "a row of %lld values does not fit into %zu bytes", (long long)p->cols, state_half_of_spare(state));
    int failed = 0;
    for (int64_t row = 0; row < p->rows && !failed; row += step) {
        const int64_t rows = p->rows - row < step ? p->rows - row : step;
        failed = state_read_origin(state, from, index, row, rows, values, e);
        if (!failed && rounded)
            round_values(values, rows * p->cols);
        const uint64_t sum = !failed && (summed || executor_comm(state->x)) ? state_rows_sum(index, row, rows, p->cols, values) : 0;
        state->base_sum += summed ? sum : 0;
        state->read_sum += sum;
        if (!failed)
            failed = state_write(state, kind, index, row * p->cols, rows * p->cols, values, e);
    }
    return failed;
}

/* Parameter by parameter. */
int state_fill(state *state, int kind, const state_source *from, pt_error *e)
{
    const model *m = state->in->model;
    int failed = 0;
    for (int i = 0; i < m->params_n && !failed; i++) {
        const param *p = &m->params[i];
        if (from->always && !p->always)
            continue;
        const bool new_module = p->whole && !from->st; /* of an adapter that has no file yet */
        const bool theirs = (!p->trainable || new_module) && (from->frozen || from->apart);
        const struct safetensors *own = from->of_block ? from->of_block[p->block] : NULL;
        const state_origin o = {own ? own : theirs ? from->frozen : from->st, from->seed};
        if (state_in_few_bits(state, kind, i))
            failed = fill_few_bits(state, i, state->origin ? state->origin : &o, e);
        else if (state_entries(state->in, kind, i))
            failed = fill_values(state, kind, i, &o, from->apart && !p->trainable, were_rounded(state, from, p), e);
    }
    return failed;
}

/* Writes masters, and zeros for all other kinds. A chunk on the disk is written once without being read first: every chunk has a piece, and
 * fill writes all pieces. */
int state_begin(state *state, const state_source *from, pt_error *e)
{
    const int n = state->in->packing->chunks_n;
    state->fresh = malloc((size_t)n * sizeof *state->fresh);
    if (!state->fresh)
        return pt_fail(e, PT_FAILED, "out of memory");
    state->chunk = -1; /* whichever chunk is in the window */
    state->changed = false;
    for (int c = 0; c < n; c++)
        state->fresh[c] = state->in->plan->chunks[c].placement == TIER_DISK;
    int failed = clear_memory(state, e);
    if (!failed)
        failed = from->slots ? state_copy_trained(state, from->slots, e) : state_fill(state, STATE_MASTER, from, e);
    free(state->fresh);
    state->fresh = NULL;
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
static int copy_base(state *state, int index, const state_origin *origin, char **few_bits, pt_error *e)
{
    const param *w = &state->in->model->params[index];
    *few_bits = w->storage == STORAGE_PLAIN ? NULL : malloc(storage_bytes(w));
    if (w->storage == STORAGE_PLAIN)
        return 0;
    if (!*few_bits)
        return pt_fail(e, PT_FAILED, "out of memory");
    quantizing q = {state, index, NULL, origin, *few_bits};
    return quantize(state->in->model, index, &(quantize_io){rows_of_origin, state_put_bytes, take_stored, &q}, (float *)state->spare,
                    state_half_of_spare(state) / sizeof(float), e);
}

static int read_base(state *state, int index, const state_origin *origin, const char *few_bits, int64_t row, int64_t rows, float *out,
                     pt_error *e)
{
    if (!few_bits)
        return state_read_origin(state, origin, index, row, rows, out, e);
    dequantize_rows(&state->in->model->params[index], few_bits, row, rows, out);
    return 0;
}

/* A new magnitude is the norm of its row of W, as computation reads W. */
static int measure_magnitude(state *state, int index, const state_origin *origin, pt_error *e)
{
    const model *m = state->in->model;
    const param *p = &m->params[index];
    const int matrix = magnitude_matrix(p->role), of = m->blocks[p->block].param_of_role[adapter_base(matrix)];
    const param *w = &m->params[of];
    float *values = (float *)state->spare;
    int64_t at = 0, step = (int64_t)(state_half_of_spare(state) / sizeof *values) / w->cols;
    char *few_bits;
    int failed = copy_base(state, of, origin, &few_bits, e);
    for (int k = 0; k < w->parts; k++) {
        const int64_t first = w->part[k].row0, end = first + w->part[k].rows;
        for (int64_t row = first; row < end && adapter_at(m, p->block, matrix, k)->rank && !failed; row += step) {
            const int64_t rows = end - row < step ? end - row : step;
            failed = read_base(state, of, origin, few_bits, row, rows, values, e);
            for (int64_t i = 0; i < rows && !failed; i++, at++) {
                const float norm = row_norm(values + i * w->cols, w->cols, state->in->packing->type, w->storage != STORAGE_PLAIN);
                failed = state_write(state, STATE_MASTER, index, at, 1, &norm, e);
            }
        }
    }
    free(few_bits);
    return failed;
}

int state_load_adapted(state *state, const struct safetensors *base, const struct safetensors *adapter, uint64_t seed, pt_error *e)
{
    const model *m = state->in->model;
    int failed = base ? weights_check(m, base, NULL, e) : 0;
    if (!failed && adapter)
        failed = weights_check_adapter(m, adapter, e);
    state->base_sum = 0;
    if (!failed)
        failed = state_begin(state, &(state_source){.st = adapter, .frozen = base, .seed = seed, .apart = true}, e);
    for (int i = 0; i < m->params_n && !adapter && !failed; i++)
        if (m->params[i].kind->use == USE_MAGNITUDE)
            failed = measure_magnitude(state, i, state->origin ? state->origin : &(state_origin){base, seed}, e);
    return failed;
}

int state_load(state *state, const struct safetensors *st, pt_error *e)
{
    int failed = weights_check(state->in->model, st, NULL, e);
    return failed ? failed : state_begin(state, &(state_source){.st = st}, e);
}

int state_load_blocks(state *state, const state_origin *origin, const struct safetensors *const *of_block, pt_error *e)
{
    return state_begin(state, &(state_source){.st = origin->st, .seed = origin->seed, .of_block = of_block}, e);
}

int state_init(state *state, uint64_t seed, pt_error *e) { return state_begin(state, &(state_source){.seed = seed}, e); }

/* row: room for one. */
static int add_row(state *state, const state_origin *from, int index, int64_t to, const uint32_t *of, size_t n, float *row, double *sum,
                   pt_error *e)
{
    const int64_t cols = state->in->model->params[index].cols;
    int failed = 0;
    for (size_t k = 0; k < n && !failed; k++) {
        failed = state_read_origin(state, from, index, of[k], 1, row, e);
        for (int64_t c = 0; c < cols; c++)
            sum[c] = (k ? sum[c] : 0) + (double)row[c];
    }
    for (int64_t c = 0; c < cols; c++)
        row[c] = (float)(sum[c] / (double)n);
    return failed ? failed : state_write(state, STATE_MASTER, index, to * cols, cols, row, e);
}

int state_add_rows(state *state, const struct safetensors *st, const state_new_rows *rows, pt_error *e)
{
    const model *m = state->in->model;
    const state_origin from = {.st = st};
    int failed = 0;
    for (int i = 0; i < m->params_n && !failed; i++) {
        if (m->params[i].kind->use != USE_VOCABULARY || m->params[i].rows != m->config.vocab)
            continue;
        float *row = malloc((size_t)m->params[i].cols * sizeof *row);
        double *sum = malloc((size_t)m->params[i].cols * sizeof *sum);
        failed = row && sum ? 0 : pt_fail(e, PT_FAILED, "out of memory");
        for (size_t k = 0, at = 0; k < rows->n && !failed; at = rows->end[k++])
            failed = add_row(state, &from, i, rows->first + (int64_t)k, rows->of + at, rows->end[k] - at, row, sum, e);
        free(row);
        free(sum);
    }
    return failed;
}

int state_init_head(state *state, uint64_t seed, pt_error *e)
{
    const model *m = state->in->model;
    const int index = m->blocks[m->blocks_n - 1].param_of_role[PARAM_HEAD];
    const param *p = &m->params[index];
    float *row = malloc((size_t)p->cols * sizeof *row);
    int failed = row ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t i = 0; i < p->rows && !failed; i++) {
        weights_init(m, seed, index, i, 1, row);
        failed = state_write(state, STATE_MASTER, index, i * p->cols, p->cols, row, e);
    }
    free(row);
    return failed;
}
