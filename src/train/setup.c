/* setup.c - from options to a trainer that stands before its first step. */
#include "train/trainer.h"

#include "base/units.h"
#include "io/disk.h"
#include "io/safetensors.h"
#include "model/weights.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void pass_notice(void *arg, const char *sentence) { trainer_notice(arg, "%s", sentence); }

static void pass_progress(void *arg, uint64_t done, uint64_t total) { trainer_progress(arg, "reading the data", done, total); }

/* ---- model ---- */

static void tell_beside(const trainer *t)
{
    const weights_beside b = t->layout.source ? weights_find_beside(t->model, t->layout.source) : (weights_beside){0};
    if (b.tensors)
        trainer_notice(t, "the text part is trained; %zu other tensors (%.100s, ...) are saved as they are", b.tensors, b.first);
    else
        trainer_notice(t, "the text part is trained, and the model's folder has no weights of the other parts: it alone is saved");
}

/* How the weights are named, and what is saved beside them: as in the checkpoint that the run goes on from (`from`, if it has one), else as
 * in the model's folder. What holds the other parts stays open: what becomes of the folder meanwhile has no part in what is saved. */
static int open_layout(trainer *t, const char *from, pt_error *e)
{
    const bool multimodal = t->model->config.multimodal && !t->model->adapters;
    const char *folder = multimodal && from[0] ? from : t->model_dir;
    safetensors *st = NULL;
    int failed = 0;
    if (weights_present(folder) && (multimodal || !t->random_init))
        failed = safetensors_open(folder, &st, multimodal ? e : NULL); /* the others are looked at when they are loaded */
    t->layout.naming = weights_naming_of(t->model, st);
    if (multimodal)
        t->layout.source = st;
    else
        safetensors_close(st);
    if (multimodal && !failed && !from[0])
        tell_beside(t);
    return multimodal ? failed : 0;
}

static int open_model(trainer *t, const char *from, pt_error *e)
{
    const bool resumed = from[0] != 0;
    snprintf(t->model_dir, sizeof t->model_dir, "%s", t->o.model);
    if (!path_is_folder(t->model_dir))
        return pt_fail(e, PT_FAILED, "%s is not a folder: --model wants a Hugging Face folder with config.json", t->model_dir);
    int failed = model_open(t->model_dir, pass_notice, t, &t->model, e);
    if (!failed)
        failed = companions_read(&t->companions, t->model_dir, e);
    if (failed)
        return failed;
    t->random_init = t->o.init_random || !weights_present(t->model_dir);
    failed = planning_freeze(&t->o, t->model, e);
    if (failed)
        return failed;
    if (t->random_init && !t->model->adapters)
        t->model->stored_bf16 = false;
    if (t->random_init && !resumed)
        trainer_notice(t, "%s: starting from random weights (seed %llu)",
                       t->o.init_random ? "--init random" : "no weights in the model's folder", (unsigned long long)t->o.seed);
    if (t->o.lr == 0)
        t->o.lr = t->model->adapters ? 2e-4 : t->random_init ? 3e-4 : 5e-5;
    return open_layout(t, from, e);
}

/* ---- data ---- */

/* Changes when tokenizer.json does (FNV-1a of its bytes). */
static int tokenizer_fingerprint(const char *model_dir, char out[32], pt_error *e)
{
    char path[FILE_PATH_BYTES], *text;
    size_t n;
    int failed = path_join(path, model_dir, "tokenizer.json", e);
    if (!failed)
        failed = file_read_all(path, 1u << 30, &text, &n, e);
    if (failed)
        return failed;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    free(text);
    snprintf(out, 32, "%016llx", (unsigned long long)hash);
    return 0;
}

static int open_dataset(trainer *t, const char *const *paths, int n, bool evaluation, const char *fingerprint, dataset **out,
                        pt_error *e)
{
    char cache[FILE_PATH_BYTES];
    int failed = path_join(cache, t->out, "cache", e);
    if (failed)
        return failed;
    dataset_options d = {.paths = paths, .paths_n = n, .tokenizer = t->tokenizer, .cache_dir = cache,
                         .tokenizer_fingerprint = fingerprint, .seq_len = t->o.seq_len, .vocab = t->model->config.vocab,
                         .seed = t->o.seed, .shuffle = t->o.shuffle && !evaluation, .evaluation = evaluation,
                         .documents = t->o.document_mask, .eos = t->model->config.eos,
                         .threads = t->o.threads, .progress = pass_progress, .progress_arg = t};
    failed = dataset_open(&d, out, e);
    if (!failed && dataset_notice(*out))
        trainer_notice(t, "%s", dataset_notice(*out));
    return failed;
}

static int open_data(trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES], fingerprint[32] = "ids";
    int failed = path_join(path, t->model_dir, "tokenizer.json", e);
    if (!failed && path_exists(path)) {
        failed = tokenizer_open(t->model_dir, &t->tokenizer, e);
        if (!failed)
            failed = tokenizer_fingerprint(t->model_dir, fingerprint, e);
    }
    if (!failed)
        failed = open_dataset(t, t->o.data, t->o.data_n, false, fingerprint, &t->data, e);
    if (!failed && t->o.eval_data_n)
        failed = open_dataset(t, t->o.eval_data, t->o.eval_data_n, true, fingerprint, &t->eval, e);
    return failed;
}

/* ---- the step ---- */

static int count_steps(trainer *t, pt_error *e)
{
    int64_t windows = (int64_t)dataset_windows(t->data), batch = t->shape.batch;
    t->epoch_windows = windows / batch * batch;
    if (!t->epoch_windows)
        return pt_fail(e, PT_FAILED,
                       "the data has %lld windows of %lld tokens and a step takes %lld: give more data, or a lower --batch-size or "
                       "--seq-len",
                       (long long)windows, (long long)t->shape.seq_len, (long long)batch);
    double by_epochs = t->o.epochs * (double)(t->epoch_windows / batch);
    t->steps = t->o.steps ? t->o.steps : by_epochs < 1 ? 1 : (int64_t)(by_epochs * (1 + 1e-12)); /* 0.57 of 100 is 57 */
    if (t->o.warmup_steps >= t->steps)
        trainer_notice(t, "the warm-up takes %lld steps and the run has %lld: the learning rate only rises, and ends at %.3g", (long long)t->o.warmup_steps,
                       (long long)t->steps, lr_of_step(&t->o, t->steps, t->steps));
    return 0;
}

/* ---- budgets and plan ---- */

/* What was asked for may be less than free by now: the run's own checkpoints lie there. */
static int lower_disk(trainer *t, pt_error *e)
{
    const char *folder = t->planning.disk_path;
    const uint64_t asked = t->o.disk_memory;
    uint64_t have;
    if (!asked || asked == PT_AUTO || disk_is_memory(folder))
        return 0;
    int failed = disk_room_bytes(folder, &have, e);
    if (failed || asked <= have)
        return failed;
    char a[32], b[32];
    trainer_notice(t, "--disk-memory is %s and %s are free now: as much as without the option is used", size_format(a, asked),
                   size_format(b, have));
    t->o.disk_memory = PT_AUTO;
    return 0;
}

static int make_plan(trainer *t, bool resumed, pt_error *e)
{
    planning *p = &t->planning;
    int failed = planning_open_device(p, &t->o, e);
    p->o = &t->o;
    p->model = t->model;
    p->shape = &t->shape;
    p->evaluates = t->eval != NULL;
    p->runs = true;
    if (t->o.disk_path)
        snprintf(p->disk_path, sizeof p->disk_path, "%s", t->o.disk_path);
    else if (!failed)
        failed = path_join(p->disk_path, t->out, "disk", e);
    if (!failed && resumed)
        failed = lower_disk(t, e);
    const uint64_t saves = room_of(t).least_bytes;
    p->disk_reserve = disk_is_same(p->disk_path, t->out) ? saves : 0;
    p->memory_reserve = disk_is_memory(t->out) ? saves : 0;
    return failed ? failed : planning_make(p, e);
}

int trainer_write_plan(const trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES], *json = pt_trainer_plan_json(t);
    int failed = json ? path_join(path, t->out, "plan.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_atomic(path, json, strlen(json), e);
    free(json);
    return failed;
}

/* ---- state ---- */

static int load_weights(trainer *t, pt_error *e)
{
    state s;
    state_open(&s, t->x);
    int failed;
    if (t->model->adapters) {
        failed = adapters_load(&s, t->random_init ? NULL : t->model_dir, t->o.adapter, t->o.seed, e);
        t->base_sum = s.base_sum;
    } else if (t->random_init) {
        failed = state_init(&s, t->o.seed, e);
    } else {
        safetensors *st;
        failed = safetensors_open(t->model_dir, &st, e);
        if (!failed) {
            failed = state_load(&s, st, e);
            if (!failed)
                weights_notice_unused(t->model, st, t->o.notice, t->o.arg);
            safetensors_close(st);
        }
    }
    int closed = state_close(&s, failed ? NULL : e);
    return failed ? failed : closed;
}

static int write_profile(trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    const planning *p = &t->planning;
    int failed = p->profiled ? path_join(path, t->out, "profile.json", e) : 0;
    t->wrote_profile = p->profiled;
    return failed || !p->profiled ? failed : profile_write(path, &p->request, &p->profile, e);
}

/* machine.json: a machine file of what this run found here, or that which it was given. */
static int write_machine(trainer *t, pt_error *e)
{
    const planning *p = &t->planning;
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, t->out, "machine.json", e);
    t->wrote_machine = true;
    if (!failed && p->from_file)
        return file_copy_atomic(p->machine_path, path, e);
    return failed ? failed : planning_write_machine(p, &p->profile.costs, path, e);
}

schedule_input trainer_schedules(const trainer *t)
{
    const planning *p = &t->planning;
    return (schedule_input){.model = t->model, .shape = &t->shape, .packing = &p->result.best.packing, .plan = &p->result.best.plan,
                            .training = true, .host_tier = p->host_tier};
}

int trainer_open_executor(trainer *t, pt_error *e)
{
    const planning *p = &t->planning;
    unsigned kinds = search_kinds(&p->search, trainer_plan(t)->update);
    executor_options x = {.device = p->device, .host = p->host, .input = trainer_schedules(t), .schedules = kinds,
                          .disk_path = p->disk_path, .threads = t->o.threads};
    memcpy(x.budget, p->budget, sizeof x.budget);
    memset(&t->measured, 0, sizeof t->measured);
    int failed = forecast_make(&x.input, kinds, &p->profile.costs, &t->forecast, e);
    return failed ? failed : executor_open(&x, &t->x, e);
}

/* The output folder holds something that a run has written there, or a model: *found names it, "" if not. */
static int find_traces(const trainer *t, char found[FILE_PATH_BYTES], pt_error *e)
{
    static const char *const traces[] = {"config.json", "metrics.jsonl", "plan.json", "model.safetensors", "model.safetensors.index.json"};
    char path[FILE_PATH_BYTES];
    int failed = checkpoint_newest(t, found, e);
    for (size_t i = 0; i < sizeof traces / sizeof *traces && !failed && !found[0]; i++) {
        failed = path_join(path, t->out, traces[i], e);
        if (!failed && path_exists(path))
            snprintf(found, FILE_PATH_BYTES, "%s", path);
    }
    return failed;
}

static bool is_out(const trainer *t, const char *path)
{
    struct stat a, b;
    return !stat(path, &a) && !stat(t->out, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Whether the checkpoint `path` lies in the output folder, itself or as a link checkpoint-N beside the run's other files: then this is
 * the very run that wrote it. */
static bool lies_in_out(const trainer *t, const char *path)
{
    char parent[FILE_PATH_BYTES], copy[FILE_PATH_BYTES], name[FILE_PATH_BYTES], metrics[FILE_PATH_BYTES];
    if (!path_join(parent, path, "..", NULL) && is_out(t, parent))
        return true;
    snprintf(copy, sizeof copy, "%s", path);
    snprintf(name, sizeof name, "%s", basename(copy));
    snprintf(copy, sizeof copy, "%s", path);
    return checkpoint_step(name) >= 0 && is_out(t, dirname(copy)) && !path_join(metrics, t->out, "metrics.jsonl", NULL) &&
           path_exists(metrics);
}

/* A run that starts anew, or from a checkpoint of another run, must not write over one that is there. */
static int refuse_other_run(const trainer *t, const char *from, pt_error *e)
{
    char found[FILE_PATH_BYTES];
    int failed = find_traces(t, found, e);
    if (failed || !found[0])
        return failed;
    if (from[0])
        return pt_fail(e, PT_FAILED, "%.300s holds another run or a model (%.300s), and going on from %.300s would write over it: give an --out "
                       "that is new, or the folder that the checkpoint lies in", t->out, found, from);
    return pt_fail(e, PT_FAILED, "%.300s holds a run or a model already (%.300s): --resume goes on with it, another --out starts anew", t->out,
                   found);
}

/* Where a run was to be resumed and nothing can be (it was ended before its first checkpoint), only a finished model is in the way. */
static int refuse_model(const trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, t->out, "config.json", e);
    if (!failed && path_exists(path))
        failed = pt_fail(e, PT_FAILED, "%.400s holds a trained model but no checkpoint to resume from (--save-every N writes some): give "
                         "--model %.400s and another --out", t->out, t->out);
    if (!failed)
        trainer_notice(t, "--resume: %s has no checkpoint yet; starting from the first step", t->out);
    return failed;
}

/* A checkpoint of its step would take the place of another program's. */
static int refuse_others(const trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    if (!checkpoint_of_others(t, path))
        return 0;
    return pt_fail(e, PT_FAILED, "%.400s is another program's checkpoint, or what is left of one, and this run may write one of that "
                   "name: give another --out, or move it away", path);
}

/* Where the run starts: from[0] is 0, or `from` the checkpoint. */
static int choose_start(trainer *t, char from[FILE_PATH_BYTES], pt_error *e)
{
    from[0] = 0;
    int failed = 0;
    if (t->o.resume && t->o.resume_from)
        snprintf(from, FILE_PATH_BYTES, "%s", t->o.resume_from);
    else if (t->o.resume)
        failed = checkpoint_newest(t, from, e);
    if (!failed)
        failed = refuse_others(t, e);
    if (!failed && from[0])
        failed = checkpoint_present(from, e);
    if (failed)
        return failed;
    if (t->o.resume && !from[0])
        return refuse_model(t, e);
    if (from[0] && lies_in_out(t, from))
        return 0;
    if (!failed)
        failed = refuse_other_run(t, from, e);
    t->found_empty = !failed;
    return failed;
}

/* What the run will write must not be read as data. */
static int refuse_data_in_out(const trainer *t, pt_error *e)
{
    for (int i = 0; i < t->o.data_n + t->o.eval_data_n; i++) {
        const char *path = i < t->o.data_n ? t->o.data[i] : t->o.eval_data[i - t->o.data_n];
        if (is_out(t, path))
            return pt_fail(e, PT_USAGE, "%.400s is a folder of data, and --out too: what the run writes there would be read as data; give "
                           "another --out", path);
    }
    return 0;
}

/* What a killed run left half-written goes, before its bytes are missed. */
static void clean_out(const trainer *t)
{
    dir_stages_clean(t->out, "checkpoint-0");
    dir_stages_clean(t->out, "model");
}

int trainer_setup(trainer *t, pt_error *e)
{
    char from[FILE_PATH_BYTES];
    snprintf(t->out, sizeof t->out, "%s", t->o.out);
    t->made_out = !path_exists(t->out);
    int failed = dir_make(t->out, e);
    if (!failed)
        failed = dir_lock_take(&t->lock, t->out, e);
    if (!failed)
        failed = refuse_data_in_out(t, e);
    if (!failed) {
        dir_stages_put_back(t->out, "checkpoint-0"); /* it may be the newest */
        failed = choose_start(t, from, e);
    }
    if (!failed)
        clean_out(t);
    if (!failed)
        failed = open_model(t, from, e);
    if (!failed)
        failed = room_save_type(&t->o, t->model, t->random_init || t->model->adapters, &t->save_type, e);
    if (!failed)
        failed = planning_shape(&t->o, t->model, &t->shape, e);
    if (!failed)
        failed = open_data(t, e);
    if (!failed)
        failed = count_steps(t, e);
    if (!failed && from[0])
        failed = checkpoint_read_counters(t, from, e);
    if (!failed)
        failed = make_plan(t, from[0] != 0, e);
    if (!failed)
        failed = trainer_open_executor(t, e);
    t->first = t->forecast;
    t->first_costs = t->planning.profile.costs;
    if (!failed)
        failed = room_check(t, e);
    if (!failed)
        failed = from[0] ? checkpoint_load_state(t, from, e) : load_weights(t, e);
    if (!failed && from[0])
        trainer_notice(t, "going on from %.600s, after step %lld", from, (long long)t->step);
    if (!failed)
        failed = write_profile(t, e);
    if (!failed)
        failed = write_machine(t, e);
    if (!failed && from[0] && t->step < t->steps) /* before lines of its metrics go: what is newest and what they say belong together */
        failed = checkpoint_put_later_away(t, e);
    if (!failed)
        failed = metrics_open(t, e);
    return failed ? failed : trainer_write_plan(t, e);
}

char *pt_trainer_plan_json(const pt_trainer *t) { return !t ? NULL : plan_to_json(trainer_plan(t), t->model, &t->shape); }
