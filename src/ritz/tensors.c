/* tensors.c - the network and its optimizer's states in files.
 *
 *     network.safetensors   a weight (rows, cols) and a bias (rows) for each layer, by name (network.h)
 *     states.safetensors    m and v: AdamW's moments of all parameters, in their order
 *
 * They pass through r->staging a chunk at a time, whatever tier the plan keeps them on.
 */
#include "io/safetensors.h"
#include "ritz/solver.h"

static int declare(const pt_ritz *ritz, safetensors_writer *writer, pt_error *e)
{
    char name[48];
    for (int i = 0; i < ritz->net.stages_n; i++) {
        const ritz_stage *s = &ritz->net.stages[i];
        snprintf(name, sizeof name, "%s.weight", s->name);
        int failed = safetensors_declare(writer, name, ritz->net.type, 2, (const int64_t[]){s->rows, s->cols}, e);
        snprintf(name, sizeof name, "%s.bias", s->name);
        if (failed >= 0)
            failed = safetensors_declare(writer, name, ritz->net.type, 1, &s->rows, e);
        if (failed < 0)
            return failed;
    }
    return safetensors_begin(writer, e);
}

/* The address of a stage's value while its chunk is in ritz->staging. */
static char *staged(const pt_ritz *ritz, int stage, int64_t value)
{
    return ritz->staging + (uint64_t)(value - ritz->space.chunks[ritz->space.chunk_of_stage[stage]].value0) * dtype_bytes(ritz->net.type);
}

static bool begins_chunk(const pt_ritz *ritz, int stage) { return stage == ritz->space.chunks[ritz->space.chunk_of_stage[stage]].stage0; }

static bool ends_chunk(const pt_ritz *ritz, int stage)
{
    const ritz_chunk *c = &ritz->space.chunks[ritz->space.chunk_of_stage[stage]];
    return stage + 1 == c->stage0 + c->stages_n;
}

int ritz_write_network(pt_ritz *ritz, const char *folder, pt_error *e)
{
    const uint64_t each = dtype_bytes(ritz->net.type);
    safetensors_writer *writer;
    int failed = safetensors_writer_open(folder, "network", 0, &writer, e);
    if (failed)
        return failed;
    failed = declare(ritz, writer, e);
    for (int i = 0; i < ritz->net.stages_n && !failed; i++) {
        const ritz_stage *s = &ritz->net.stages[i];
        if (begins_chunk(ritz, i))
            failed = ritz_slab(ritz, OBJECT_WEIGHTS, 0, ritz->space.chunk_of_stage[i], true, e);
        if (!failed)
            failed = safetensors_append(writer, 2 * i, staged(ritz, i, s->weight_at), (uint64_t)(s->rows * s->cols) * each, e);
        if (!failed)
            failed = safetensors_append(writer, 2 * i + 1, staged(ritz, i, s->bias_at), (uint64_t)s->rows * each, e);
    }
    if (!failed)
        failed = safetensors_finish(writer, e);
    safetensors_writer_close(writer);
    return failed;
}

/* Finds a tensor that must have n values of the network's type. */
static int find_one(const pt_ritz *ritz, const safetensors *st, const char *path, const char *name, int64_t n,
                    const safetensors_tensor **tensor, pt_error *e)
{
    *tensor = safetensors_find(st, name);
    if (*tensor && (*tensor)->dtype_is_known && (*tensor)->dtype == ritz->net.type && (int64_t)(*tensor)->elements == n)
        return 0;
    return pt_fail(e, PT_FAILED, "%s: %s with %lld values of %s is missing: the files do not belong together", path, name, (long long)n,
                   dtype_name(ritz->net.type));
}

static int read_one(const pt_ritz *ritz, const safetensors *st, const char *path, const char *name, int64_t n, char *to, pt_error *e)
{
    const safetensors_tensor *tensor;
    int failed = find_one(ritz, st, path, name, n, &tensor, e);
    return failed ? failed : safetensors_read(st, tensor, 0, tensor->bytes, to, e);
}

static int open_tensors(const char *folder, const char *file, char path[FILE_PATH_BYTES], safetensors **st, pt_error *e)
{
    int failed = path_join(path, folder, file, e);
    return failed ? failed : safetensors_open(path, st, e);
}

int ritz_read_network(pt_ritz *ritz, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES], name[48];
    safetensors *st;
    int failed = open_tensors(folder, "network.safetensors", path, &st, e);
    if (failed)
        return failed;
    for (int i = 0; i < ritz->net.stages_n && !failed; i++) {
        const ritz_stage *s = &ritz->net.stages[i];
        snprintf(name, sizeof name, "%s.weight", s->name);
        failed = read_one(ritz, st, path, name, s->rows * s->cols, staged(ritz, i, s->weight_at), e);
        snprintf(name, sizeof name, "%s.bias", s->name);
        if (!failed)
            failed = read_one(ritz, st, path, name, s->rows, staged(ritz, i, s->bias_at), e);
        if (!failed && ends_chunk(ritz, i))
            failed = ritz_slab(ritz, OBJECT_WEIGHTS, 0, ritz->space.chunk_of_stage[i], false, e);
    }
    safetensors_close(st);
    return failed;
}

int ritz_init(pt_ritz *ritz, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, "network.safetensors", e);
    if (!failed && !path_exists(path))
        failed = pt_fail(e, PT_USAGE, "`init_run` is %.400s, which has no network.safetensors: give the `out` of a run, or a checkpoint "
                                      "in it", folder);
    return failed ? failed : ritz_read_network(ritz, folder, e);
}

static const char *const state_names[] = {"m", "v"};

int ritz_write_states(pt_ritz *ritz, const char *folder, pt_error *e)
{
    safetensors_writer *writer;
    int failed = safetensors_writer_open(folder, "states", 0, &writer, e);
    if (failed)
        return failed;
    for (int i = 0; i < 2 && failed >= 0; i++)
        failed = safetensors_declare(writer, state_names[i], ritz->net.type, 1, &ritz->net.params, e);
    failed = failed < 0 ? failed : safetensors_begin(writer, e);
    for (int i = 0; i < 2 && !failed; i++) {
        for (int c = 0; c < ritz->space.chunks_n && !failed; c++) {
            failed = ritz_slab(ritz, OBJECT_STATES, i, c, true, e);
            if (!failed)
                failed =
                    safetensors_append(writer, i, ritz->staging, (uint64_t)ritz->space.chunks[c].values * dtype_bytes(ritz->net.type), e);
        }
    }
    if (!failed)
        failed = safetensors_finish(writer, e);
    safetensors_writer_close(writer);
    return failed;
}

int ritz_read_states(pt_ritz *ritz, const char *folder, pt_error *e)
{
    const uint64_t each = dtype_bytes(ritz->net.type);
    char path[FILE_PATH_BYTES];
    safetensors *st;
    int failed = open_tensors(folder, "states.safetensors", path, &st, e);
    if (failed)
        return failed;
    for (int i = 0; i < 2 && !failed; i++) {
        const safetensors_tensor *tensor;
        failed = find_one(ritz, st, path, state_names[i], ritz->net.params, &tensor, e);
        for (int c = 0; c < ritz->space.chunks_n && !failed; c++) {
            const ritz_chunk *chunk = &ritz->space.chunks[c];
            failed = safetensors_read(st, tensor, (uint64_t)chunk->value0 * each, (uint64_t)chunk->values * each, ritz->staging, e);
            if (!failed)
                failed = ritz_slab(ritz, OBJECT_STATES, i, c, false, e);
        }
    }
    safetensors_close(st);
    return failed;
}
