#include "train/output.h"

#include "base/path_share.h"
#include "model/adapter.h"
#include "options/run_file.h"
#include "report/memory_file.h"
#include "report/samples_file.h"
#include "train/checkpoints.h"
#include "train/commits.h"
#include "train/events.h"
#include "train/options.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does the output folder hold files of a run, or a model? *found names one, "" if not. */
static int find_traces(const output *out, char found[FILE_PATH_BYTES], pt_error *e)
{
    static const char *const traces[] = {"config.json", "metrics.jsonl", "plan.json", "model.safetensors", "model.safetensors.index.json",
                                         ADAPTER_CONFIG};
    char path[FILE_PATH_BYTES];
    int failed = checkpoints_find_newest(out->path, found, e);
    for (size_t i = 0; i < sizeof traces / sizeof *traces && !failed && !found[0]; i++) {
        failed = path_join(path, out->path, traces[i], e);
        if (!failed && path_exists(path))
            snprintf(found, FILE_PATH_BYTES, "%s", path);
    }
    return failed;
}

static bool is_out(const output *out, const char *path)
{
    struct stat a, b;
    return !stat(path, &a) && !stat(out->path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Does the checkpoint `path` lie in the output folder, itself or as a link checkpoint-N beside the run's other files? Then it belongs to
 * this run. */
static bool lies_in_out(const output *out, const char *path)
{
    char parent[FILE_PATH_BYTES], copy[FILE_PATH_BYTES], name[FILE_PATH_BYTES], metrics[FILE_PATH_BYTES];
    if (!path_join(parent, path, "..", NULL) && is_out(out, parent))
        return true;
    snprintf(copy, sizeof copy, "%s", path);
    snprintf(name, sizeof name, "%s", basename(copy));
    snprintf(copy, sizeof copy, "%s", path);
    return step_folder_number(name) >= 0 && is_out(out, dirname(copy)) && !path_join(metrics, out->path, "metrics.jsonl", NULL) &&
           path_exists(metrics);
}

/* A run that starts new, or from a checkpoint of another run, must not overwrite an existing one. */
static int refuse_other_run(const output *out, const char *from, pt_error *e)
{
    char found[FILE_PATH_BYTES];
    int failed = find_traces(out, found, e);
    if (failed || !found[0])
        return failed;
    if (from[0])
        return pt_fail(e, PT_FAILED,
                       "%.300s holds another run or a model (%.300s), which continuing from %.300s would overwrite: give a new `out`, or "
                       "the folder that the checkpoint is in",
                       out->path, found, from);
    return pt_fail(e, PT_FAILED, "%.300s already holds a run or a model (%.300s): give `resume` to continue it, or another `out`",
                   out->path, found);
}

static bool has(const output *out, const char *name)
{
    char path[FILE_PATH_BYTES];
    return !path_join(path, out->path, name, NULL) && path_exists(path);
}

/* If there is nothing to resume from (the run ended before its first checkpoint), only a finished model prevents a new start. */
static int start_without_checkpoint(output *out, const pt_train_options *o, pt_error *e)
{
    const bool model = has(out, "config.json"), adapter = has(out, ADAPTER_CONFIG);
    out->finished = (model || adapter) && has(out, FINISHED_FILE);
    if (out->finished)
        return 0;
    if (model || adapter)
        return pt_fail(e, PT_FAILED, "%.400s holds a trained %s but no checkpoint to resume from (`save_every` writes them): give `%s` "
                       "%.400s and another `out`", out->path, model ? "model" : "adapter", model ? "model" : "adapter", out->path);
    if (out->made)
        options_notice(o, "there is no folder %s to resume from: training starts from the beginning, in a new folder", out->path);
    else
        options_notice(o, "%s has no checkpoint to resume from: training starts from the beginning", out->path);
    out->found_empty = out->made;
    return 0;
}

/* The run's checkpoints must not replace those of another program. When resuming, such a folder may be a damaged checkpoint of this run. */
static int refuse_others(const output *out, bool resume, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    const int64_t newest = resume ? checkpoints_newest(out->path, INT64_MAX) : -1;
    if (!checkpoints_of_others(out->path, path))
        return 0;
    if (newest >= 0)
        return pt_fail(e, PT_FAILED,
                       "%.400s has no trainer/trainer.json, so it is damaged or a checkpoint of another program: move it away, and "
                       "`resume` continues from checkpoint-%lld",
                       path, (long long)newest);
    return pt_fail(e, PT_FAILED,
                   "%.400s is a checkpoint of another program, or the rest of one, and this run may write a checkpoint of that name: give "
                   "another `out`, or move it away",
                   path);
}

/* The newest checkpoint, or a later step that committed its states. */
static int find_newest(output *out, pt_error *e)
{
    int failed = checkpoints_find_newest(out->path, out->from, e);
    return failed ? failed : commits_find(out, checkpoints_newest(out->path, INT64_MAX), e);
}

static int choose_start(output *out, const pt_train_options *o, pt_error *e)
{
    char *from = out->from;
    int failed = 0;
    if (o->resume && o->resume_from)
        snprintf(from, FILE_PATH_BYTES, "%s", o->resume_from);
    else if (o->resume)
        failed = find_newest(out, e);
    if (!failed)
        failed = refuse_others(out, o->resume, e);
    if (!failed && from[0])
        failed = checkpoints_present(from, e);
    if (failed)
        return failed;
    if (o->resume && !from[0])
        return start_without_checkpoint(out, o, e);
    if (from[0] && lies_in_out(out, from))
        return 0;
    failed = refuse_other_run(out, from, e);
    out->found_empty = !failed;
    return failed;
}

/* A file that the run will write must not also be its data. */
static int refuse_data(const output *out, const pt_train_options *o, pt_error *e)
{
    for (int i = 0; i < o->data_n + o->eval_data_n; i++) {
        const char *path = i < o->data_n ? o->data[i] : o->eval_data[i - o->data_n];
        double share;
        char folder[FILE_PATH_BYTES];
        snprintf(folder, sizeof folder, "%.*s", (int)path_share(path, &share), path);
        if (is_out(out, folder))
            return pt_fail(e, PT_USAGE,
                           "%.400s is both a folder of data and `out`: what the run writes there would be read as data; give another `out`",
                           path);
    }
    return 0;
}

/* Removes what a killed run left incomplete, before disk space is checked. */
static void clean_out(const output *out)
{
    dir_stages_clean(out->path, "checkpoint-0");
    dir_stages_clean(out->path, "model");
}

void output_init(output *out) { out->lock.fd = -1; }

int output_claim(output *out, const pt_train_options *o, pt_error *e)
{
    snprintf(out->path, sizeof out->path, "%s", o->out);
    out->made = !path_exists(out->path);
    int failed = path_join(out->cache, out->path, "cache", e);
    out->found_cache = path_exists(out->cache);
    if (!failed)
        failed = dir_make(out->path, e);
    if (!failed)
        failed = dir_lock_take(&out->lock, out->path, e);
    if (!failed)
        failed = refuse_data(out, o, e);
    if (failed)
        return failed;
    dir_stages_put_back(out->path, "checkpoint-0"); /* it may be the newest */
    failed = choose_start(out, o, e);
    if (!failed)
        clean_out(out);
    return failed;
}

/* This file may be the user's, because a profile and a machine are read from any path. */
static bool is_given(const output *out, const pt_train_options *o, const char *file)
{
    return (!strcmp(file, "profile.json") && (o->profile_file || !out->wrote_profile)) ||
           (!strcmp(file, "machine.json") && (o->machine_file || !out->wrote_machine)) ||
           ((!strcmp(file, RUN_FILE) || !strcmp(file, "summary.json")) && !out->wrote_run);
}

void output_undo(const output *out, const pt_train_options *o)
{
    static const char *const files[] = {"plan.json", "machine.json", "profile.json", "metrics.jsonl", "reference.bin", "reference-eval.bin",
                                        EVENTS_NAME, SAMPLES_NAME, MEMORY_FILE, RUN_FILE, "summary.json"};
    char path[FILE_PATH_BYTES];
    for (size_t i = 0; out->found_empty && i < sizeof files / sizeof *files; i++)
        if (!is_given(out, o, files[i]) && !path_join(path, out->path, files[i], NULL))
            unlink(path);
    if (out->found_empty && !out->found_cache && out->cache[0])
        tree_remove(out->cache, NULL);
}

void output_close(output *out, bool undo)
{
    if (out->lock.fd >= 0)
        dir_lock_release(&out->lock);
    if (undo && out->made)
        rmdir(out->path);
}
