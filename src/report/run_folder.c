#include "report/run_folder.h"

#include "base/json.h"
#include "io/steps.h"
#include "machine/machine_file.h"
#include "report/memory_file.h"
#include "report/metrics_file.h"
#include "text/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Replaces bytes that are not UTF-8 by question marks. */
static void make_valid(char *text)
{
    size_t n = strlen(text);
    for (size_t at = 0; (at += utf8_valid_prefix(text + at, n - at)) < n; at++)
        text[at] = '?';
}

static __attribute__((format(printf, 2, 3))) void note(run_folder *rf, const char *fmt, ...)
{
    va_list ap;
    if (rf->notes_n == RUN_NOTES)
        return;
    char *text = rf->notes[rf->notes_n++];
    va_start(ap, fmt);
    text_format(text, sizeof rf->notes[0], fmt, ap);
    va_end(ap);
    make_valid(text);
}

/* ---- metrics ---- */

static void add_point(series *c, int64_t step, double y)
{
    if (!isnan(y))
        series_add(c, step, y);
}

static void take_times(run_folder *rf, const metrics_line *x)
{
    const bool changed = x->predicted_step_s != rf->predicted_step_s; /* NAN too */
    if (changed || rf->only_first)
        rf->step_s.n = rf->tokens_per_s.n = 0;
    rf->only_first = changed;
    rf->predicted_step_s = x->predicted_step_s;
    if (!isnan(x->step_s)) {
        recent_add(&rf->step_s, x->step_s);
        rf->seconds += x->step_s;
    }
    if (!isnan(x->tokens_per_s))
        recent_add(&rf->tokens_per_s, x->tokens_per_s);
}

static void keep(double *last, double x) { *last = isnan(x) ? *last : x; }

static void take_pairs(run_folder *rf, const metrics_line *x)
{
    add_point(&rf->chosen, x->step, x->chosen);
    add_point(&rf->rejected, x->step, x->rejected);
    add_point(&rf->margin, x->step, x->margin);
    add_point(&rf->accuracy, x->step, x->accuracy);
    add_point(&rf->eval_margin, x->step, x->eval_margin);
    add_point(&rf->eval_accuracy, x->step, x->eval_accuracy);
    add_point(&rf->kl, x->step, x->kl);
    add_point(&rf->eval_kl, x->step, x->eval_kl);
    add_point(&rf->right, x->step, x->right);
    add_point(&rf->eval_right, x->step, x->eval_right);
    keep(&rf->last_right, x->right);
    keep(&rf->last_eval_right, x->eval_right);
    keep(&rf->last_kl, x->kl);
    keep(&rf->last_margin, x->margin);
    keep(&rf->last_accuracy, x->accuracy);
    keep(&rf->last_eval_margin, x->eval_margin);
    keep(&rf->last_eval_accuracy, x->eval_accuracy);
}

static void take_experts(run_folder *rf, const metrics_line *x)
{
    add_point(&rf->expert_load, x->step, x->expert_load);
    add_point(&rf->experts_idle, x->step, x->experts_idle);
    add_point(&rf->aux_loss, x->step, x->aux_loss);
    keep(&rf->last_load, x->expert_load);
    keep(&rf->last_idle, x->experts_idle);
}

static void take_warnings(run_folder *rf, const metrics_line *x)
{
    for (int i = 0; i < 3; i++) {
        if (!x->warnings[i][0] || rf->warnings_n == RUN_WARNINGS)
            continue;
        char *text = rf->warnings[rf->warnings_n++];
        memcpy(text, x->warnings[i], METRICS_WARNING_BYTES);
        make_valid(text);
    }
}

static int take_line(void *arg, const metrics_line *x, pt_error *e)
{
    run_folder *rf = arg;
    if (!rf->first_step) {
        rf->first_step = x->step;
        rf->first_loss = rf->min_loss = x->loss;
        rf->min_loss_step = x->step;
    }
    if (x->loss < rf->min_loss) {
        rf->min_loss = x->loss;
        rf->min_loss_step = x->step;
    }
    rf->last_step = x->step;
    rf->last_loss = x->loss;
    rf->tokens = x->tokens;
    rf->learned_tokens = x->learned_tokens;
    rf->eval_loss = isnan(x->eval_loss) ? rf->eval_loss : x->eval_loss;
    if (x->eval_loss < rf->best_eval_loss || (rf->best_step == 0 && !isnan(x->eval_loss))) {
        rf->best_eval_loss = x->eval_loss;
        rf->best_step = x->step;
    }
    take_times(rf, x);
    add_point(&rf->loss, x->step, x->loss);
    add_point(&rf->eval, x->step, x->eval_loss);
    add_point(&rf->grad_norm, x->step, x->grad_norm);
    add_point(&rf->lr, x->step, x->lr);
    add_point(&rf->step, x->step, x->step_s);
    add_point(&rf->predicted, x->step, x->predicted_step_s);
    add_point(&rf->speed, x->step, x->tokens_per_s);
    take_pairs(rf, x);
    take_experts(rf, x);
    take_warnings(rf, x);
    memcpy(rf->peak, x->peak, sizeof rf->peak);
    memcpy(rf->predicted_bytes, x->predicted, sizeof rf->predicted_bytes);
    memcpy(rf->budget, x->budget, sizeof rf->budget);
    return 0;
}

static int read_metrics(run_folder *rf, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    uint64_t torn = 0;
    int failed = path_join(path, folder, "metrics.jsonl", e);
    if (!failed && !path_is_folder(folder))
        failed = pt_fail(e, PT_FAILED, "%.400s: %s; give the output folder of a training run", folder,
                         path_exists(folder) ? "this is not a folder" : "this folder does not exist");
    if (!failed && !path_exists(path))
        failed = pt_fail(e, PT_FAILED, "%.400s: this file does not exist; give the output folder of a training run", path);
    if (!failed)
        failed = metrics_file_read(path, take_line, rf, &torn, e);
    if (!failed && !rf->last_step)
        failed = pt_fail(e, PT_FAILED, "%.400s: the file has no step yet: try again when the run has done one", path);
    if (!failed && torn)
        note(rf, "metrics.jsonl: line %llu, the last, is incomplete and left out: the run was killed, or is writing it now",
             (unsigned long long)torn);
    return failed;
}

/* ---- other files ---- */

/* path = folder/name; false, with a note, if there is no such file. */
static bool find(run_folder *rf, const char *folder, const char *name, const char *lost, char path[FILE_PATH_BYTES])
{
    pt_error e = {0};
    if (path_join(path, folder, name, &e)) {
        note(rf, "%s", e.text);
        return false;
    }
    if (!path_exists(path) && lost)
        note(rf, "%s is missing: %s", name, lost);
    return path_exists(path);
}

static void read_summary(run_folder *rf, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (!find(rf, folder, "summary.json", NULL, path))
        return;
    if (json_file_load(path, 0, &rf->summary, &e))
        note(rf, "%s", e.text);
    else if (!json_is_object(rf->summary))
        note(rf, "%s: the file is %s, not an object", path, json_type_name(rf->summary));
}

static void find_checkpoints(run_folder *rf, const char *folder)
{
    int64_t step = INT64_MAX;
    char all[sizeof rf->checkpoints] = "";
    while ((step = step_folders_newest(folder, "trainer/trainer.json", step - 1)) >= 0) {
        const int n = snprintf(rf->checkpoints, sizeof rf->checkpoints, "%lld%s%s", (long long)step, all[0] ? ", " : "", all);
        if (n >= (int)sizeof all)
            break;
        memcpy(all, rf->checkpoints, sizeof all);
    }
    memcpy(rf->checkpoints, all, sizeof all);
}

static void read_plan(run_folder *rf, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (!find(rf, folder, "plan.json", "the page does not show the model and what each layer saves", path))
        return;
    rf->planned = !plan_read(path, &rf->plan, &e);
    if (!rf->planned)
        note(rf, "%s", e.text);
}

static void read_machine(run_folder *rf, const char *folder)
{
    char path[FILE_PATH_BYTES];
    machine_spec x;
    pt_error e = {0};
    if (!find(rf, folder, "machine.json", "the page does not name the machine", path))
        return;
    if (machine_file_read(path, &x, &e))
        note(rf, "%s", e.text);
    else
        memcpy(rf->machine, x.name, sizeof rf->machine);
}

static void read_trace(run_folder *rf, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (find(rf, folder, "trace.json", NULL, path) && timeline_read(path, &rf->timeline, &e))
        note(rf, "%s", e.text);
}

static void read_said(run_folder *rf, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (find(rf, folder, SAMPLES_NAME, NULL, path) && said_read(path, &rf->samples, &e))
        note(rf, "%s", e.text);
}

/* Uses the parts only if their sums are the last line's prediction: a run that plans again writes the two files one after the other. */
static void read_memory(run_folder *rf, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (!find(rf, folder, MEMORY_FILE, NULL, path))
        return;
    if (memory_file_read(path, rf->part, &e)) {
        note(rf, "%s", e.text);
        return;
    }
    rf->parted = true;
    for (int t = 0; t < TIERS; t++) {
        uint64_t sum = 0;
        for (int p = 0; p < MEMORY_PARTS; p++)
            sum += rf->part[t][p];
        rf->parted = rf->parted && sum == rf->predicted_bytes[t];
    }
}

/* ---- the whole ---- */

static void take_name(run_folder *rf, const char *folder)
{
    size_t n = strlen(folder), start;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    for (start = n; start > 0 && folder[start - 1] != '/';)
        start--;
    snprintf(rf->name, sizeof rf->name, "%.*s", (int)(n - start), folder + start);
    make_valid(rf->name);
}

int run_folder_read(const char *folder, run_folder **out, pt_error *e)
{
    run_folder *rf = calloc(1, sizeof *rf);
    *out = NULL;
    if (!rf)
        return pt_fail(e, PT_FAILED, "out of memory");
    rf->eval_loss = rf->best_eval_loss = rf->predicted_step_s = NAN;
    rf->last_load = rf->last_idle = rf->last_right = rf->last_eval_right = NAN;
    rf->last_margin = rf->last_accuracy = rf->last_eval_margin = rf->last_eval_accuracy = rf->last_kl = NAN;
    take_name(rf, folder);
    int failed = read_metrics(rf, folder, e);
    if (failed) {
        run_folder_free(rf);
        return failed;
    }
    read_summary(rf, folder);
    find_checkpoints(rf, folder);
    read_plan(rf, folder);
    read_machine(rf, folder);
    read_memory(rf, folder);
    read_trace(rf, folder);
    read_said(rf, folder);
    *out = rf;
    return 0;
}

void run_folder_free(run_folder *rf)
{
    if (!rf)
        return;
    if (rf->planned)
        plan_free(&rf->plan);
    timeline_free(rf->timeline);
    said_free(&rf->samples);
    json_decref(rf->summary);
    free(rf);
}

double run_step_error(const run_folder *rf)
{
    return rf->predicted_step_s > 0 ? recent_median(&rf->step_s) / rf->predicted_step_s - 1 : NAN;
}

/* ---- as JSON ---- */

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *tiers_json(const uint64_t bytes[TIERS])
{
    json_t *o = json_object();
    for (int t = 0; t < TIERS; t++)
        if (bytes[t])
            json_object_set_new(o, tier_names[t], json_integer((json_int_t)bytes[t]));
    return o;
}

static json_t *warnings_json(const run_folder *rf)
{
    json_t *all = json_array();
    for (int i = 0; i < rf->warnings_n; i++)
        json_array_append_new(all, json_string(rf->warnings[i]));
    return all;
}

static json_t *notes_json(const run_folder *rf)
{
    json_t *all = json_array();
    for (int i = 0; i < rf->notes_n; i++)
        json_array_append_new(all, json_string(rf->notes[i]));
    return all;
}

/* What summary.json has of the key, or null. */
static json_t *summary_part(const run_folder *rf, const char *key)
{
    json_t *part = json_object_get(rf->summary, key);
    return part ? json_incref(part) : json_null();
}

json_t *run_folder_json(const run_folder *rf)
{
    json_t *all = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                            "s:o, s:o, s:o, s:o, s:s, s:o}",
                            "first_step", (json_int_t)rf->first_step, "steps", (json_int_t)rf->last_step, "tokens", (json_int_t)rf->tokens,
                            "learned_tokens", (json_int_t)rf->learned_tokens, "first_loss", rf->first_loss, "last_loss", rf->last_loss,
                            "min_loss", rf->min_loss, "min_loss_step", (json_int_t)rf->min_loss_step, "eval_loss", number(rf->eval_loss),
                            "seconds", rf->seconds, "median_step_s", number(recent_median(&rf->step_s)), "predicted_step_s",
                            number(rf->predicted_step_s), "error_percent", number(100 * run_step_error(rf)), "tokens_per_s",
                            number(recent_median(&rf->tokens_per_s)), "peak_bytes", tiers_json(rf->peak), "predicted_bytes",
                            tiers_json(rf->predicted_bytes), "budget_bytes", tiers_json(rf->budget), "samples", said_json(&rf->samples),
                            "notes", notes_json(rf), "reward_margin", number(rf->last_margin), "reward_accuracy", number(rf->last_accuracy),
                            "eval_reward_margin", number(rf->last_eval_margin), "eval_reward_accuracy", number(rf->last_eval_accuracy),
                            "trains", rf->planned ? rf->plan.made_for.trains : "", "warnings", warnings_json(rf));
    json_object_set_new(all, "accuracy", number(rf->last_right));
    json_object_set_new(all, "eval_accuracy", number(rf->last_eval_right));
    json_object_set_new(all, "kl", number(rf->last_kl));
    json_object_set_new(all, "expert_load_max", number(rf->last_load));
    json_object_set_new(all, "experts_idle", number(rf->last_idle));
    json_object_set_new(all, "best_eval_loss", number(rf->best_eval_loss));
    json_object_set_new(all, "best_step", rf->best_step ? json_integer((json_int_t)rf->best_step) : json_null());
    json_object_set_new(all, "checkpoints", json_string(rf->checkpoints));
    static const char *const parts[] = {"settings", "command", "started"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        json_object_set_new(all, parts[i], summary_part(rf, parts[i]));
    return all;
}
