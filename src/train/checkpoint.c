/* checkpoint.c - what survives.
 *
 *   OUT/checkpoint-STEP/                a Hugging Face model: config.json, tokenizer files, and
 *       model.safetensors               the weights in the model's own dtype
 *       trainer/trainer.json            counters; of model and options what the result depends on; the arithmetic
 *       trainer/NAME.safetensors        what the optimizer keeps of what is trained, as it keeps it, under the weights' names: exp_avg
 *                                       (first moments), exp_avg_sq (second moments) ...
 *       trainer/master.safetensors      fp32 weights, where model.safetensors is not fp32; without frozen ones that are bf16 there
 *
 * The folder is written under a temporary name, synced, and renamed: it is complete or not there. It knows
 * nothing of chunks, tiers or plans; the position in the data is the number of samples taken.
 */
#include "train/trainer.h"

#include "io/safetensors.h"
#include "model/lanes.h"
#include "model/weights.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT_VERSION = 3 };

#define SUM_FORMAT "%016llx"

/* ---- writing ---- */

static int write_model(trainer *t, state *s, const char *folder, pt_error *e)
{
    int failed = companions_write(&t->companions, folder, t->save_type, t->model->config.model_type, e);
    return failed ? failed : state_export(s, folder, "model", t->save_type, t->layout, e);
}

/* Whether model.safetensors says all of what is frozen: then master.safetensors has what is trained alone. */
static bool model_holds_frozen(const trainer *t) { return t->model->stored_bf16 && t->save_type == PT_BF16; }

static json_t *sums_json(const schedule_input *in, const uint64_t sums[STATE_KINDS_MOST])
{
    json_t *all = json_object();
    for (int k = 0; k < state_kinds(in); k++)
        json_object_set_new(all, state_name(in, k), json_sprintf(SUM_FORMAT, (unsigned long long)sums[k]));
    return all;
}

static int write_counters(const trainer *t, const char *folder, const char *arithmetic, json_t *sums, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_t *all = json_pack("{s:i, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o}", "version", CHECKPOINT_VERSION, "step",
                            (json_int_t)t->step, "steps", (json_int_t)t->steps, "samples", (json_int_t)(t->step * t->shape.batch), "tokens",
                            (json_int_t)t->tokens, "arithmetic", arithmetic, "model", model_json(&t->model->config), "settings",
                            settings_json(t), "sums", sums);
    if (all && !model_trains_all(t->model))
        json_object_set_new(all, "frozen_bf16", json_boolean(t->model->stored_bf16));
    int failed = all ? path_join(path, folder, "trainer.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, all, e);
    json_decref(all);
    return failed;
}

static int write_trainer(trainer *t, state *s, const char *folder, pt_error *e)
{
    uint64_t sums[STATE_KINDS_MOST];
    int failed = dir_make(folder, e);
    for (int k = t->save_type == PT_F32 ? STATE_MASTER + 1 : STATE_MASTER; k < state_kinds(s->in) && !failed; k++)
        failed = state_export_kind(s, k, model_holds_frozen(t), folder, e);
    if (!failed)
        failed = state_sums(s, sums, e);
    return failed ? failed : write_counters(t, folder, t->planning.device->info.arithmetic, sums_json(s->in, sums), e);
}

int checkpoint_path(const trainer *t, int64_t step, char path[FILE_PATH_BYTES], pt_error *e)
{
    char name[48];
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    return path_join(path, t->out, name, e);
}

int64_t checkpoint_step(const char *name)
{
    static const char prefix[] = "checkpoint-";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return -1;
    const char *digits = name + sizeof prefix - 1;
    size_t n = strspn(digits, "0123456789");
    return n && n < 18 && !digits[n] && (n == 1 || digits[0] != '0') ? strtoll(digits, NULL, 10) : -1;
}

/* The complete checkpoint in the output folder with the highest step not above `limit`; -1: none. */
static int64_t newest_checkpoint(const trainer *t, int64_t limit)
{
    DIR *d = opendir(t->out);
    int64_t newest = -1;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char path[FILE_PATH_BYTES * 2];
        int64_t step = checkpoint_step(entry->d_name);
        snprintf(path, sizeof path, "%s/%s/trainer/trainer.json", t->out, entry->d_name);
        if (step < 0 || step > limit || !path_exists(path))
            continue;
        newest = step > newest ? step : newest;
    }
    if (d)
        closedir(d);
    return newest;
}

/* Puts checkpoint-STEP under a name that is no checkpoint's: checkpoint-STEP.old, or .old-2 ... */
static int put_away(const trainer *t, int64_t step, char name[64], pt_error *e)
{
    char from[FILE_PATH_BYTES], to[FILE_PATH_BYTES];
    int failed = checkpoint_path(t, step, from, e);
    for (int i = 1; !failed; i++) {
        snprintf(name, 64, i == 1 ? "checkpoint-%lld.old" : "checkpoint-%lld.old-%d", (long long)step, i);
        failed = path_join(to, t->out, name, e);
        if (!failed && !path_exists(to))
            break;
    }
    if (!failed && rename(from, to))
        failed = pt_fail_errno(e, PT_FAILED, "%.400s: a checkpoint of a later step than the one to resume from cannot be renamed", from);
    return failed;
}

int checkpoint_put_later_away(const trainer *t, pt_error *e)
{
    char name[64];
    for (int64_t step = newest_checkpoint(t, INT64_MAX); step > t->step; step = newest_checkpoint(t, INT64_MAX)) {
        int failed = put_away(t, step, name, e);
        if (failed)
            return failed;
        trainer_notice(t, "checkpoint-%lld is of a run that this one goes another way than: it is %s now", (long long)step, name);
    }
    return 0;
}

bool checkpoint_of_others(const trainer *t, char path[FILE_PATH_BYTES])
{
    DIR *d = opendir(t->out);
    bool found = false;
    for (struct dirent *entry; d && !found && (entry = readdir(d));) {
        char file[FILE_PATH_BYTES];
        found = checkpoint_step(entry->d_name) >= 0 && !path_join(path, t->out, entry->d_name, NULL) &&
                !path_join(file, path, "trainer/trainer.json", NULL) && !path_exists(file);
    }
    if (d)
        closedir(d);
    return found;
}

int checkpoint_count(const trainer *t)
{
    int n = 0;
    for (int64_t step = newest_checkpoint(t, t->step); step >= 0; step = newest_checkpoint(t, step - 1))
        n++;
    return n;
}

void checkpoint_add_advice(const trainer *t, pt_error *e)
{
    int64_t step = newest_checkpoint(t, t->step);
    size_t n = e ? strlen(e->text) : 0;
    if (!e)
        return;
    if (step >= 0)
        snprintf(e->text + n, sizeof e->text - n, "; checkpoint-%lld stands, --resume goes on from there", (long long)step);
    else
        snprintf(e->text + n, sizeof e->text - n, "; the run has no checkpoint yet");
}

/* Keeps the newest `keep` checkpoints up to this step. */
static int prune(const trainer *t, pt_error *e)
{
    int64_t limit = t->step;
    for (int kept = 0; t->o.keep; kept++) {
        char path[FILE_PATH_BYTES];
        int64_t step = newest_checkpoint(t, limit);
        if (step < 0)
            break;
        limit = step - 1;
        if (kept < t->o.keep)
            continue;
        int failed = checkpoint_path(t, step, path, e);
        if (!failed)
            failed = tree_discard(path, e);
        if (failed)
            return failed;
    }
    return 0;
}

int checkpoint_write(trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES], folder[FILE_PATH_BYTES];
    dir_stage stage;
    int failed = trainer_drain(t, e);
    if (!failed)
        failed = checkpoint_path(t, t->step, path, e);
    if (!failed && t->saved_step == t->step && path_exists(path))
        return 0;
    if (!failed)
        failed = dir_stage_begin(&stage, path, e);
    if (failed)
        return failed;
    trainer_progress(t, "saving", 0, 2);
    state s;
    state_open(&s, t->x);
    failed = write_model(t, &s, stage.path, e);
    trainer_progress(t, "saving", 1, 2);
    if (!failed)
        failed = path_join(folder, stage.path, "trainer", e);
    if (!failed)
        failed = write_trainer(t, &s, folder, e);
    state_close(&s, NULL);
    if (!failed)
        failed = metrics_sync(t, e);
    if (failed) {
        dir_stage_abort(&stage);
        return failed;
    }
    failed = dir_stage_commit(&stage, e);
    trainer_progress(t, "saving", 2, 2);
    if (failed)
        return failed;
    t->saved_step = t->step;
    return 0;
}

int checkpoint_save(trainer *t, pt_error *e)
{
    pt_error why;
    int failed = checkpoint_write(t, e);
    if (!failed && prune(t, &why)) /* the new one is complete: no reason to end the run */
        trainer_notice(t, "an older checkpoint stays: %.600s", why.text);
    return failed;
}

/* When a file of a model takes its final name: what config.json speaks of is there when it is. */
static int move_turn(const char *name)
{
    size_t n = strlen(name);
    return strcmp(name, "config.json") == 0 ? 2 : n > 5 && strcmp(name + n - 5, ".json") == 0;
}

/* Files of a model into the output folder: staged beside their final place, then renamed one by one. */
static int move_files(const char *from, const char *to, pt_error *e)
{
    for (int turn = 0; turn < 3; turn++) {
        DIR *d = opendir(from);
        if (!d)
            return pt_fail_errno(e, PT_FAILED, "%s cannot be read", from);
        for (struct dirent *entry; (entry = readdir(d));) {
            char a[FILE_PATH_BYTES], b[FILE_PATH_BYTES];
            if (entry->d_name[0] == '.' || move_turn(entry->d_name) != turn)
                continue;
            int failed = path_join(a, from, entry->d_name, e);
            if (!failed)
                failed = path_join(b, to, entry->d_name, e);
            if (!failed && rename(a, b) < 0)
                failed = pt_fail_errno(e, PT_FAILED, "%s cannot be renamed to %s", a, b);
            if (failed) {
                closedir(d);
                return failed;
            }
        }
        closedir(d);
    }
    return dir_sync(to, e);
}

int model_export(trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    dir_stage stage;
    int failed = trainer_drain(t, e);
    if (!failed)
        failed = path_join(path, t->out, "model", e);
    if (!failed)
        failed = dir_stage_begin(&stage, path, e);
    if (failed)
        return failed;
    trainer_progress(t, "saving", 0, 1);
    state s;
    state_open(&s, t->x);
    failed = write_model(t, &s, stage.path, e);
    state_close(&s, NULL);
    if (!failed)
        failed = move_files(stage.path, t->out, e);
    dir_stage_abort(&stage);
    trainer_progress(t, "saving", 1, 1);
    return failed;
}

/* ---- resuming ---- */

int checkpoint_newest(const trainer *t, char path[FILE_PATH_BYTES], pt_error *e)
{
    DIR *d = opendir(t->out);
    path[0] = 0;
    if (!d) /* nothing seen is not nothing there */
        return pt_fail_errno(e, PT_FAILED, "%.400s cannot be looked through for checkpoints", t->out);
    closedir(d);
    int64_t step = newest_checkpoint(t, INT64_MAX);
    return step < 0 ? 0 : checkpoint_path(t, step, path, e);
}

int checkpoint_present(const char *path, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    int failed = path_join(file, path, "trainer/trainer.json", e);
    if (!failed && !path_exists(file))
        failed = pt_fail(e, PT_FAILED, "%s is not a checkpoint: it has no trainer/trainer.json; give a folder checkpoint-STEP of a run, or "
                         "--out RUN --resume", path);
    return failed;
}

/* More steps stretch what is left of a schedule: the next rate is another than it would have been. */
static void tell_new_rate(const trainer *t, int64_t steps)
{
    const int64_t next = t->step + 1, before = next <= steps ? next : t->step;
    if (t->steps == steps || t->o.lr_schedule == PT_LR_CONSTANT || !t->step || next > t->steps || next <= t->o.warmup_steps)
        return;
    const double rate = lr_of_step(&t->o, next, t->steps), was = lr_of_step(&t->o, before, steps);
    if (before == next)
        trainer_notice(t, "the run has %lld steps now and had %lld: the learning rate of step %lld is %.3g and would have been %.3g",
                       (long long)t->steps, (long long)steps, (long long)next, rate, was);
    else
        trainer_notice(t, "the run has %lld steps now and had %lld: the learning rate of step %lld is %.3g, after %.3g in step %lld",
                       (long long)t->steps, (long long)steps, (long long)next, rate, was, (long long)before);
}

/* What was not asked for stays as it was. */
static int take_lanes(trainer *t, const json_source *file, pt_error *e)
{
    json_source settings;
    int64_t lanes = 1;
    int failed = json_get_object(file, "settings", JSON_REQUIRED, &settings, e);
    if (!failed)
        failed = json_get_int(&settings, "lanes", JSON_OPTIONAL, 1, LANES_MOST, &lanes, e);
    if (!failed && !t->o.lanes && t->shape.batch % lanes == 0) /* else it is of another batch, which is said */
        step_shape_in_lanes(&t->shape, t->model, (int)lanes);
    return failed;
}

int checkpoint_read_counters(trainer *t, const char *path, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    json_source s;
    int failed = checkpoint_present(path, e);
    if (!failed)
        failed = path_join(file, path, "trainer/trainer.json", e);
    if (!failed)
        failed = json_source_open(&s, file, e);
    if (failed)
        return failed;
    int64_t version, samples, steps;
    failed = json_get_int(&s, "version", JSON_REQUIRED, CHECKPOINT_VERSION, CHECKPOINT_VERSION, &version, e);
    if (!failed)
        failed = take_lanes(t, &s, e);
    if (!failed)
        failed = settings_compare(t, path, &s, e);
    if (!failed)
        failed = json_get_bool(&s, "frozen_bf16", JSON_OPTIONAL, &t->model->stored_bf16, e);
    if (!failed)
        failed = json_get_int(&s, "step", JSON_REQUIRED, 0, INT64_MAX / 2 / t->shape.batch, &t->step, e);
    if (!failed)
        failed = json_get_int(&s, "steps", JSON_REQUIRED, 1, INT64_MAX / 2, &steps, e);
    if (!failed)
        failed = json_get_int(&s, "tokens", JSON_REQUIRED, 0, INT64_MAX / 2, &t->tokens, e);
    if (!failed)
        failed = json_get_int(&s, "samples", JSON_REQUIRED, t->step * t->shape.batch, t->step * t->shape.batch, &samples, e);
    json_source_close(&s);
    if (!failed && t->step > t->steps)
        failed = pt_fail(e, PT_FAILED, "%s stands at step %lld, behind the last one, %lld: raise --steps", path, (long long)t->step,
                         (long long)t->steps);
    if (!failed && t->steps < steps && t->o.lr_schedule != PT_LR_CONSTANT)
        failed = pt_fail(e, PT_FAILED, "%s was written with --steps %lld and this run has %lld: the learning rate depends on it, "
                                       "and it may only grow; give --steps %lld or more", path, (long long)steps, (long long)t->steps,
                         (long long)steps);
    t->first_step = t->step;
    if (!failed)
        tell_new_rate(t, steps);
    return failed;
}

static void compare_arithmetic(const trainer *t, const char *path)
{
    char file[FILE_PATH_BYTES];
    json_source s;
    const char *before;
    if (path_join(file, path, "trainer/trainer.json", NULL) || json_source_open(&s, file, NULL))
        return;
    if (!json_get_string(&s, "arithmetic", JSON_REQUIRED, &before, NULL) && strcmp(before, t->planning.device->info.arithmetic) != 0)
        trainer_notice(t, "the checkpoint was computed with %s and this run computes with %s: the bits may differ from here on", before,
                       t->planning.device->info.arithmetic);
    json_source_close(&s);
}

/* FP32 weights are the masters themselves. */
static const char *state_file(const trainer *t, const state *s, int kind, char name[64])
{
    snprintf(name, 64, "trainer/%s.safetensors", state_name(s->in, kind));
    return kind == STATE_MASTER && t->save_type == PT_F32 ? "model.safetensors" : name;
}

/* What is frozen from the model beside it. */
static int load_master(state *s, const char *checkpoint, const safetensors *trained, pt_error *e)
{
    safetensors *all;
    int failed = safetensors_open(checkpoint, &all, e);
    if (failed)
        return failed;
    failed = state_load_beside(s, trained, all, e);
    safetensors_close(all);
    return failed;
}

static int load_kind(const trainer *t, state *s, int kind, const char *checkpoint, pt_error *e)
{
    char path[FILE_PATH_BYTES], name[64];
    safetensors *st;
    int failed = path_join(path, checkpoint, state_file(t, s, kind, name), e);
    if (!failed)
        failed = safetensors_open(path, &st, e);
    if (failed)
        return failed;
    if (kind != STATE_MASTER)
        failed = state_load_kind(s, kind, st, e);
    else
        failed = model_holds_frozen(t) ? load_master(s, checkpoint, st, e) : state_load(s, st, e);
    safetensors_close(st);
    return failed;
}

/* A bit that flipped on the disk, or the file of another step, would go on unseen otherwise. */
static int compare_sums(const trainer *t, state *s, const char *checkpoint, const json_source *sums, pt_error *e)
{
    uint64_t now[STATE_KINDS_MOST];
    const char *before;
    char text[20], name[64];
    int failed = state_sums(s, now, e);
    for (int k = 0; k < state_kinds(s->in) && !failed; k++) {
        failed = json_get_string(sums, state_name(s->in, k), JSON_REQUIRED, &before, e);
        snprintf(text, sizeof text, SUM_FORMAT, (unsigned long long)now[k]);
        if (!failed && strcmp(before, text))
            failed = pt_fail(e, PT_FAILED, "%.400s/%s: these are not the values that were saved with trainer/trainer.json: one of the two "
                                           "is damaged or of another checkpoint; go on from another one with --resume DIR", checkpoint,
                             state_file(t, s, k, name));
    }
    return failed;
}

static int check_sums(const trainer *t, state *s, const char *checkpoint, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    json_source all, sums;
    int failed = path_join(file, checkpoint, "trainer/trainer.json", e);
    if (!failed)
        failed = json_source_open(&all, file, e);
    if (failed)
        return failed;
    failed = json_get_object(&all, "sums", JSON_REQUIRED, &sums, e);
    if (!failed)
        failed = compare_sums(t, s, checkpoint, &sums, e);
    json_source_close(&all);
    return failed;
}

/* `path` cannot be read: names the newest one before it. */
static void add_older(const trainer *t, const char *path, pt_error *e)
{
    const char *slash = strrchr(path, '/');
    const int64_t step = checkpoint_step(slash ? slash + 1 : path), older = step > 0 ? newest_checkpoint(t, step - 1) : -1;
    const size_t n = e ? strlen(e->text) : 0;
    if (e && older >= 0)
        snprintf(e->text + n, sizeof e->text - n, "; --resume '%.300s/checkpoint-%lld' goes on from an older one", t->out, (long long)older);
}

int checkpoint_load_state(trainer *t, const char *path, pt_error *e)
{
    int failed = 0;
    state s;
    compare_arithmetic(t, path);
    state_open(&s, t->x);
    for (int k = 0; k < state_kinds(s.in) && !failed; k++)
        failed = load_kind(t, &s, k, path, e);
    if (!failed)
        failed = check_sums(t, &s, path, e);
    int closed = state_close(&s, failed ? NULL : e);
    if (failed)
        add_older(t, path, e);
    return failed ? failed : closed;
}
