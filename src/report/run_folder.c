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

static __attribute__((format(printf, 2, 3))) void note(run_folder *r, const char *fmt, ...)
{
    va_list ap;
    if (r->notes_n == RUN_NOTES)
        return;
    char *text = r->notes[r->notes_n++];
    va_start(ap, fmt);
    text_format(text, sizeof r->notes[0], fmt, ap);
    va_end(ap);
    make_valid(text);
}

/* ---- metrics ---- */

static void add_point(series *c, int64_t step, double y)
{
    if (!isnan(y))
        series_add(c, step, y);
}

static void take_times(run_folder *r, const metrics_line *x)
{
    const bool changed = x->predicted_step_s != r->predicted_step_s; /* NAN too */
    if (changed || r->only_first)
        r->step_s.n = r->tokens_per_s.n = 0;
    r->only_first = changed;
    r->predicted_step_s = x->predicted_step_s;
    if (!isnan(x->step_s)) {
        recent_add(&r->step_s, x->step_s);
        r->seconds += x->step_s;
    }
    if (!isnan(x->tokens_per_s))
        recent_add(&r->tokens_per_s, x->tokens_per_s);
}

static void keep(double *last, double x) { *last = isnan(x) ? *last : x; }

static void take_pairs(run_folder *r, const metrics_line *x)
{
    add_point(&r->chosen, x->step, x->chosen);
    add_point(&r->rejected, x->step, x->rejected);
    add_point(&r->margin, x->step, x->margin);
    add_point(&r->accuracy, x->step, x->accuracy);
    add_point(&r->eval_margin, x->step, x->eval_margin);
    add_point(&r->eval_accuracy, x->step, x->eval_accuracy);
    add_point(&r->kl, x->step, x->kl);
    add_point(&r->eval_kl, x->step, x->eval_kl);
    add_point(&r->right, x->step, x->right);
    add_point(&r->eval_right, x->step, x->eval_right);
    keep(&r->last_right, x->right);
    keep(&r->last_eval_right, x->eval_right);
    keep(&r->last_kl, x->kl);
    keep(&r->last_margin, x->margin);
    keep(&r->last_accuracy, x->accuracy);
    keep(&r->last_eval_margin, x->eval_margin);
    keep(&r->last_eval_accuracy, x->eval_accuracy);
}

static void take_experts(run_folder *r, const metrics_line *x)
{
    add_point(&r->expert_load, x->step, x->expert_load);
    add_point(&r->experts_idle, x->step, x->experts_idle);
    add_point(&r->aux_loss, x->step, x->aux_loss);
    keep(&r->last_load, x->expert_load);
    keep(&r->last_idle, x->experts_idle);
}

static void take_warnings(run_folder *r, const metrics_line *x)
{
    for (int i = 0; i < 3; i++) {
        if (!x->warnings[i][0] || r->warnings_n == RUN_WARNINGS)
            continue;
        char *text = r->warnings[r->warnings_n++];
        memcpy(text, x->warnings[i], METRICS_WARNING_BYTES);
        make_valid(text);
    }
}

static int take_line(void *arg, const metrics_line *x, pt_error *e)
{
    run_folder *r = arg;
    if (!r->first_step) {
        r->first_step = x->step;
        r->first_loss = r->min_loss = x->loss;
        r->min_loss_step = x->step;
    }
    if (x->loss < r->min_loss) {
        r->min_loss = x->loss;
        r->min_loss_step = x->step;
    }
    r->last_step = x->step;
    r->last_loss = x->loss;
    r->tokens = x->tokens;
    r->learned_tokens = x->learned_tokens;
    r->eval_loss = isnan(x->eval_loss) ? r->eval_loss : x->eval_loss;
    if (x->eval_loss < r->best_eval_loss || (r->best_step == 0 && !isnan(x->eval_loss))) {
        r->best_eval_loss = x->eval_loss;
        r->best_step = x->step;
    }
    take_times(r, x);
    add_point(&r->loss, x->step, x->loss);
    add_point(&r->eval, x->step, x->eval_loss);
    add_point(&r->grad_norm, x->step, x->grad_norm);
    add_point(&r->lr, x->step, x->lr);
    add_point(&r->step, x->step, x->step_s);
    add_point(&r->predicted, x->step, x->predicted_step_s);
    add_point(&r->speed, x->step, x->tokens_per_s);
    take_pairs(r, x);
    take_experts(r, x);
    take_warnings(r, x);
    memcpy(r->peak, x->peak, sizeof r->peak);
    memcpy(r->predicted_bytes, x->predicted, sizeof r->predicted_bytes);
    memcpy(r->budget, x->budget, sizeof r->budget);
    return 0;
}

static int read_metrics(run_folder *r, const char *folder, pt_error *e)
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
        failed = metrics_file_read(path, take_line, r, &torn, e);
    if (!failed && !r->last_step)
        failed = pt_fail(e, PT_FAILED, "%.400s: the file has no step yet: try again when the run has done one", path);
    if (!failed && torn)
        note(r, "metrics.jsonl: line %llu, the last, is incomplete and left out: the run was killed, or is writing it now",
             (unsigned long long)torn);
    return failed;
}

/* ---- other files ---- */

/* path = folder/name; false, with a note, if there is no such file. */
static bool find(run_folder *r, const char *folder, const char *name, const char *lost, char path[FILE_PATH_BYTES])
{
    pt_error e = {0};
    if (path_join(path, folder, name, &e)) {
        note(r, "%s", e.text);
        return false;
    }
    if (!path_exists(path) && lost)
        note(r, "%s is missing: %s", name, lost);
    return path_exists(path);
}

static void read_summary(run_folder *r, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (!find(r, folder, "summary.json", NULL, path))
        return;
    if (json_file_load(path, 0, &r->summary, &e))
        note(r, "%s", e.text);
    else if (!json_is_object(r->summary))
        note(r, "%s: the file is %s, not an object", path, json_type_name(r->summary));
}

static void find_checkpoints(run_folder *r, const char *folder)
{
    int64_t step = INT64_MAX;
    char all[sizeof r->checkpoints] = "";
    while ((step = step_folders_newest(folder, "trainer/trainer.json", step - 1)) >= 0) {
        const int n = snprintf(r->checkpoints, sizeof r->checkpoints, "%lld%s%s", (long long)step, all[0] ? ", " : "", all);
        if (n >= (int)sizeof all)
            break;
        memcpy(all, r->checkpoints, sizeof all);
    }
    memcpy(r->checkpoints, all, sizeof all);
}

static void read_plan(run_folder *r, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (!find(r, folder, "plan.json", "the page does not show the model and what each layer saves", path))
        return;
    r->planned = !plan_read(path, &r->plan, &e);
    if (!r->planned)
        note(r, "%s", e.text);
}

static void read_machine(run_folder *r, const char *folder)
{
    char path[FILE_PATH_BYTES];
    machine_spec x;
    pt_error e = {0};
    if (!find(r, folder, "machine.json", "the page does not name the machine", path))
        return;
    if (machine_file_read(path, &x, &e))
        note(r, "%s", e.text);
    else
        memcpy(r->machine, x.name, sizeof r->machine);
}

static void read_trace(run_folder *r, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (find(r, folder, "trace.json", NULL, path) && timeline_read(path, &r->timeline, &e))
        note(r, "%s", e.text);
}

static void read_said(run_folder *r, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (find(r, folder, SAMPLES_NAME, NULL, path) && said_read(path, &r->samples, &e))
        note(r, "%s", e.text);
}

/* Uses the parts only if their sums are the last line's prediction: a run that plans again writes the two files one after the other. */
static void read_memory(run_folder *r, const char *folder)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    if (!find(r, folder, MEMORY_FILE, NULL, path))
        return;
    if (memory_file_read(path, r->part, &e)) {
        note(r, "%s", e.text);
        return;
    }
    r->parted = true;
    for (int t = 0; t < TIERS; t++) {
        uint64_t sum = 0;
        for (int p = 0; p < MEMORY_PARTS; p++)
            sum += r->part[t][p];
        r->parted = r->parted && sum == r->predicted_bytes[t];
    }
}

/* ---- the whole ---- */

static void take_name(run_folder *r, const char *folder)
{
    size_t n = strlen(folder), start;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    for (start = n; start > 0 && folder[start - 1] != '/';)
        start--;
    snprintf(r->name, sizeof r->name, "%.*s", (int)(n - start), folder + start);
    make_valid(r->name);
}

int run_folder_read(const char *folder, run_folder **out, pt_error *e)
{
    run_folder *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return pt_fail(e, PT_FAILED, "out of memory");
    r->eval_loss = r->best_eval_loss = r->predicted_step_s = NAN;
    r->last_load = r->last_idle = r->last_right = r->last_eval_right = NAN;
    r->last_margin = r->last_accuracy = r->last_eval_margin = r->last_eval_accuracy = r->last_kl = NAN;
    take_name(r, folder);
    int failed = read_metrics(r, folder, e);
    if (failed) {
        run_folder_free(r);
        return failed;
    }
    read_summary(r, folder);
    find_checkpoints(r, folder);
    read_plan(r, folder);
    read_machine(r, folder);
    read_memory(r, folder);
    read_trace(r, folder);
    read_said(r, folder);
    *out = r;
    return 0;
}

void run_folder_free(run_folder *r)
{
    if (!r)
        return;
    if (r->planned)
        plan_free(&r->plan);
    timeline_free(r->timeline);
    said_free(&r->samples);
    json_decref(r->summary);
    free(r);
}

double run_step_error(const run_folder *r)
{
    return r->predicted_step_s > 0 ? recent_median(&r->step_s) / r->predicted_step_s - 1 : NAN;
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

static json_t *warnings_json(const run_folder *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->warnings_n; i++)
        json_array_append_new(all, json_string(r->warnings[i]));
    return all;
}

static json_t *notes_json(const run_folder *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->notes_n; i++)
        json_array_append_new(all, json_string(r->notes[i]));
    return all;
}

/* What summary.json has of the key, or null. */
static json_t *summary_part(const run_folder *r, const char *key)
{
    json_t *part = json_object_get(r->summary, key);
    return part ? json_incref(part) : json_null();
}

json_t *run_folder_json(const run_folder *r)
{
    json_t *all = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                            "s:o, s:o, s:o, s:o, s:s, s:o}",
                            "first_step", (json_int_t)r->first_step, "steps", (json_int_t)r->last_step, "tokens", (json_int_t)r->tokens,
                            "learned_tokens", (json_int_t)r->learned_tokens, "first_loss", r->first_loss, "last_loss", r->last_loss,
                            "min_loss", r->min_loss, "min_loss_step", (json_int_t)r->min_loss_step, "eval_loss", number(r->eval_loss),
                            "seconds", r->seconds, "median_step_s", number(recent_median(&r->step_s)), "predicted_step_s",
                            number(r->predicted_step_s), "error_percent", number(100 * run_step_error(r)), "tokens_per_s",
                            number(recent_median(&r->tokens_per_s)), "peak_bytes", tiers_json(r->peak), "predicted_bytes",
                            tiers_json(r->predicted_bytes), "budget_bytes", tiers_json(r->budget), "samples", said_json(&r->samples),
                            "notes", notes_json(r), "reward_margin", number(r->last_margin), "reward_accuracy", number(r->last_accuracy),
                            "eval_reward_margin", number(r->last_eval_margin), "eval_reward_accuracy", number(r->last_eval_accuracy),
                            "trains", r->planned ? r->plan.made_for.trains : "", "warnings", warnings_json(r));
    json_object_set_new(all, "accuracy", number(r->last_right));
    json_object_set_new(all, "eval_accuracy", number(r->last_eval_right));
    json_object_set_new(all, "kl", number(r->last_kl));
    json_object_set_new(all, "expert_load_max", number(r->last_load));
    json_object_set_new(all, "experts_idle", number(r->last_idle));
    json_object_set_new(all, "best_eval_loss", number(r->best_eval_loss));
    json_object_set_new(all, "best_step", r->best_step ? json_integer((json_int_t)r->best_step) : json_null());
    json_object_set_new(all, "checkpoints", json_string(r->checkpoints));
    static const char *const parts[] = {"settings", "command", "started"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        json_object_set_new(all, parts[i], summary_part(r, parts[i]));
    return all;
}
