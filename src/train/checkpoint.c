/* checkpoint.c - writes and reads checkpoints.
 *
 *   OUT/checkpoint-STEP/                a Hugging Face model: config.json, tokenizer files, and
 *       model.safetensors               the weights in the model's own dtype; in a run that trains adapters (adapters.h) the adapters
 *                                       instead, and no config.json
 *       trainer/trainer.json            counters; what of model and options the result depends on; the arithmetic
 *       trainer/NAME.safetensors        the optimizer's slabs of trained parameters, as stored, under the weights' names: exp_avg (first
 *                                       moments), exp_avg_sq (second moments) ...
 *       trainer/master.safetensors      fp32 weights, if model.safetensors is not fp32; without frozen weights that are bf16 there or in
 *                                       few bits (base.h)
 *
 * The folder is written under a temporary name, synced, and renamed: it is complete or not there. It knows
 * nothing of chunks, tiers, plans or ranks; the position in the data is the number of samples taken. Where all ranks see the folder, each
 * writes what it keeps, at its place in the same files; else rank 0 gets all of it, some MiB at a time, and writes.
 *
 *   OUT/finished.json                   beside the trained model: the same as trainer.json, without checksums. A resumed run that finds the
 *                                       model and no checkpoint knows from it that nothing is left to do
 */
#include "train/checkpoint.h"

#include "device/arithmetic.h"
#include "io/safetensors.h"
#include "model/lanes.h"
#include "run/state.h"
#include "train/adapters.h"
#include "train/best.h"
#include "train/block_turns.h"
#include "train/checkpoints.h"
#include "train/options.h"
#include "train/ranks.h"
#include "train/settings.h"
#include "train/shared_stage.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT_VERSION = 3 };

#define CHECKSUM_FORMAT "%016llx"

/* ---- writing ---- */

/* `failed`: of what rank 0 has done alone. */
static int all_hear(const trainer *trainer, state *state, int failed, pt_error *e)
{
    failed = ranks_all(trainer, failed, e);
    state->agreed = state->agreed || failed;
    return failed;
}

static int write_model(trainer *trainer, state *state, const char *folder, pt_error *e)
{
    if (trainer->job.model->adapters)
        return adapters_write(state, &trainer->job.companions, folder, trainer->job.model_dir, trainer->job.base_mark, e);
    int failed = ranks_lead(trainer)
                     ? companions_write(&trainer->job.companions, folder, trainer->job.save_type, trainer->job.model->config.model_type, e)
                     : 0;
    failed = all_hear(trainer, state, failed, e);
    return failed ? failed : state_export(state, folder, "model", trainer->job.save_type, trainer->job.layout, e);
}

/* Does model.safetensors hold all frozen weights exactly? Then master.safetensors has only trained ones. */
static bool model_holds_frozen(const trainer *trainer) { return trainer->job.model->stored_bf16 && trainer->job.save_type == PT_BF16; }

static json_t *checksums_json(const schedule_input *in, const uint64_t checksums[STATE_KINDS_MOST])
{
    json_t *all = json_object();
    for (int k = 0; k < state_kinds(in); k++)
        json_object_set_new(all, state_name(in, k), json_sprintf(CHECKSUM_FORMAT, (unsigned long long)checksums[k]));
    return all;
}

json_t *checkpoint_counters(const trainer *trainer)
{
    const job *j = &trainer->job;
    const counters *at = &trainer->at;
    json_t *all =
        json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "version", CHECKPOINT_VERSION, "step", (json_int_t)at->step, "steps",
                  (json_int_t)j->steps, "samples", (json_int_t)(at->step * j->shape.batch), "tokens", (json_int_t)at->tokens,
                  "learned_tokens", (json_int_t)at->learned, "arithmetic", trainer->planning.device->info.arithmetic, "model",
                  model_json(&j->model->config), "settings", settings_json(j));
    if (all && !model_trains_all(trainer->job.model))
        json_object_set_new(all, "frozen_bf16", json_boolean(trainer->job.model->stored_bf16));
    if (all && j->model->adapters)
        json_object_set_new(all, "base", json_sprintf(CHECKSUM_FORMAT, (unsigned long long)j->base_sum));
    if (all && best_is_past(trainer))
        json_object_set_new(all, "patience", json_true());
    if (all && at->reference)
        json_object_set_new(all, "reference", json_sprintf(CHECKSUM_FORMAT, (unsigned long long)at->reference));
    if (all)
        base_write(&j->base, all);
    return all;
}

/* checksums: NULL for a model alone. */
static int write_counters(const trainer *trainer, const char *folder, const char *name, json_t *checksums, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_t *all = checkpoint_counters(trainer);
    if (all && checksums)
        json_object_set(all, "sums", checksums);
    json_decref(checksums);
    int failed = all ? path_join(path, folder, name, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, all, e);
    json_decref(all);
    return failed;
}

static int write_trainer(trainer *trainer, state *state, const char *folder, pt_error *e)
{
    uint64_t checksums[STATE_KINDS_MOST];
    int failed = all_hear(trainer, state, ranks_lead(trainer) ? dir_make(folder, e) : 0, e);
    for (int k = trainer->job.save_type == PT_F32 ? STATE_MASTER + 1 : STATE_MASTER; k < state_kinds(state->in) && !failed; k++)
        failed = state_export_kind(state, k, model_holds_frozen(trainer), folder, e);
    if (!failed)
        failed = state_checksums(state, checksums, e);
    if (failed)
        return failed;
    if (ranks_lead(trainer))
        failed = write_counters(trainer, folder, "trainer.json", checksums_json(state->in, checksums), e);
    return all_hear(trainer, state, failed, e);
}

/* The model, and of a checkpoint what the trainer has beside it. *agreed: that it failed is known to all ranks. */
static int write_files(trainer *trainer, const shared_stage *stage, bool whole, bool *agreed, pt_error *e)
{
    char folder[FILE_PATH_BYTES];
    state state;
    state_open(&state, trainer->engine.x);
    base_lend(&trainer->job.base, &state);
    int failed = state_share(&state, stage->seen, e);
    if (!failed)
        failed = !whole && best_is_earlier(trainer)
                     ? all_hear(trainer, &state, ranks_lead(trainer) ? best_copy(trainer, stage->path, e) : 0, e)
                     : write_model(trainer, &state, stage->path, e);
    options_progress(&trainer->job.o, "saving", 1, 1 + whole);
    if (!failed && whole)
        failed = path_join(folder, stage->path, "trainer", e);
    if (!failed && whole)
        failed = write_trainer(trainer, &state, folder, e);
    else if (!failed)
        failed = all_hear(trainer, &state, ranks_lead(trainer) ? write_counters(trainer, stage->path, FINISHED_FILE, NULL, e) : 0, e);
    *agreed = state.agreed;
    state_close(&state, NULL);
    return failed;
}

static int sync_lines(const trainer *trainer, pt_error *e)
{
    const int failed = step_lines_sync(&trainer->metrics, e);
    return failed ? failed : events_sync(&trainer->events, e);
}

static int commit_checkpoint(const trainer *trainer, dir_stage *stage, pt_error *e)
{
    const int failed = sync_lines(trainer, e);
    return failed ? failed : dir_stage_commit(stage, e);
}

/* All ranks together: what fails on one of them fails on all. */
static int write_staged(trainer *trainer, const char *path, bool whole, shared_stage_commit commit, pt_error *e)
{
    shared_stage stage;
    bool agreed;
    pt_error why = {0};
    options_progress(&trainer->job.o, "saving", 0, 1 + whole);
    int failed = shared_stage_begin(&stage, trainer, path, &why);
    if (!failed) {
        failed = write_files(trainer, &stage, whole, &agreed, &why);
        failed = shared_stage_end(&stage, trainer, failed, agreed, commit, &why);
    }
    options_progress(&trainer->job.o, "saving", 1 + whole, 1 + whole);
    if (failed && e)
        *e = why;
    return failed;
}

static int write_checkpoint(trainer *trainer, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = step_folder_path(trainer->out.path, trainer->at.step, path, e);
    bool there = !failed && trainer->at.saved_step == trainer->at.step && path_exists(path); /* as rank 0 sees it */
    if (!failed)
        failed = ranks_share(trainer, &there, sizeof there, e);
    return failed || there ? failed : write_staged(trainer, path, true, commit_checkpoint, e);
}

int checkpoint_write(trainer *trainer, pt_error *e)
{
    int failed = trainer_drain(trainer, e);
    if (!failed)
        failed = write_checkpoint(trainer, e);
    if (!failed)
        trainer->at.saved_step = trainer->at.step;
    return failed;
}

int checkpoint_save(trainer *trainer, pt_error *e)
{
    pt_error why;
    int failed = checkpoint_write(trainer, e);
    /* the new checkpoint is complete: a failure here does not end the run */
    const int64_t best = trainer->job.o.keep_best ? trainer->at.best_step : 0;
    if (!failed && ranks_lead(trainer) && checkpoints_prune(trainer->out.path, trainer->at.step, trainer->job.o.keep, best, &why))
        options_notice(&trainer->job.o, "an older checkpoint could not be removed: %.600s", why.text);
    return failed;
}

/* The order in which files of a model get their final names: last the one by which it counts as a model, or as an adapter. */
static int move_turn(const char *name)
{
    size_t n = strlen(name);
    return !strcmp(name, "config.json") || !strcmp(name, ADAPTER_CONFIG) ? 2 : n > 5 && strcmp(name + n - 5, ".json") == 0;
}

/* Writes files of a model into the output folder: each under a temporary name first, then renamed. */
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

static int commit_model(const trainer *trainer, dir_stage *stage, pt_error *e)
{
    const int failed = sync_lines(trainer, e);
    return failed ? failed : move_files(stage->path, trainer->out.path, e);
}

int model_export(trainer *trainer, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = trainer_drain(trainer, e);
    if (!failed)
        failed = path_join(path, trainer->out.path, "model", e);
    if (!failed)
        failed = best_check(trainer, e);
    if (!failed)
        failed = write_staged(trainer, path, false, commit_model, e);
    if (!failed)
        trainer->at.model_step = best_is_earlier(trainer) ? trainer->at.best_step : trainer->at.step;
    return failed;
}

/* ---- resuming ---- */

/* More steps lengthen the rest of the learning rate schedule, so the next rate differs from what it would have been. */
static void tell_new_rate(const trainer *trainer, int64_t steps)
{
    const pt_train_options *o = &trainer->job.o;
    const int64_t now = trainer->job.steps, next = trainer->at.step + 1, before = next <= steps ? next : trainer->at.step;
    if (now == steps || o->lr_schedule == PT_LR_CONSTANT || !trainer->at.step || next > now || next <= lr_warmup_steps(o, now))
        return;
    const double rate = lr_of_step(o, next, now), was = lr_of_step(o, before, steps);
    if (before == next)
        options_notice(o, "the run now has %lld steps instead of %lld: the learning rate of step %lld is %.3g and would have been %.3g",
                       (long long)now, (long long)steps, (long long)next, rate, was);
    else
        options_notice(o, "the run now has %lld steps instead of %lld: the learning rate of step %lld is %.3g, after %.3g in step %lld",
                       (long long)now, (long long)steps, (long long)next, rate, was, (long long)before);
}

/* Options that were not given keep the checkpoint's values. */
static int take_lanes(job *j, const json_source *file, pt_error *e)
{
    json_source settings;
    int64_t lanes = 1;
    int failed = json_get_object(file, "settings", JSON_REQUIRED, &settings, e);
    if (!failed)
        failed = json_get_int(&settings, "lanes", JSON_OPTIONAL, 1, LANES_MOST, &lanes, e);
    const bool fits = !lanes_check((int)lanes, "lanes", j->shape.batch, j->shape.seq_len, NULL);
    if (!failed && !j->o.lanes && fits) /* else it has another batch size, which is reported */
        step_shape_in_lanes(&j->shape, j->model, (int)lanes);
    return failed;
}

static int read_reference(trainer *trainer, const json_source *file, pt_error *e)
{
    const char *text = NULL;
    int n = 0, failed = json_get_string(file, "reference", JSON_OPTIONAL, &text, e);
    if (failed || !text)
        return failed;
    const bool good = sscanf(text, "%16" SCNx64 "%n", &trainer->at.reference, &n) == 1 && n == 16 && !text[n];
    return good ? 0 : pt_fail(e, PT_FAILED, "%s: \"reference\" is no checksum: the file is damaged", file->where);
}

static int check_types(const model *m, const optimizer *o, const char *name, const safetensors *st, pt_error *e)
{
    for (int i = 0; i < m->params_n; i++) {
        const update_rule *r = optimizer_rule(o, &m->params[i]);
        const int n = rule_find(r, name);
        for (int k = 0; n >= 0 && k < m->params[i].parts; k++) {
            const safetensors_tensor *tensor = safetensors_find(st, m->params[i].part[k].name);
            const pt_dtype type = r->slabs[n].type;
            if (tensor && tensor->dtype_is_known && tensor->dtype != type)
                return pt_fail(e, PT_FAILED,
                               "%s has \"%.80s\" in %s, and this version keeps it in %s for `optimizer` %s: resume with the version that "
                               "wrote the checkpoint, or begin a new run with the checkpoint's folder as `model`",
                               safetensors_path(st, tensor), tensor->name, tensor->dtype_text, dtype_name(type), o->name);
        }
    }
    return 0;
}

/* An optimizer may have had another rule for a parameter in the version that wrote the states. A file that cannot be read is reported when
 * it is loaded. */
static int check_rules(const trainer *trainer, const char *path, pt_error *e)
{
    const char *names[OPTIMIZER_STATES];
    const optimizer *o = shape_optimizer(&trainer->job.shape);
    int failed = 0;
    for (int n = optimizer_states(o, names); n-- > 0 && !failed;) {
        char name[64], file[FILE_PATH_BYTES];
        safetensors *st;
        snprintf(name, sizeof name, "trainer/%s.safetensors", names[n]);
        if (path_join(file, path, name, NULL) || !path_exists(file) || safetensors_open(file, &st, NULL))
            continue;
        failed = check_types(trainer->job.model, o, names[n], st, e);
        safetensors_close(st);
    }
    return failed;
}

int checkpoint_read_counters(trainer *trainer, const char *path, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    json_source src;
    int failed = checkpoints_present(path, e);
    if (!failed)
        failed = path_join(file, path, "trainer/trainer.json", e);
    if (failed)
        return failed;
    failed = json_source_open(&src, file, e);
    if (failed) {
        checkpoints_add_older(trainer->out.path, path, e);
        return failed;
    }
    int64_t version, samples, steps;
    failed = json_get_int(&src, "version", JSON_REQUIRED, CHECKPOINT_VERSION, CHECKPOINT_VERSION, &version, e);
    if (!failed)
        failed = take_lanes(&trainer->job, &src, e);
    if (!failed)
        failed = settings_compare(&trainer->job, path, &src, e);
    if (!failed)
        failed = check_rules(trainer, path, e);
    const bool other_run = failed;
    if (!failed)
        failed = read_reference(trainer, &src, e);
    if (!failed)
        failed = json_get_bool(&src, "frozen_bf16", JSON_OPTIONAL, &trainer->job.model->stored_bf16, e);
    if (!failed)
        failed = json_get_int(&src, "step", JSON_REQUIRED, 0, INT64_MAX / 2 / trainer->job.shape.batch, &trainer->at.step, e);
    if (!failed)
        failed = json_get_int(&src, "steps", JSON_REQUIRED, 1, INT64_MAX / 2, &steps, e);
    if (!failed)
        failed = json_get_int(&src, "tokens", JSON_REQUIRED, 0, INT64_MAX / 2, &trainer->at.tokens, e);
    trainer->at.learned = trainer->at.tokens; /* older checkpoints are from runs in which every token was learned */
    if (!failed)
        failed = json_get_int(&src, "learned_tokens", JSON_OPTIONAL, 0, trainer->at.tokens, &trainer->at.learned, e);
    if (!failed)
        failed = json_get_int(&src, "samples", JSON_REQUIRED, trainer->at.step * trainer->job.shape.batch,
                              trainer->at.step * trainer->job.shape.batch, &samples, e);
    json_source_close(&src);
    if (failed && !other_run)
        checkpoints_add_older(trainer->out.path, path, e);
    if (!failed && trainer->at.step > trainer->job.steps)
        failed = pt_fail(e, PT_FAILED, "%s is of step %lld, but the run ends at step %lld: raise `steps`", path,
                         (long long)trainer->at.step, (long long)trainer->job.steps);
    if (!failed && trainer->job.steps < steps && trainer->job.o.lr_schedule != PT_LR_CONSTANT)
        failed = pt_fail(e, PT_FAILED,
                         "%s was written with `steps` %lld and this run has %lld: the learning rate depends on the number of steps, which "
                         "may only grow; give `steps` %lld or more",
                         path, (long long)steps, (long long)trainer->job.steps, (long long)steps);
    trainer->at.first_step = trainer->at.step;
    if (!failed)
        tell_new_rate(trainer, steps);
    return failed;
}

int checkpoint_read_finished(trainer *trainer, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    json_source src;
    int64_t version, step;
    bool past = false; /* it ended before its steps were done */
    int failed = path_join(file, trainer->out.path, FINISHED_FILE, e);
    if (!failed)
        failed = json_source_open(&src, file, e);
    if (failed)
        return failed;
    failed = json_get_int(&src, "version", JSON_REQUIRED, CHECKPOINT_VERSION, CHECKPOINT_VERSION, &version, e);
    if (!failed)
        failed = take_lanes(&trainer->job, &src, e);
    if (!failed)
        failed = settings_compare(&trainer->job, file, &src, e);
    if (!failed)
        failed = json_get_int(&src, "step", JSON_REQUIRED, 1, INT64_MAX / 2, &step, e);
    if (!failed)
        failed = json_get_bool(&src, "patience", JSON_OPTIONAL, &past, e);
    json_source_close(&src);
    if (!failed && step != trainer->job.steps && !(past && trainer->job.o.patience))
        failed = pt_fail(e, PT_FAILED,
                         "%.400s holds the %s of step %lld but no checkpoint to resume from, and this run ends at step %lld: give `%s` "
                         "%.400s and another `out`", trainer->out.path, trainer->job.model->adapters ? "adapter" : "model", (long long)step,
                         (long long)trainer->job.steps, trainer->job.model->adapters ? "adapter" : "model", trainer->out.path);
    if (!failed)
        trainer->at.step = trainer->at.first_step = step;
    return failed;
}

void checkpoint_compare_arithmetic(const trainer *trainer, const char *path)
{
    char file[FILE_PATH_BYTES];
    json_source src;
    const char *before;
    if (path_join(file, path, "trainer/trainer.json", NULL) || json_source_open(&src, file, NULL))
        return;
    if (!json_get_string(&src, "arithmetic", JSON_REQUIRED, &before, NULL) &&
        !arithmetic_same(before, trainer->planning.device->info.arithmetic))
        options_notice(&trainer->job.o,
                       "the checkpoint was computed with %s and this run computes with %s: from here on the bits may differ "
                       "from those of one machine",
                       before, trainer->planning.device->info.arithmetic);
    json_source_close(&src);
}

/* fp32 weights are the masters. */
static const char *state_file(const trainer *trainer, const state *state, int kind, char name[64])
{
    snprintf(name, 64, "trainer/%s.safetensors", state_name(state->in, kind));
    return kind != STATE_MASTER || trainer->job.save_type != PT_F32 ? name
           : trainer->job.model->adapters                           ? ADAPTER_WEIGHTS
                                                                    : "model.safetensors";
}

/* Frozen weights come from the model in the same folder. */
static int load_master(state *state, const char *checkpoint, const safetensors *trained, pt_error *e)
{
    safetensors *all;
    int failed = safetensors_open(checkpoint, &all, e);
    if (failed)
        return failed;
    failed = state_load_beside(state, trained, all, e);
    safetensors_close(all);
    return failed;
}

int checkpoint_compare_base(const trainer *trainer, const state *state, const char *checkpoint, pt_error *e)
{
    char file[FILE_PATH_BYTES], text[20];
    const char *before;
    json_source all;
    int failed = path_join(file, checkpoint, "trainer/trainer.json", e);
    if (!failed)
        failed = json_source_open(&all, file, e);
    if (failed)
        return failed;
    snprintf(text, sizeof text, CHECKSUM_FORMAT, (unsigned long long)state->base_sum);
    failed = json_get_string(&all, "base", JSON_REQUIRED, &before, e);
    if (!failed && strcmp(before, text))
        failed =
            pt_fail(e, PT_FAILED, "the adapter in %.400s was trained with other weights than those of %.300s: give the `model` that the "
                                  "run began with",
                    checkpoint, trainer->job.model_dir);
    json_source_close(&all);
    return failed;
}

/* With adapters, the base must be the same as before. */
static int load_adapters(const trainer *trainer, state *state, const char *checkpoint, pt_error *e)
{
    const int failed = adapters_load(state, trainer->job.random_init ? NULL : trainer->job.model_dir, checkpoint, trainer->job.o.seed, e);
    return failed ? failed : checkpoint_compare_base(trainer, state, checkpoint, e);
}

static int load_kind(const trainer *trainer, state *state, int kind, const char *checkpoint, pt_error *e)
{
    if (kind == STATE_MASTER && trainer->job.model->adapters)
        return load_adapters(trainer, state, checkpoint, e);
    char path[FILE_PATH_BYTES], name[64];
    safetensors *st;
    int failed = path_join(path, checkpoint, state_file(trainer, state, kind, name), e);
    if (!failed)
        failed = safetensors_open(path, &st, e);
    if (failed)
        return failed;
    if (kind != STATE_MASTER)
        failed = state_load_kind(state, kind, st, e);
    else
        failed = model_holds_frozen(trainer)                                         ? load_master(state, checkpoint, st, e)
                 : trainer->job.base.in_few_bits && trainer->job.save_type != PT_F32 ? state_load_masters(state, st, e)
                                                                                     : state_load(state, st, e);
    safetensors_close(st);
    return failed;
}

/* Otherwise a flipped bit on the disk, or the file of another step, would go unnoticed. */
static int compare_checksums(const trainer *trainer, state *state, const char *checkpoint, const json_source *checksums, pt_error *e)
{
    uint64_t now[STATE_KINDS_MOST];
    const char *before;
    char text[20], name[64];
    int failed = state_checksums(state, now, e);
    for (int k = 0; k < state_kinds(state->in) && !failed; k++) {
        failed = json_get_string(checksums, state_name(state->in, k), JSON_REQUIRED, &before, e);
        snprintf(text, sizeof text, CHECKSUM_FORMAT, (unsigned long long)now[k]);
        if (!failed && strcmp(before, text))
            failed = pt_fail(e, PT_FAILED,
                             "%.400s/%s does not hold the values that were saved with trainer/trainer.json: one of the two files is "
                             "damaged or of another checkpoint; continue from another one with `resume_from` DIR",
                             checkpoint, state_file(trainer, state, k, name));
    }
    return failed;
}

static int check_checksums(const trainer *trainer, state *state, const char *checkpoint, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    json_source all, checksums;
    int failed = path_join(file, checkpoint, "trainer/trainer.json", e);
    if (!failed)
        failed = json_source_open(&all, file, e);
    if (failed)
        return failed;
    failed = json_get_object(&all, "sums", JSON_REQUIRED, &checksums, e);
    if (!failed)
        failed = compare_checksums(trainer, state, checkpoint, &checksums, e);
    json_source_close(&all);
    return failed;
}

int checkpoint_load_state(trainer *trainer, const char *path, pt_error *e)
{
    int failed = 0;
    state state;
    checkpoint_compare_arithmetic(trainer, path);
    state_open(&state, trainer->engine.x);
    base_lend(&trainer->job.base, &state);
    for (int k = 0; k < state_kinds(state.in) && !failed; k++)
        failed = load_kind(trainer, &state, k, path, e);
    trainer->job.base_sum = state.base_sum;
    if (!failed)
        failed = base_compare(&trainer->job.base, &state, path, e);
    base_take_sum(&trainer->job.base, &state);
    if (!failed)
        failed = ranks_compare_loaded(trainer, &state, path, e);
    if (!failed)
        failed = check_checksums(trainer, &state, path, e);
    int closed = state_close(&state, failed ? NULL : e);
    if (failed)
        checkpoints_add_older(trainer->out.path, path, e);
    else if (!closed)
        engine_loaded(&trainer->engine);
    return failed ? failed : closed;
}

bool checkpoint_rounds(const trainer *trainer) { return model_holds_frozen(trainer); }

int checkpoint_open_weights(const trainer *trainer, const char *path, struct safetensors **out, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    const bool in_model = trainer->job.save_type == PT_F32 || model_holds_frozen(trainer);
    const int failed = in_model ? 0 : path_join(file, path, "trainer/master.safetensors", e);
    return failed ? failed : safetensors_open(in_model ? path : file, out, e);
}

/* Of what every turn trains. Where the model's file rounds, the masters are in another. */
static int load_always(const trainer *trainer, state *state, const char *checkpoint, pt_error *e)
{
    int failed = 0;
    for (int k = model_holds_frozen(trainer) ? STATE_MASTER : STATE_MASTER + 1; k < state_kinds(state->in) && !failed; k++) {
        char path[FILE_PATH_BYTES], name[64];
        safetensors *st;
        if (!state_has_always(state, k))
            continue;
        snprintf(name, sizeof name, "trainer/%s.safetensors", state_name(state->in, k));
        failed = path_join(path, checkpoint, name, e);
        if (!failed)
            failed = safetensors_open(path, &st, e);
        if (failed)
            return failed;
        failed = state_load_always(state, k, st, e);
        safetensors_close(st);
    }
    return failed;
}

int checkpoint_load_weights(trainer *trainer, const char *path, pt_error *e)
{
    safetensors *st;
    state state;
    int failed = checkpoint_open_weights(trainer, path, &st, e);
    if (failed)
        return failed;
    state_open(&state, trainer->engine.x);
    failed = state_load(&state, st, e);
    if (!failed && trainer->job.o.train_also)
        failed = load_always(trainer, &state, path, e);
    if (!failed)
        failed = ranks_compare_loaded(trainer, &state, path, e);
    const int closed = state_close(&state, failed ? NULL : e);
    safetensors_close(st);
    if (!failed && !closed)
        engine_loaded(&trainer->engine);
    return failed ? failed : closed;
}

/* ---- disk space ---- */

room_need checkpoint_room(const trainer *trainer)
{
    const job *j = &trainer->job;
    const int64_t every = j->o.save_every, due = (every ? j->steps / every - trainer->at.step / every : 0) + best_due(trainer) +
                        block_turns_due(trainer);
    return room_find(
        &(room_input){&j->o, j->model, j->save_type, j->layout.source, due, checkpoints_count(trainer->out.path, trainer->at.step)});
}
