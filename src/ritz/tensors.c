/* tensors.c - the network and its optimizer's states in files.
 *
 *     network.safetensors   a weight (rows, cols) and a bias (rows) for each layer, by name (network.h)
 *     states.safetensors    m and v: AdamW's moments of all parameters, in their order
 *
 * They pass through r->staging a chunk at a time, whatever tier the plan keeps them on.
 */
#include "io/safetensors.h"
#include "ritz/solver.h"

static int declare(const pt_ritz *r, safetensors_writer *w, pt_error *e)
{
    char name[48];
    for (int i = 0; i < r->net.stages_n; i++) {
        const ritz_stage *s = &r->net.stages[i];
        snprintf(name, sizeof name, "%s.weight", s->name);
        int failed = safetensors_declare(w, name, r->net.type, 2, (const int64_t[]){s->rows, s->cols}, e);
        snprintf(name, sizeof name, "%s.bias", s->name);
        if (failed >= 0)
            failed = safetensors_declare(w, name, r->net.type, 1, &s->rows, e);
        if (failed < 0)
            return failed;
    }
    return safetensors_begin(w, e);
}

/* The address of a stage's value while its chunk is in r->staging. */
static char *staged(const pt_ritz *r, int stage, int64_t value)
{
    return r->staging + (uint64_t)(value - r->space.chunks[r->space.chunk_of_stage[stage]].value0) * dtype_bytes(r->net.type);
}

static bool begins_chunk(const pt_ritz *r, int stage) { return stage == r->space.chunks[r->space.chunk_of_stage[stage]].stage0; }

static bool ends_chunk(const pt_ritz *r, int stage)
{
    const ritz_chunk *c = &r->space.chunks[r->space.chunk_of_stage[stage]];
    return stage + 1 == c->stage0 + c->stages_n;
}

int ritz_write_network(pt_ritz *r, const char *folder, pt_error *e)
{
    const uint64_t each = dtype_bytes(r->net.type);
    safetensors_writer *w;
    int failed = safetensors_writer_open(folder, "network", 0, &w, e);
    if (failed)
        return failed;
    failed = declare(r, w, e);
    for (int i = 0; i < r->net.stages_n && !failed; i++) {
        const ritz_stage *s = &r->net.stages[i];
        if (begins_chunk(r, i))
            failed = ritz_slab(r, OBJECT_WEIGHTS, 0, r->space.chunk_of_stage[i], true, e);
        if (!failed)
            failed = safetensors_append(w, 2 * i, staged(r, i, s->weight_at), (uint64_t)(s->rows * s->cols) * each, e);
        if (!failed)
            failed = safetensors_append(w, 2 * i + 1, staged(r, i, s->bias_at), (uint64_t)s->rows * each, e);
    }
    if (!failed)
        failed = safetensors_finish(w, e);
    safetensors_writer_close(w);
    return failed;
}

/* Finds a tensor that must have n values of the network's type. */
static int find_one(const pt_ritz *r, const safetensors *st, const char *path, const char *name, int64_t n, const safetensors_tensor **t,
                    pt_error *e)
{
    *t = safetensors_find(st, name);
    if (*t && (*t)->dtype_is_known && (*t)->dtype == r->net.type && (int64_t)(*t)->elements == n)
        return 0;
    return pt_fail(e, PT_FAILED, "%s: %s with %lld values of %s is missing: the files do not belong together", path, name, (long long)n,
                   dtype_name(r->net.type));
}

static int read_one(const pt_ritz *r, const safetensors *st, const char *path, const char *name, int64_t n, char *to, pt_error *e)
{
    const safetensors_tensor *t;
    int failed = find_one(r, st, path, name, n, &t, e);
    return failed ? failed : safetensors_read(st, t, 0, t->bytes, to, e);
}

static int open_tensors(const char *folder, const char *file, char path[FILE_PATH_BYTES], safetensors **st, pt_error *e)
{
    int failed = path_join(path, folder, file, e);
    return failed ? failed : safetensors_open(path, st, e);
}

int ritz_read_network(pt_ritz *r, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES], name[48];
    safetensors *st;
    int failed = open_tensors(folder, "network.safetensors", path, &st, e);
    if (failed)
        return failed;
    for (int i = 0; i < r->net.stages_n && !failed; i++) {
        const ritz_stage *s = &r->net.stages[i];
        snprintf(name, sizeof name, "%s.weight", s->name);
        failed = read_one(r, st, path, name, s->rows * s->cols, staged(r, i, s->weight_at), e);
        snprintf(name, sizeof name, "%s.bias", s->name);
        if (!failed)
            failed = read_one(r, st, path, name, s->rows, staged(r, i, s->bias_at), e);
        if (!failed && ends_chunk(r, i))
            failed = ritz_slab(r, OBJECT_WEIGHTS, 0, r->space.chunk_of_stage[i], false, e);
    }
    safetensors_close(st);
    return failed;
}

int ritz_init(pt_ritz *r, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, "network.safetensors", e);
    if (!failed && !path_exists(path))
        failed = pt_fail(e, PT_USAGE, "`init_run` is %.400s, which has no network.safetensors: give the `out` of a run, or a checkpoint "
                                      "in it", folder);
    return failed ? failed : ritz_read_network(r, folder, e);
}

static const char *const state_names[] = {"m", "v"};

int ritz_write_states(pt_ritz *r, const char *folder, pt_error *e)
{
    safetensors_writer *w;
    int failed = safetensors_writer_open(folder, "states", 0, &w, e);
    if (failed)
        return failed;
    for (int i = 0; i < 2 && failed >= 0; i++)
        failed = safetensors_declare(w, state_names[i], r->net.type, 1, &r->net.params, e);
    failed = failed < 0 ? failed : safetensors_begin(w, e);
    for (int i = 0; i < 2 && !failed; i++) {
        for (int c = 0; c < r->space.chunks_n && !failed; c++) {
            failed = ritz_slab(r, OBJECT_STATES, i, c, true, e);
            if (!failed)
                failed = safetensors_append(w, i, r->staging, (uint64_t)r->space.chunks[c].values * dtype_bytes(r->net.type), e);
        }
    }
    if (!failed)
        failed = safetensors_finish(w, e);
    safetensors_writer_close(w);
    return failed;
}

int ritz_read_states(pt_ritz *r, const char *folder, pt_error *e)
{
    const uint64_t each = dtype_bytes(r->net.type);
    char path[FILE_PATH_BYTES];
    safetensors *st;
    int failed = open_tensors(folder, "states.safetensors", path, &st, e);
    if (failed)
        return failed;
    for (int i = 0; i < 2 && !failed; i++) {
        const safetensors_tensor *t;
        failed = find_one(r, st, path, state_names[i], r->net.params, &t, e);
        for (int c = 0; c < r->space.chunks_n && !failed; c++) {
            const ritz_chunk *chunk = &r->space.chunks[c];
            failed = safetensors_read(st, t, (uint64_t)chunk->value0 * each, (uint64_t)chunk->values * each, r->staging, e);
            if (!failed)
                failed = ritz_slab(r, OBJECT_STATES, i, c, false, e);
        }
    }
    safetensors_close(st);
    return failed;
}
