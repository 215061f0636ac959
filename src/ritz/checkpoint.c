/* checkpoint.c - what a run leaves in its output folder.
 *
 *     OUT/metrics.jsonl              a line a step; a resumed run cuts it back to the step that it goes on from
 *     OUT/checkpoint-STEP/           network.safetensors, states.safetensors (m, v), state.json: the step, and what the bits depend on
 *     OUT/network.safetensors, config.json   at the end
 */
#include "base/json.h"
#include "io/safetensors.h"
#include "ritz/config.h"
#include "ritz/solver.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tensors ---- */

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

/* Of a stage whose chunk lies in r->staging. */
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

/* The tensor of this name, as it is stored, whole. */
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

static const char *const state_names[] = {"m", "v"};

static int write_states(pt_ritz *r, const char *folder, pt_error *e)
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

static int read_states(pt_ritz *r, const char *folder, pt_error *e)
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

/* ---- checkpoints ---- */

/* What a resumed run has to have too, or its bits would be those of no run. */
static json_t *task_json(const pt_ritz *r)
{
    json_t *task = ritz_network_json(&r->net);
    json_object_set_new(task, "problem", json_string(r->problem.name));
    json_object_set_new(task, "points", json_string(points_names[r->o.points]));
    json_object_set_new(task, "randomize", json_string(randomize_names[r->o.randomize]));
    json_object_set_new(task, "n", json_integer(r->o.n));
    json_object_set_new(task, "n_boundary", json_integer(r->boundary_n));
    json_object_set_new(task, "redraw_every", json_integer(r->o.redraw_every));
    json_object_set_new(task, "seed", json_integer((json_int_t)r->o.seed));
    json_object_set_new(task, "unit", json_integer(r->unit_rows));
    return task;
}

static int write_state(const pt_ritz *r, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, "state.json", e);
    if (failed)
        return failed;
    json_t *state = json_pack("{s:I,s:s,s:o}", "step", (json_int_t)r->step, "arithmetic", r->device->info.arithmetic, "task", task_json(r));
    failed = file_write_json(path, state, e);
    json_decref(state);
    return failed;
}

static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "checkpoint-", 11) || name[11] < '0' || name[11] > '9')
        return -1;
    const long long step = strtoll(name + 11, &end, 10);
    return *end ? -1 : step;
}

/* The newest checkpoint below `limit`, -1: none; *count: all of them. */
static int64_t newest_below(const char *folder, int64_t limit, int *count)
{
    DIR *d = opendir(folder);
    int64_t newest = -1;
    *count = 0;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        const int64_t step = step_of(entry->d_name);
        *count += step >= 0 && step < limit;
        newest = step < limit && step > newest ? step : newest;
    }
    if (d)
        closedir(d);
    return newest;
}

static int checkpoint_path(const pt_ritz *r, int64_t step, char path[FILE_PATH_BYTES], pt_error *e)
{
    char name[40];
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    return path_join(path, r->out, name, e);
}

static int remove_old(const pt_ritz *r, pt_error *e)
{
    int64_t limit = INT64_MAX;
    int count;
    for (int kept = 0; r->o.keep; kept++) {
        char path[FILE_PATH_BYTES];
        limit = newest_below(r->out, limit, &count);
        if (limit < 0)
            break;
        int failed = kept < r->o.keep ? 0 : checkpoint_path(r, limit, path, e);
        if (!failed && kept >= r->o.keep)
            failed = tree_discard(path, e);
        if (failed)
            return failed;
    }
    return 0;
}

int pt_ritz_save(pt_ritz *r, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    dir_stage stage;
    if (!r)
        return pt_fail_null(e, "pt_ritz_save", "run");
    if (!r->o.out)
        return pt_fail(e, PT_USAGE, "the run has no output folder");
    int failed = checkpoint_path(r, r->step, path, e);
    if (!failed)
        failed = dir_stage_begin(&stage, path, e);
    if (failed)
        return failed;
    failed = ritz_write_network(r, stage.path, e);
    if (!failed)
        failed = write_states(r, stage.path, e);
    if (!failed)
        failed = write_state(r, stage.path, e);
    if (!failed && r->metrics && (fflush(r->metrics) || (fsync(fileno(r->metrics)) && errno != EINVAL)))
        failed = pt_fail_errno(e, PT_FAILED, "%s/metrics.jsonl cannot be written", r->out);
    if (failed) {
        dir_stage_abort(&stage);
        return failed;
    }
    failed = dir_stage_commit(&stage, e);
    return failed ? failed : remove_old(r, e);
}

int ritz_resume(pt_ritz *r, pt_error *e)
{
    char path[FILE_PATH_BYTES], file[FILE_PATH_BYTES];
    int count;
    dir_stages_put_back(r->out, "checkpoint-0");
    const int64_t step = newest_below(r->out, INT64_MAX, &count);
    if (step < 0) {
        ritz_notice(r, "%s has no checkpoint: the run starts with step 1", r->out);
        return 0;
    }
    json_source state;
    char arithmetic[128];
    int failed = checkpoint_path(r, step, path, e);
    if (!failed)
        failed = path_join(file, path, "state.json", e);
    if (!failed)
        failed = json_source_file(&state, file, "a checkpoint's state", e);
    if (failed)
        return failed;
    json_t *task = task_json(r);
    failed = ritz_state_parse(&state, task, &r->step, arithmetic, e);
    json_decref(task);
    json_source_close(&state);
    if (!failed && strcmp(arithmetic, r->device->info.arithmetic))
        ritz_notice(r, "the run was computed by %.100s and continues on %.100s: its last bits will differ", arithmetic,
                    r->device->info.arithmetic);
    if (!failed)
        failed = ritz_read_network(r, path, e);
    if (!failed)
        failed = read_states(r, path, e);
    r->first_step = r->step;
    return failed;
}

int pt_ritz_finish(pt_ritz *r, pt_error *e)
{
    if (!r)
        return pt_fail_null(e, "pt_ritz_finish", "run");
    if (!r->o.out)
        return 0;
    int failed = pt_ritz_save(r, e);
    if (!failed)
        failed = ritz_write_network(r, r->out, e);
    return failed ? failed : ritz_config_write(r->out, &r->net, &r->problem, e);
}

int pt_ritz_load(const char *folder, int threads, pt_ritz **out, pt_error *e)
{
    if (!folder || !out)
        return pt_fail_null(e, "pt_ritz_load", folder ? "out" : "folder");
    *out = NULL;
    pt_ritz *r = calloc(1, sizeof *r);
    if (!r)
        return pt_fail(e, PT_FAILED, "out of memory");
    pt_ritz_defaults(&r->o);
    r->o.n = 1;
    r->o.device = "cpu";
    r->o.threads = threads;
    r->problem.energy = NAN;
    int failed = ritz_config_read(folder, &r->o, &r->problem, e);
    if (!failed)
        failed = ritz_open_network(r, false, NULL, NULL, e);
    if (!failed)
        failed = ritz_read_network(r, folder, e);
    if (failed)
        pt_ritz_close(r);
    else
        *out = r;
    return failed;
}

/* ---- metrics.jsonl ---- */

/* Bytes of the leading lines whose step is at most `step`. */
static off_t bytes_until(const char *path, int64_t step)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    off_t bytes = 0;
    for (ssize_t n; f && (n = getline(&line, &room, f)) > 0; bytes += n) {
        json_t *object = line[n - 1] == '\n' ? json_loads(line, 0, NULL) : NULL;
        const json_int_t at = json_integer_value(json_object_get(object, "step"));
        json_decref(object);
        if (at < 1 || at > step)
            break;
    }
    free(line);
    if (f)
        fclose(f);
    return bytes;
}

int ritz_metrics_open(pt_ritz *r, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, r->out, "metrics.jsonl", e);
    if (failed)
        return failed;
    const off_t keep = bytes_until(path, r->step);
    r->metrics = fopen(path, "ae");
    if (!r->metrics || ftruncate(fileno(r->metrics), keep))
        return pt_fail_errno(e, PT_FAILED, "%s cannot be written", path);
    return 0;
}

int ritz_metrics_write(pt_ritz *r, const pt_ritz_step_info *s, pt_error *e)
{
    if (!r->metrics)
        return 0;
    fprintf(r->metrics, "{\"step\":%lld,\"energy\":%.17g,\"lr\":%.9g,\"step_s\":%.6g", (long long)s->step, s->energy, s->lr, s->step_s);
    if (r->forecast.step_ns > 0)
        fprintf(r->metrics, ",\"predicted_step_s\":%.6g", r->forecast.step_ns / 1e9);
    for (int t = 0; t < TIERS; t++)
        if (r->forecast.bytes[t])
            fprintf(r->metrics, ",\"%s_peak_bytes\":%llu,\"%s_predicted_bytes\":%llu", tier_names[t],
                    (unsigned long long)ritz_peak_bytes(r, (tier)t), tier_names[t], (unsigned long long)r->forecast.bytes[t]);
    if (s->evaluated && isfinite(s->l2_error) && isfinite(s->h1_error))
        fprintf(r->metrics, ",\"l2_error\":%.17g,\"h1_error\":%.17g", s->l2_error, s->h1_error);
    fputs("}\n", r->metrics);
    return fflush(r->metrics) ? pt_fail_errno(e, PT_FAILED, "%s/metrics.jsonl cannot be written", r->out) : 0;
}
