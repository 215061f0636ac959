/* setup.c - from options to a run before its first step. */
#include "train/setup.h"

#include "base/units.h"
#include "io/disk.h"
#include "io/safetensors.h"
#include "options/run_file.h"
#include "report/metrics_file.h"
#include "run/state.h"
#include "train/adapters.h"
#include "train/best.h"
#include "train/block_turns.h"
#include "train/checkpoint.h"
#include "train/checkpoints.h"
#include "train/fetch.h"
#include "train/options.h"
#include "train/samples.h"
#include "train/summary.h"
#include "train/ranks.h"
#include "train/turn_files.h"

#include <math.h>
#include <string.h>

/* ---- budgets and plan ---- */

/* Less disk may be free than the given budget: the run's own checkpoints use some. */
static int lower_disk(trainer *t, pt_error *e)
{
    const char *folder = t->planning.disk_path;
    const uint64_t asked = t->job.o.disk_memory;
    uint64_t have;
    if (!asked || asked == PT_AUTO || disk_is_memory(folder))
        return 0;
    int failed = disk_room_bytes(folder, &have, e);
    if (failed || asked <= have)
        return failed;
    char a[32], b[32];
    options_notice(&t->job.o, "`disk_memory` is %s, but only %s are free now: the run uses as much as it would without the option",
                   size_format(a, asked), size_format(b, have));
    t->job.o.disk_memory = PT_AUTO;
    return 0;
}

static int find_plan(trainer *t, pt_error *e)
{
    int failed = 0;
    if (ranks_lead(t))
        failed = planning_make(&t->planning, e);
    else
        ranks_measure_too(t);
    return failed ? failed : ranks_take_plan(t, e);
}

/* What the user has been told at the start is not told again. */
int trainer_plan_again(trainer *t, pt_error *e)
{
    planning *p = &t->planning;
    pt_train_options silent = t->job.o;
    silent.notice = NULL;
    silent.progress = NULL;
    search_result_free(&p->result);
    p->result = (search_result){0};
    p->others_n = 0;
    p->o = &silent;
    const int failed = ranks_all(t, find_plan(t, e), e);
    p->o = &t->job.o;
    return failed;
}

static int make_plan(trainer *t, pt_error *e)
{
    planning *p = &t->planning;
    int failed = ranks_cut(t, e);
    p->runs = true;
    if (!failed)
        failed = planning_open_device(p, &t->job.o, e);
    if (!failed)
        failed = ranks_agree_on_arithmetic(t, e);
    if (!failed)
        failed = ranks_reach_devices(t, e);
    p->o = &t->job.o;
    p->model = t->job.model;
    p->shape = t->comm ? &t->own_shape : &t->job.shape;
    p->ranks = t->comm ? t->ranks_here : 1;
    p->on_device = t->comm ? t->ranks_on_gpu : 1;
    p->evaluates = t->job.eval || reference_is_used(&t->job);
    if (t->job.o.disk_path)
        snprintf(p->disk_path, sizeof p->disk_path, "%s", t->job.o.disk_path);
    else if (!failed)
        failed = path_join(p->disk_path, t->out.path, "disk", e);
    if (!failed && t->out.from[0])
        failed = lower_disk(t, e);
    const uint64_t saves = checkpoint_room(t).least_bytes;
    p->disk_reserve = disk_is_same(p->disk_path, t->out.path) ? saves : 0;
    p->disk_own = commits_found_bytes(t->out.path);
    p->memory_reserve = disk_is_memory(t->out.path) ? saves : 0;
    if (!failed)
        failed = ranks_time(t, &p->exchange, e);
    if (!failed)
        failed = ranks_limit(t, e);
    if (!failed)
        failed = find_plan(t, e);
    return failed || !ranks_lead(t) ? failed : block_turns_check(&t->job.o, p, t->job.model, t->group, e);
}

static int open_engine(trainer *t, pt_error *e)
{
    int failed = commits_open(t, e);
    if (!failed)
        failed = trainer_open_engine(t, e);
    t->predicted.first = t->predicted.now;
    t->predicted.first_costs = t->planning.profile.costs;
    return failed;
}

/* ---- state ---- */

/* The rows of added tokens. */
static int add_rows(const job *j, state *s, pt_error *e)
{
    const state_new_rows rows = {j->added.first, j->added.n, j->added.pieces.ids, j->added.end};
    safetensors *st;
    int failed = safetensors_open(j->model_dir, &st, e);
    if (failed)
        return failed;
    failed = state_add_rows(s, st, &rows, e);
    safetensors_close(st);
    return failed;
}

/* A head of scores that the model does not have. */
static int init_head(const job *j, state *s, pt_error *e)
{
    safetensors *st;
    int failed = safetensors_open(j->model_dir, &st, e);
    if (failed)
        return failed;
    const bool has = weights_have_scores(j->model, st);
    safetensors_close(st);
    if (has)
        return 0;
    options_notice(&j->o, "%.400s has no head that scores (score.weight): it starts at random (seed %llu)", j->model_dir,
                   (unsigned long long)j->o.seed);
    return state_init_head(s, j->o.seed, e);
}

static int load_weights(trainer *t, pt_error *e)
{
    state s;
    state_open(&s, t->engine.x);
    base_lend(&t->job.base, &s);
    int failed;
    if (t->job.model->adapters) {
        failed = adapters_load(&s, t->job.random_init ? NULL : t->job.model_dir, t->job.o.adapter, t->job.o.seed, e);
        t->job.base_sum = s.base_sum;
    } else if (t->job.random_init) {
        failed = state_init(&s, t->job.o.seed, e);
    } else {
        safetensors *st;
        failed = safetensors_open(t->job.model_dir, &st, e);
        if (!failed) {
            failed = state_load(&s, st, e);
            if (!failed)
                weights_notice_unused(t->job.model, st, t->job.o.notice, t->job.o.arg);
            safetensors_close(st);
        }
    }
    if (!failed && t->job.model->config.labels && !t->job.random_init && !t->job.o.adapter)
        failed = init_head(&t->job, &s, e);
    if (!failed && t->job.added.n && !t->job.random_init)
        failed = add_rows(&t->job, &s, e);
    if (!failed && !t->job.random_init)
        failed = ranks_compare_loaded(t, &s, t->job.model_dir, e);
    base_take_sum(&t->job.base, &s);
    int closed = state_close(&s, failed ? NULL : e);
    if (!failed && !closed)
        engine_loaded(&t->engine);
    return failed ? failed : closed;
}

static int write_profile(trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    const planning *p = &t->planning;
    int failed = p->profiled ? path_join(path, t->out.path, "profile.json", e) : 0;
    t->out.wrote_profile = p->profiled; /* by rank 0, if there are several */
    return failed || !p->profiled ? failed : profile_write(path, &p->request, &p->profile, e);
}

/* machine.json: a machine file from the measurements of this run, or the given one. */
static int write_machine(trainer *t, pt_error *e)
{
    const planning *p = &t->planning;
    char path[FILE_PATH_BYTES];
    if (!ranks_lead(t))
        return 0;
    int failed = path_join(path, t->out.path, "machine.json", e);
    t->out.wrote_machine = true;
    if (!failed && p->from_file)
        return file_copy_atomic(p->machine_path, path, e);
    return failed ? failed : planning_write_machine(p, &p->profile.costs, path, e);
}

/* ---- the steps of setting up ---- */

static int claim_output(trainer *t, pt_error *e)
{
    int failed = ranks_lead(t) ? output_claim(&t->out, &t->job.o, e) : 0;
    if (!failed)
        failed = ranks_share(t, t->out.path, sizeof t->out.path, e);
    if (!failed && !ranks_lead(t))
        failed = dir_make(t->out.path, e); /* another machine may not see it */
    if (!failed)
        failed = ranks_share(t, t->out.cache, sizeof t->out.cache, e);
    if (!failed)
        failed = ranks_share(t, t->out.from, sizeof t->out.from, e);
    if (!failed && !ranks_lead(t))
        failed = commits_find_too(&t->out, e);
    return failed ? failed : ranks_share(t, &t->out.finished, sizeof t->out.finished, e);
}

static int open_model(trainer *t, pt_error *e) { return job_open_model(&t->job, t->out.from, e); }

static int choose_shape(trainer *t, pt_error *e) { return job_choose_shape(&t->job, t->out.from[0] != 0, e); }

static int open_data(trainer *t, pt_error *e)
{
    int failed = ranks_lead(t) ? 0 : ranks_wait(t, e); /* until the token cache is complete */
    if (!failed)
        failed = job_open_data(&t->job, t->out.cache, e);
    return !failed && ranks_lead(t) ? ranks_wait(t, e) : failed;
}

static int count_steps(trainer *t, pt_error *e) { return job_count_steps(&t->job, e); }

static int read_counters(trainer *t, pt_error *e)
{
    if (!t->out.finished)
        return t->out.from[0] ? checkpoint_read_counters(t, t->out.from, e) : 0;
    int failed = ranks_lead(t) ? checkpoint_read_finished(t, e) : 0;
    if (!failed)
        failed = ranks_share(t, &t->at, sizeof t->at, e);
    t->complete = !failed;
    if (t->complete)
        options_notice(&t->job.o, "the run in %.600s is complete: its %lld steps are done and its %s is written", t->out.path,
                       (long long)t->at.step, t->job.model->adapters ? "adapter" : "model");
    return failed;
}

static int take_turn(trainer *t, pt_error *e)
{
    const job *j = &t->job;
    const int groups = block_turns_groups(&j->o, j->model);
    if (groups > 1 && !t->complete)
        options_notice(&j->o, "%lld of %lld layers are trained at a time, for %lld steps: all of them have had a turn after %lld steps, "
                              "and the run has %lld",
                       (long long)j->o.train_blocks, (long long)j->model->config.layers, (long long)j->o.switch_every,
                       (long long)(groups * j->o.switch_every), (long long)j->steps);
    return block_turns_take(t, e);
}

/* Those of a run with another `keep` go with the next one that is written. */
static void tell_surplus(const trainer *t)
{
    const int keep = t->job.o.keep, there = checkpoints_count(t->out.path, t->at.step);
    if (keep && there > keep)
        options_notice(&t->job.o, "%.600s has %d checkpoints, and the next one replaces all but the newest %d: `keep` 0 keeps them",
                       t->out.path, there, keep - 1);
}

static int check_room(trainer *t, pt_error *e)
{
    const room_need need = checkpoint_room(t);
    if (!ranks_lead(t))
        return 0;
    tell_surplus(t);
    return room_check(&need, &t->job.o, e);
}

/* ---- reference losses of pairs ---- */

static int open_training(trainer *t, bool fresh, pt_error *e)
{
    const reference_want w = reference_of_training(&t->job);
    return reference_open(&t->reference, t->out.path, "reference.bin", &w, fresh, t->at.reference, &t->job, e);
}

static int open_held(trainer *t, bool fresh, pt_error *e)
{
    const reference_want w = reference_of_evaluation(&t->job);
    char path[FILE_PATH_BYTES];
    const bool there = !path_join(path, t->out.path, "reference-eval.bin", NULL) && path_exists(path); /* it may evaluate from now on */
    return reference_open(&t->held, t->out.path, "reference-eval.bin", &w, fresh || !there, t->at.reference, &t->job, e);
}

/* Sends rank 0's description of the reference file to the other ranks. */
static int share_reference(const trainer *t, reference *r, pt_error *e)
{
    reference of_zero = *r;
    const int failed = ranks_share(t, &of_zero, sizeof of_zero, e);
    if (!failed && !ranks_lead(t)) {
        *r = of_zero;
        r->fd = -1;
    }
    return failed;
}

static int open_references(trainer *t, pt_error *e)
{
    const bool leads = ranks_lead(t), fresh = !t->out.from[0];
    if (!reference_is_used(&t->job))
        return 0;
    int failed = leads ? open_training(t, fresh, e) : 0;
    if (!failed && leads && t->job.eval)
        failed = open_held(t, fresh, e);
    if (!failed)
        failed = share_reference(t, &t->reference, e);
    if (!failed && !t->at.reference)
        t->at.reference = t->reference.model;
    return failed ? failed : share_reference(t, &t->held, e);
}

static bool references_lack(const trainer *t)
{
    const reference_want w = reference_is_used(&t->job) ? reference_of_training(&t->job) : (reference_want){0};
    const reference_want held = w.data && t->job.eval ? reference_of_evaluation(&t->job) : (reference_want){0};
    return reference_lacks(&t->reference, &w) || reference_lacks(&t->held, &held);
}

/* Tells whether it is the model that the run began with. */
static int sum_model(trainer *t, uint64_t *sum, pt_error *e)
{
    uint64_t sums[STATE_KINDS_MOST];
    state s;
    state_open(&s, t->engine.x);
    int failed = state_checksums(&s, sums, e), closed = state_close(&s, failed ? NULL : e);
    *sum = sums[STATE_MASTER] + t->job.base_sum + t->job.base.sum;
    return failed ? failed : closed;
}

static int complete(trainer *t, reference *r, const reference_want *w, pt_error *e)
{
    return reference_lacks(r, w) ? reference_complete(r, w, t->at.reference, &t->job, t->engine.x, ranks_lead(t), e) : 0;
}

static int complete_references(trainer *t, pt_error *e)
{
    uint64_t sum = 0;
    int failed = sum_model(t, &sum, e);
    if (!failed && t->at.reference && t->at.reference != sum)
        failed = pt_fail(e, PT_FAILED,
                         "`model` %.300s is not the model that the run began with, with which pairs are compared: give that one",
                         t->job.model_dir);
    if (failed)
        return failed;
    if (t->out.from[0] && !t->at.reference)
        options_notice(&t->job.o, "%.600s does not say with which model the run began: `model` %.300s is taken for it", t->out.from,
                       t->job.model_dir);
    t->at.reference = sum;
    const reference_want w = reference_of_training(&t->job);
    failed = complete(t, &t->reference, &w, e);
    if (failed || !t->job.eval)
        return failed;
    const reference_want held = reference_of_evaluation(&t->job);
    return complete(t, &t->held, &held, e);
}

/* A resumed run that needs more reference losses first loads the model with which it began. */
static int load_state(trainer *t, pt_error *e)
{
    const bool fresh = !t->out.from[0], asks = references_lack(t), frozen = t->out.committed && !model_trains_all(t->job.model);
    int failed = fresh || asks || frozen ? load_weights(t, e) : 0;
    if (!failed && asks)
        failed = complete_references(t, e);
    if (failed || fresh)
        return failed;
    failed = t->out.committed     ? commits_load(t, e)
             : block_turns_start(t) ? checkpoint_load_weights(t, t->out.from, e)
                                    : checkpoint_load_state(t, t->out.from, e);
    if (!failed)
        options_notice(&t->job.o, "continuing from %.600s, after step %lld", t->out.from, (long long)t->at.step);
    return failed;
}

static int open_turns(trainer *t, pt_error *e)
{
    return block_turns_groups(&t->job.o, t->job.model) > 1 && !t->comm ? turn_files_open(t, e) : 0;
}

static int put_later_away(trainer *t, pt_error *e)
{
    const bool goes_on = ranks_lead(t) && t->out.from[0] && t->at.step < t->job.steps;
    return goes_on ? checkpoints_put_later_away(t->out.path, t->at.step, &t->job.o, e) : 0;
}

/* Takes samples of the model before training; not for resumed runs or random weights. Only rank 0 computes them. */
static int take_samples(trainer *t, pt_error *e)
{
    if (!t->out.from[0] && !t->job.random_init && ranks_lead(t))
        samples_take(t, false);
    return ranks_wait(t, e);
}

static int watch_line(void *arg, const metrics_line *x, pt_error *e)
{
    watch *w = arg;
    watch_step(w, x->step, x->loss, x->grad_norm);
    if (!isnan(x->eval_loss))
        watch_evaluation(w, x->step, x->eval_loss);
    return 0;
}

/* Without knowledge, each of the vocabulary's tokens is as likely as any other. */
static void open_watch(trainer *t)
{
    const job *j = &t->job;
    const double guess = shape_compares(&j->shape) ? INFINITY : log((double)model_outputs(&j->model->config));
    uint64_t torn;
    watch_open(&t->watch, guess, j->shape.batch);
    if (t->at.step && metrics_file_read(t->metrics.path, watch_line, &t->watch, &torn, NULL))
        watch_open(&t->watch, guess, j->shape.batch);
}

/* What the lines of an earlier process say. last: the step of the last one, 0: none. */
typedef struct lines_read { trainer *t; int64_t last; bool evaluated; } lines_read;

static double number_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void read_line(void *arg, int64_t step, const json_t *line)
{
    lines_read *l = arg;
    const pt_train_options *o = &l->t->job.o;
    l->last = step;
    l->evaluated = json_object_get(line, "eval_loss");
    if (l->evaluated)
        best_note(&l->t->at, o, step, number_of(line, "eval_loss"), number_of(line, best_metric(o)));
}

/* Rank 0 reads. */
static int share_counters(trainer *t, pt_error *e) { return ranks_share(t, &t->at, sizeof t->at, e); }

static int open_metrics(trainer *t, pt_error *e)
{
    lines_read lines = {.t = t};
    bool there;
    if (!ranks_lead(t))
        return share_counters(t, e);
    int failed = step_lines_open(&t->metrics, t->out.path, t->at.step, read_line, &lines, &there, e);
    if (!failed)
        failed = events_open(&t->events, t->out.path, t->at.step, t->job.o.tensorboard, e);
    if (failed)
        return failed;
    if (there && lines.last < t->at.step)
        options_notice(&t->job.o, "%s has no lines for steps %lld to %lld", t->metrics.path, (long long)lines.last + 1,
                       (long long)t->at.step);
    open_watch(t);
    t->at.owes_evaluation = lines.last && lines.last == t->at.step && !lines.evaluated && trainer_evaluates(t);
    best_look_for(t);
    return share_counters(t, e);
}

static int write_plan(trainer *t, pt_error *e) { return ranks_lead(t) ? trainer_write_plan(t, e) : 0; }

/* run.yaml, with which the run is repeated, and what is known of it before the first step. */
static int write_run(trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    pt_error why = {0};
    if (!ranks_lead(t))
        return 0;
    t->out.wrote_run = true;
    pt_train_options o = t->job.o;
    o.device = o.device == t->gpu ? "auto" : o.device; /* a rank's own GPU is not that of all */
    int failed = path_join(path, t->out.path, RUN_FILE, e);
    if (!failed)
        failed = run_file_write(&train_table, &o, path, e);
    if (!failed && summary_begin(t, &why)) /* no more than an account, as at the end */
        options_notice(&t->job.o, "%s", why.text);
    return failed;
}

int trainer_setup(trainer *t, pt_error *e)
{
    static int (*const steps[])(trainer *t, pt_error *e) = {
        ranks_open,    claim_output, fetch_checkpoint, open_model,   choose_shape, open_data,
        count_steps,   read_counters, take_turn,   ranks_agree,     take_samples, make_plan,    open_engine,
        check_room,    open_references, load_state,    open_turns,    write_profile, write_machine,
        commits_begin,
        put_later_away, /* before its metrics are cut: the newest checkpoint and its metrics belong together */
        open_metrics, write_plan, write_run};
    output_init(&t->out);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !t->complete; i++) {
        int failed = steps[i](t, e);
        if (failed)
            return ranks_fail(t, failed, e);
    }
    return 0;
}
