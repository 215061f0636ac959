/* state_files.c - kinds of state in files: loading, exporting, checksums. */
#include "run/state_parts.h"

#include "comm/comm.h"
#include "io/safetensors.h"

#include <string.h>

/* ---- files of a kind ---- */

/* Whose state: of all parameters, of those that are trained, of these in this turn alone, or in every turn. */
typedef enum whose { OF_ALL, OF_TRAINED, OF_TURN, OF_ALWAYS } whose;

static bool is_of(const param *p, whose w)
{
    return w == OF_ALL || (p->trainable && (w == OF_TRAINED || p->always == (w == OF_ALWAYS)));
}

/* master: the type in which masters are. of: of masters only; of other kinds only OF_ALWAYS counts. */
typedef struct getter { state *s; int kind; whose of; safetensors_writer *w; pt_dtype master; } getter;

/* One rank reads, and writes it: of a matrix that is stored transposed the same one all rows. */
static int get_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    getter *g = arg;
    const param *p = &g->s->in->model->params[index];
    /* One rank writes what a file has as columns: a matrix, or the matrices of all experts side by side. */
    const bool columns = p->part[0].transposed || p->part[0].abreast;
    const int64_t whole = p->part[0].abreast ? p->rows : part_whole_rows(p, 0), begin = columns ? row0 / whole * whole : row0;
    state_choose_reader(g->s, g->kind, index, begin * p->cols, (columns ? whole : n_rows) * p->cols);
    safetensors_set_turn(g->w, state_reads(g->s));
    if (!state_in_few_bits(g->s, g->kind, index) || !g->s->origin)
        return state_read(g->s, g->kind, index, row0 * p->cols, n_rows * p->cols, out, e);
    return state_reads(g->s) ? state_read_origin(g->s, g->s->origin, index, row0, n_rows, out, e) : 0;
}

static int meet(void *arg, int failed, pt_error *e)
{
    state *state = arg;
    failed = comm_agree(executor_comm(state->x), failed, e);
    state->agreed = state->agreed || failed;
    return failed;
}

static int open_writer(state *state, const char *folder, const char *name, uint64_t shard_bytes, safetensors_writer **out, pt_error *e)
{
    const int rank = state->in->packing->rank;
    int failed = safetensors_writer_open(folder, name, shard_bytes, out, e);
    if (failed || !executor_comm(state->x))
        return failed;
    safetensors_share(*out, &(safetensors_sharing){.leads = !rank, .writes = !rank || state->spread, .meet = meet, .arg = state});
    safetensors_set_turn(*out, !rank);
    return 0;
}

/* The names of the tensors of a kind: of single values, and of masters, only of trained ones if asked. */
static int type_of(void *arg, int index)
{
    const getter *g = arg;
    const slab *slab = state_slab(g->s->in, g->kind, index);
    if (state_in_few_bits(g->s, g->kind, index))
        return -1;
    const param *p = &g->s->in->model->params[index];
    if (g->kind == STATE_MASTER)
        return is_of(p, g->of) ? (int)g->master : -1;
    return slab && (g->of != OF_ALWAYS || p->always) ? (int)slab->type : -1;
}

/* Has this kind other entries than one per value? Then those of all parameters that have it. */
static bool is_listed(const state *state, int kind)
{
    for (int i = 0; i < state->in->model->params_n; i++) {
        const slab *slab = state_slab(state->in, kind, i);
        if (slab)
            return !slab_is_of_values(slab);
    }
    return false;
}

/* Entries of a Hugging Face tensor. */
typedef struct listed { int index; int64_t from, n; const param_part *part; pt_dtype type; } listed;

static listed listed_of(const state *state, int kind, int index, int k)
{
    const param *p = &state->in->model->params[index];
    const slab *slab = state_slab(state->in, kind, index);
    return (listed){index, slab_first(slab, p, k), slab_of_part(slab, p, k), &p->part[k], slab->type};
}

typedef int (*listed_fn)(void *arg, state *s, int kind, const listed *t, int number, pt_error *e);

static int each_listed(state *state, int kind, whose of, listed_fn fn, void *arg, int *count, pt_error *e)
{
    *count = 0;
    for (int i = 0; i < state->in->model->params_n; i++)
        for (int k = 0; is_of(&state->in->model->params[i], of) && state_slab(state->in, kind, i) && k < state->in->model->params[i].parts;
             k++) {
            const listed t = listed_of(state, kind, i, k);
            int failed = fn(arg, state, kind, &t, (*count)++, e);
            if (failed)
                return failed;
        }
    return 0;
}

static int declare_listed(void *arg, state *state, int kind, const listed *t, int number, pt_error *e)
{
    int given = safetensors_declare(arg, t->part->name, t->type, 1, &t->n, e);
    return given < 0 ? given : 0;
}

/* Moves the values in runs of rows that fit the spare scratch. */
static int move_listed(state *state, int kind, const listed *t, int number, const safetensors_tensor *from, void *file, pt_error *e)
{
    const int64_t room = (int64_t)(state->spare_bytes / sizeof(float));
    float *values = (float *)state->spare;
    int failed = 0;
    for (int64_t at = 0; at < t->n && !failed; at += room) {
        const int64_t n = t->n - at < room ? t->n - at : room;
        if (!from) {
            state_choose_reader(state, kind, t->index, t->from + at, n);
            safetensors_set_turn(file, state_reads(state));
        }
        failed = from ? safetensors_read_f32(file, from, (uint64_t)at, (uint64_t)n, values, e)
                      : state_read(state, kind, t->index, t->from + at, n, values, e);
        if (!failed)
            failed = from ? state_write(state, kind, t->index, t->from + at, n, values, e)
                          : safetensors_append_f32(file, number, values, (uint64_t)n, e);
    }
    return failed;
}

static int append_listed(void *arg, state *state, int kind, const listed *t, int number, pt_error *e)
{
    return move_listed(state, kind, t, number, NULL, arg, e);
}

static int load_listed(void *arg, state *state, int kind, const listed *t, int number, pt_error *e)
{
    const safetensors_tensor *from = safetensors_find(arg, t->part->name);
    if (!from || from->rank != 1 || from->shape[0] != t->n || !from->dtype_is_known || from->dtype != t->type)
        return pt_fail(e, PT_FAILED,
                       "%s: tensor \"%s\" with %lld values of %s is missing: the checkpoint is damaged; continue from another one with "
                       "`resume_from` DIR",
                       safetensors_count(arg) ? safetensors_path(arg, safetensors_at(arg, 0)) : state_name(state->in, kind), t->part->name,
                       (long long)t->n, dtype_name(t->type));
    return move_listed(state, kind, t, number, from, arg, e);
}

int state_load_kind(state *state, int kind, const struct safetensors *st, pt_error *e)
{
    getter g = {state, kind, OF_TRAINED, NULL, PT_F32};
    int count;
    if (is_listed(state, kind))
        return each_listed(state, kind, OF_ALL, load_listed, (void *)st, &count, e);
    int failed = weights_check_some(state->in->model, st, type_of, &g, e);
    return failed ? failed : state_fill(state, kind, &(state_source){.st = st}, e);
}

int state_load_masters(state *state, const struct safetensors *st, pt_error *e)
{
    getter g = {state, STATE_MASTER, OF_ALL, NULL, PT_F32};
    int failed = weights_check_some(state->in->model, st, type_of, &g, e);
    return failed ? failed : state_begin(state, &(state_source){.st = st}, e);
}

int state_load_beside(state *state, const struct safetensors *trained, const struct safetensors *all, pt_error *e)
{
    getter g = {state, STATE_MASTER, OF_TRAINED, NULL, PT_F32};
    int failed = weights_check_some(state->in->model, trained, type_of, &g, e);
    if (!failed)
        failed = weights_check(state->in->model, all, NULL, e);
    return failed ? failed : state_begin(state, &(state_source){.st = trained, .frozen = all}, e);
}

static int export_listed(state *state, int kind, whose of, safetensors_writer *writer, pt_error *e)
{
    int count;
    int failed = each_listed(state, kind, of, declare_listed, writer, &count, e);
    if (!failed)
        failed = safetensors_begin(writer, e);
    if (!failed)
        failed = each_listed(state, kind, of, append_listed, writer, &count, e);
    return failed ? failed : safetensors_finish(writer, e);
}

static int export_kind(state *state, int kind, whose of, const char *folder, pt_error *e)
{
    safetensors_writer *writer;
    int failed = open_writer(state, folder, state_name(state->in, kind), SAFETENSORS_SHARD_DEFAULT, &writer, e);
    if (failed)
        return failed;
    getter g = {state, kind, of, writer, PT_F32};
    failed = is_listed(state, kind) ? export_listed(state, kind, of == OF_ALWAYS ? of : OF_ALL, writer, e)
                                   : weights_export_some(state->in->model, writer, type_of, (weights_layout){0}, get_rows, &g, state->spare,
                                                         state->spare_bytes, e);
    safetensors_writer_close(writer);
    return failed;
}

int state_export_kind(state *state, int kind, bool trained_only, const char *folder, pt_error *e)
{
    return export_kind(state, kind, trained_only ? OF_TRAINED : OF_ALL, folder, e);
}

bool state_has_always(const state *state, int kind)
{
    bool any = false;
    for (int i = 0; i < state->in->model->params_n; i++)
        any = any || (state->in->model->params[i].always && state_entries(state->in, kind, i));
    return any;
}

int state_export_always(state *state, int kind, const char *folder, pt_error *e) { return export_kind(state, kind, OF_ALWAYS, folder, e); }

int state_load_always(state *state, int kind, const struct safetensors *st, pt_error *e)
{
    getter g = {state, kind, OF_ALWAYS, NULL, PT_F32};
    int count;
    if (kind != STATE_MASTER && is_listed(state, kind))
        return each_listed(state, kind, OF_ALWAYS, load_listed, (void *)st, &count, e);
    int failed = weights_check_among(state->in->model, st, type_of, &g, NULL, e);
    return failed ? failed : state_fill(state, kind, &(state_source){.st = st, .always = true}, e);
}

/* One file. */
static int export_masters(state *state, const char *folder, const char *name, pt_dtype dtype, weights_layout layout, whose of, pt_error *e)
{
    safetensors_writer *writer;
    int failed = open_writer(state, folder, name, UINT64_MAX, &writer, e);
    if (failed)
        return failed;
    getter g = {state, STATE_MASTER, of, writer, dtype};
    failed = weights_export_some(state->in->model, writer, type_of, layout, get_rows, &g, state->spare, state->spare_bytes, e);
    safetensors_writer_close(writer);
    return failed;
}

int state_export_adapter(state *state, const char *folder, const char *name, pt_error *e)
{
    const weights_layout layout = {.naming = weights_naming_of_adapters(state->in->model), .adapter = true};
    return export_masters(state, folder, name, PT_F32, layout, OF_TRAINED, e);
}

int state_export_trained(state *state, const char *folder, const char *name, pt_dtype dtype, pt_error *e)
{
    return export_masters(state, folder, name, dtype, (weights_layout){0}, OF_TURN, e);
}

int state_export(state *state, const char *folder, const char *name, pt_dtype dtype, weights_layout layout, pt_error *e)
{
    safetensors_writer *writer;
    int failed = open_writer(state, folder, name, SAFETENSORS_SHARD_DEFAULT, &writer, e);
    if (failed)
        return failed;
    getter g = {state, STATE_MASTER, OF_ALL, writer, PT_F32};
    failed = weights_export(state->in->model, writer, dtype, layout, get_rows, &g, state->spare,
                            state->origin ? state_half_of_spare(state) : state->spare_bytes, e);
    safetensors_writer_close(writer);
    return failed;
}

/* ---- checksums ---- */

typedef struct summing { int index; int64_t cols; uint64_t sum; } summing;

/* Values row by row; other entries count as rows of one. */
static void add_rows(void *arg, int64_t from, int64_t n, const float *values)
{
    summing *x = arg;
    x->sum += state_rows_sum(x->index, from / x->cols, n / x->cols, x->cols, values);
}

static int kind_checksum(state *state, int kind, int index, uint64_t *checksum, pt_error *e)
{
    const slab *slab = state_slab(state->in, kind, index);
    summing x = {index, slab && !slab_is_of_values(slab) ? 1 : state->in->model->params[index].cols, 0};
    int failed = state_entries(state->in, kind, index) ? state_each_own(state, kind, index, add_rows, &x, e) : 0;
    *checksum += x.sum;
    return failed;
}

int state_frozen_sum(state *state, uint64_t *sum, pt_error *e)
{
    int failed = 0;
    *sum = 0;
    for (int i = 0; i < state->in->model->params_n && !failed; i++)
        if (!state->in->model->params[i].trainable && !state_in_few_bits(state, STATE_MASTER, i))
            failed = kind_checksum(state, STATE_MASTER, i, sum, e);
    return failed;
}

int state_checksums(state *state, uint64_t checksums[STATE_KINDS_MOST], pt_error *e)
{
    const int kinds = state_kinds(state->in);
    comm *c = executor_comm(state->x);
    uint64_t own[STATE_KINDS_MOST] = {0}, all[COMM_RANKS_MOST][STATE_KINDS_MOST];
    int failed = 0;
    for (int i = 0; i < state->in->model->params_n; i++)
        for (int k = 0; k < kinds && !failed && (state->in->model->params[i].trainable || !state->in->model->adapters); k++)
            failed = state_in_few_bits(state, k, i) ? 0 : kind_checksum(state, k, i, &own[k], e);
    if (!failed && c)
        failed = comm_all_gather(c, own, sizeof own, all, e);
    memset(checksums, 0, sizeof own);
    for (int r = 0; r < (c ? c->ranks : 1) && !failed; r++)
        for (int k = 0; k < kinds; k++)
            checksums[k] += c ? all[r][k] : own[k];
    return failed;
}
