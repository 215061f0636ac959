#include "train/summary.h"

#include "base/units.h"
#include "machine/machine.h"
#include "train/options.h"
#include "train/settings.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The plan, in sentences. */
static void describe_plan(const trainer *trainer, char *out, size_t n)
{
    const plan *plan = trainer_plan(trainer);
    int placements[TIERS] = {0};
    for (int i = 0; i < plan->chunks_n; i++)
        placements[plan->chunks[i].placement]++;
    char size[32], layers[160];
    size_t used = (size_t)snprintf(out, n, "%d chunk%s of up to %s:", plan->chunks_n, plural((uint64_t)plan->chunks_n),
                                   size_format(size, (uint64_t)plan->chunk_bytes));
    for (int k = 0; k < TIERS && used < n; k++)
        if (placements[k])
            used += (size_t)snprintf(out + used, n - used, " %d on the %s,", placements[k], tier_names[k]);
    if (used < n)
        used +=
            (size_t)snprintf(out + used, n - used, " updated %s; micro-batches of %lld %s%s", update_time_words[plan->update],
                             (long long)plan->micro_batch, explain_micro(plan, shape_parts(trainer_shape(trainer)) > 1),
                             plan->ranges ? "; experts by ranges" : "");
    for (int line = 0; explain_layers(plan, model_passing_layers(trainer->job.model), line, layers, sizeof layers) && used < n; line++)
        used += (size_t)snprintf(out + used, n - used, "; %s", layers);
}

/* How busy each queue will be, and what is written to the disk. */
static void describe_limits(const trainer *trainer, char *out, size_t n)
{
    const forecast *f = &trainer->predicted.now;
    size_t used = 0;
    char written[FORECAST_WRITTEN_BYTES];
    out[0] = 0;
    for (int q = 0; q < QUEUES && used < n; q++)
        if (f->busy_ns[q] >= 0.01 * f->step_ns && f->step_ns > 0)
            used += (size_t)snprintf(out + used, n - used, "%s%s %.0f%%", used ? ", " : "", queue_names[q],
                                     100 * f->busy_ns[q] / f->step_ns);
    if (used < n)
        snprintf(out + used, n - used, "%s", forecast_written(f, written));
}

static const char *measured_words(const trainer *trainer)
{
    static const char *const words[] = {[MEASURED_NOTHING] = "nothing", [MEASURED_STEADY] = "steady steps",
                                        [MEASURED_APART] = "steps without the updates that an evaluation or a checkpoint waits for",
                                        [MEASURED_FIRST] = "the first step, which is slower because its memory is used for the first time"};
    measured_kind kind;
    measured_any_s(&trainer->engine.measured, &kind);
    return words[kind];
}

_Static_assert(sizeof ((pt_summary *)0)->trains == MODEL_TRAINED_TEXT, "the one is the other");

void pt_trainer_summary(const pt_trainer *t, pt_summary *s)
{
    if (!s)
        return;
    memset(s, 0, sizeof *s);
    if (!t)
        return;
    s->model_type = t->job.model->config.model_type;
    s->process_peak_bytes = machine_process_peak();
    s->parameters = t->job.model->parameters;
    s->trained = model_trained_parameters(t->job.model);
    s->layers = t->job.model->config.layers;
    model_describe_trained(t->job.model, shape_optimizer(&t->job.shape)->name, s->trains);
    s->steps = t->job.steps;
    s->first_step = t->at.first_step;
    s->seq_len = t->job.shape.seq_len;
    s->batch_size = t->job.shape.batch;
    s->windows = (int64_t)dataset_windows(t->job.data);
    s->tokens = (int64_t)dataset_tokens(t->job.data);
    s->files = dataset_files(t->job.data);
    s->eval_files = t->job.eval && !(t->job.o.eval_split > 0) ? dataset_files(t->job.eval) : "";
    s->room = t->planning.room;
    s->costs = t->planning.source;
    s->complete = t->complete;
    s->machine = s->measured_of = "";
    if (t->complete)
        return;
    s->machine = t->planning.device->info.arithmetic;
    s->threads = t->planning.device->info.threads;
    s->predicted_step_s = t->predicted.now.step_ns * 1e-9;
    forecast_sure_words(&t->predicted.now, &t->planning.profile.costs, s->sure);
    s->corrected_step = t->predicted.corrected_step;
    s->moved_step = t->predicted.moved_step;
    s->measured_of = measured_words(t);
    settings_describe(&t->job, s->settings, sizeof s->settings);
    s->eval_loss = t->at.eval_loss;
    s->best_eval_loss = t->at.best_eval;
    s->best_step = t->at.best_step;
    s->best_metric = best_metric(&t->job.o);
    s->best_value = t->at.best_value;
    s->model_step = t->at.model_step;
    describe_plan(t, s->plan, sizeof s->plan);
    describe_limits(t, s->limits, sizeof s->limits);
    s->memory_n = trainer_memory(t, s->memory);
}

/* ---- predicted and measured ---- */

static pt_timing timing_of(const trainer *trainer, const char *name, double first_ns, double now_ns, double measured_s)
{
    return (pt_timing){name, first_ns * 1e-9, trainer->predicted.corrected_step ? now_ns * 1e-9 : 0, measured_s};
}

/* The time of a step without computation. */
static double waiting_ns(double step_ns, double computes_ns) { return fmax(step_ns - computes_ns, 0); }

/* The step, the phases, waiting, the queues; NAN if not measured. */
static void time_all(const trainer *trainer, pt_timing out[PT_TIMINGS])
{
    const forecast *a = &trainer->predicted.first, *b = &trainer->predicted.now;
    step_times s = measured_times(&trainer->engine.measured, trainer_plan(trainer)->update);
    measured_kind kind;
    double step_s = measured_any_s(&trainer->engine.measured, &kind);
    *out++ = timing_of(trainer, "step", a->step_ns, b->step_ns, kind ? step_s : NAN);
    for (int p = 0; p < PHASES; p++)
        *out++ = timing_of(trainer, phase_names[p], a->phase_ns[p], b->phase_ns[p], s.runs ? s.phase_ns[p] * 1e-9 : NAN);
    *out++ =
        timing_of(trainer, "waiting", waiting_ns(a->step_ns, a->busy_ns[QUEUE_COMPUTE]), waiting_ns(b->step_ns, b->busy_ns[QUEUE_COMPUTE]),
                  kind && s.runs ? waiting_ns(step_s * 1e9, s.busy_ns[QUEUE_COMPUTE]) * 1e-9 : NAN);
    for (int q = 0; q < QUEUES; q++)
        *out++ = timing_of(trainer, queue_names[q], a->busy_ns[q], b->busy_ns[q], s.runs ? s.busy_ns[q] * 1e-9 : NAN);
}

/* A ratio to 0 says nothing. */
static bool is_worth_saying(const pt_timing *step, const pt_timing *x)
{
    return x->predicted_s >= 0.01 * step->predicted_s || x->measured_s >= 0.01 * step->measured_s;
}

int pt_trainer_timings(const pt_trainer *t, pt_timing out[PT_TIMINGS])
{
    if (!t || !out || t->complete)
        return 0;
    pt_timing all[PT_TIMINGS];
    int n = 0;
    time_all(t, all);
    for (int i = 0; i < PT_TIMINGS; i++)
        if (!isnan(all[i].measured_s) && (i <= PHASES || is_worth_saying(all, &all[i])))
            out[n++] = all[i];
    return n;
}

/* ---- summary.json ---- */

static json_t *numbers_json(json_t *predicted, json_t *corrected, json_t *measured)
{
    return json_pack("{s:o, s:o, s:o}", "predicted", predicted, "corrected", corrected, "measured", measured);
}

static json_t *timing_json(const trainer *trainer, const pt_timing *x)
{
    return numbers_json(json_real(x->predicted_s), trainer->predicted.corrected_step ? json_real(x->corrected_s) : json_null(),
                        isnan(x->measured_s) ? json_null() : json_real(x->measured_s));
}

static json_t *timings_json(const trainer *trainer, const pt_timing *x, int n)
{
    json_t *o = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(o, x[i].name, timing_json(trainer, &x[i]));
    return o;
}

static json_t *memory_json(const trainer *trainer)
{
    json_t *all = json_object();
    for (int k = 0; k < TIERS; k++) {
        uint64_t first = trainer->predicted.first.bytes[k], now = executor_bytes(trainer->engine.x, k);
        if (!first && !now)
            continue;
        json_t *o =
            numbers_json(json_integer((json_int_t)first), trainer->predicted.corrected_step ? json_integer((json_int_t)now) : json_null(),
                         json_integer((json_int_t)executor_peak_bytes(trainer->engine.x, k)));
        json_object_set_new(o, "budget", json_integer((json_int_t)trainer->planning.budget[k]));
        json_object_set_new(all, tier_names[k], o);
    }
    return all;
}

/* The peak memory of each rank. */
static json_t *ranks_json(const trainer *trainer)
{
    json_t *all = json_array();
    for (int r = 0; r < trainer->comm->ranks; r++) {
        json_t *o = json_object();
        for (int k = 0; k < TIERS; k++)
            if (executor_bytes(trainer->engine.x, k))
                json_object_set_new(o, tier_names[k], json_integer((json_int_t)trainer->accounts[r].peak[k]));
        json_array_append_new(all, o);
    }
    return all;
}

/* Each rank's host, its process's memory, and the time of its part of a step. */
static json_t *accounts_json(const trainer *trainer)
{
    json_t *all = json_array();
    for (int r = 0; r < trainer->comm->ranks; r++) {
        const rank_account *a = &trainer->accounts[r];
        json_t *compute_s = isnan(a->compute_s) ? json_null() : json_real(a->compute_s);
        json_array_append_new(all, json_pack("{s:s, s:s, s:I, s:o}", "host", a->host, "device", a->device, "process_peak_bytes",
                                             (json_int_t)a->process_peak, "compute_s", compute_s));
    }
    return all;
}

/* -1: not measured */
static int slowest_rank(const trainer *trainer)
{
    int slowest = -1;
    for (int r = 0; r < trainer->comm->ranks; r++)
        if (!isnan(trainer->accounts[r].compute_s) &&
            (slowest < 0 || trainer->accounts[r].compute_s > trainer->accounts[slowest].compute_s))
            slowest = r;
    return slowest;
}

static json_t *warnings_json(const watch *w)
{
    json_t *all = json_array();
    for (watch_kind k = 0; k < WATCH_KINDS; k++)
        if (w->at[k])
            json_array_append_new(all, json_pack("{s:I, s:s}", "step", (json_int_t)w->at[k], "text", w->text[k]));
    return all;
}

/* What is known of a run before its first step, and the evaluations so far. */
static void add_run(json_t *o, const trainer *trainer)
{
    const job *j = &trainer->job;
    char *command = command_text();
    json_object_set_new(o, "protrain", json_string(pt_version()));
    json_object_set_new(o, "command", command ? json_string(command) : NULL);
    free(command);
    json_object_set_new(o, "started", json_string(trainer->started));
    json_object_set_new(o, "settings", settings_all_json(j));
    json_object_set_new(o, "data", json_pack("{s:I, s:I}", "tokens", (json_int_t)dataset_tokens(j->data), "windows",
                                             (json_int_t)dataset_windows(j->data)));
    if (!trainer->at.best_step)
        return;
    json_object_set_new(o, "eval_loss", isfinite(trainer->at.eval_loss) ? json_real(trainer->at.eval_loss) : json_null());
    json_object_set_new(o, "best_eval_loss", isfinite(trainer->at.best_eval) ? json_real(trainer->at.best_eval) : json_null());
    json_object_set_new(o, "best_step", json_integer((json_int_t)trainer->at.best_step));
    if (trainer->at.model_step)
        json_object_set_new(o, "model_step", json_integer((json_int_t)trainer->at.model_step));
    if (j->o.keep_best > PT_KEEP_BEST_EVAL_LOSS)
        json_object_set_new(o, best_metric(&j->o), json_real(trainer->at.best_value));
}

static int write(const trainer *trainer, json_t *o, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = o ? path_join(path, trainer->out.path, "summary.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, o, e);
    json_decref(o);
    return failed;
}

int summary_begin(const trainer *trainer, pt_error *e)
{
    json_t *o = json_pack("{s:I, s:I, s:I}", "first_step", (json_int_t)trainer->at.first_step + 1, "last_step",
                          (json_int_t)trainer->at.step, "steps", (json_int_t)trainer->job.steps);
    if (o)
        add_run(o, trainer);
    return write(trainer, o, e);
}

int summary_write(const trainer *trainer, pt_error *e)
{
    char trains[MODEL_TRAINED_TEXT];
    pt_timing times[PT_TIMINGS];
    time_all(trainer, times);
    const job *j = &trainer->job;
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "first_step",
                          (json_int_t)trainer->at.first_step + 1, "last_step", (json_int_t)trainer->at.step, "steps", (json_int_t)j->steps,
                          "parameters", (json_int_t)j->model->parameters, "trained_parameters",
                          (json_int_t)model_trained_parameters(j->model), "corrected_after_step",
                          (json_int_t)trainer->predicted.corrected_step, "moved_after_step", (json_int_t)trainer->predicted.moved_step,
                          "measured_of", measured_words(trainer), "step_s", timing_json(trainer, &times[0]), "phases_s",
                          timings_json(trainer, times + 1, PHASES), "waiting_s", timing_json(trainer, &times[1 + PHASES]), "queues_s",
                          timings_json(trainer, times + 2 + PHASES, QUEUES), "memory_bytes", memory_json(trainer), "threads_bytes",
                          (json_int_t)trainer->planning.search.threads_bytes, "process_peak_bytes", (json_int_t)machine_process_peak());
    model_describe_trained(j->model, shape_optimizer(&j->shape)->name, trains);
    if (o) {
        json_object_set_new(o, "trains", json_string(trains));
        json_object_set_new(o, "warnings", warnings_json(&trainer->watch));
        add_run(o, trainer);
    }
    if (o && trainer->comm) {
        json_object_set_new(o, "ranks_peak_bytes", ranks_json(trainer));
        json_object_set_new(o, "ranks", accounts_json(trainer));
        json_object_set_new(o, "slowest_rank", json_integer(slowest_rank(trainer)));
    }
    return write(trainer, o, e);
}
