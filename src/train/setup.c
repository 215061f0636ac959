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
#include "train/commit_file.h"
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
static int lower_disk(trainer *trainer, pt_error *e)
{
    const char *folder = trainer->planning.disk_path;
    const uint64_t asked = trainer->job.o.disk_memory;
    uint64_t have;
    if (!asked || asked == PT_AUTO || disk_is_memory(folder))
        return 0;
    int failed = disk_room_bytes(folder, &have, e);
    if (failed || asked <= have)
        return failed;
    char a[32], b[32];
    options_notice(&trainer->job.o, "`disk_memory` is %s, but only %s are free now: the run uses as much as it would without the option",
                   size_format(a, asked), size_format(b, have));
    trainer->job.o.disk_memory = PT_AUTO;
    return 0;
}

static int find_plan(trainer *trainer, pt_error *e)
{
    int failed = 0;
    if (ranks_lead(trainer))
        failed = planning_make(&trainer->planning, e);
    else
        ranks_measure_too(trainer);
    return failed ? failed : ranks_take_plan(trainer, e);
}

/* What the user has been told at the start is not told again. */
int trainer_plan_again(trainer *trainer, pt_error *e)
{
    planning *planning = &trainer->planning;
    pt_train_options silent = trainer->job.o;
    silent.notice = NULL;
    silent.progress = NULL;
    search_result_free(&planning->result);
    planning->result = (search_result){0};
    planning->others_n = 0;
    planning->o = &silent;
    const int failed = ranks_all(trainer, find_plan(trainer, e), e);
    planning->o = &trainer->job.o;
    return failed;
}

static int make_plan(trainer *trainer, pt_error *e)
{
    planning *planning = &trainer->planning;
    int failed = ranks_cut(trainer, e);
    planning->runs = true;
    if (!failed)
        failed = planning_open_device(planning, &trainer->job.o, e);
    if (!failed)
        failed = ranks_agree_on_arithmetic(trainer, e);
    if (!failed)
        failed = ranks_reach_devices(trainer, e);
    planning->o = &trainer->job.o;
    planning->model = trainer->job.model;
    planning->shape = &trainer->own_shape;
    planning->ranks = trainer->comm ? trainer->ranks_here : 1;
    planning->on_device = trainer->comm ? trainer->ranks_on_gpu : 1;
    planning->evaluates = trainer->job.eval || reference_is_used(&trainer->job);
    if (trainer->job.o.disk_path)
        snprintf(planning->disk_path, sizeof planning->disk_path, "%s", trainer->job.o.disk_path);
    else if (!failed)
        failed = path_join(planning->disk_path, trainer->out.path, DISK_FOLDER, e);
    if (!failed && ranks_lead(trainer))
        commit_file_clean(trainer);
    if (!failed && trainer->out.from[0])
        failed = lower_disk(trainer, e);
    const uint64_t saves = checkpoint_room(trainer).least_bytes;
    planning->disk_reserve = disk_is_same(planning->disk_path, trainer->out.path) ? saves : 0;
    planning->disk_own = commits_found_bytes(trainer->out.path);
    planning->memory_reserve = disk_is_memory(trainer->out.path) ? saves : 0;
    if (!failed)
        failed = ranks_time(trainer, &planning->exchange, e);
    if (!failed)
        failed = ranks_limit(trainer, e);
    if (!failed)
        failed = find_plan(trainer, e);
    return failed || !ranks_lead(trainer) ? failed : block_turns_check(&trainer->job.o, planning, trainer->job.model, trainer->group, e);
}

static int open_engine(trainer *trainer, pt_error *e)
{
    int failed = commits_open(trainer, e);
    if (!failed)
        failed = trainer_open_engine(trainer, e);
    trainer->predicted.first = trainer->predicted.now;
    trainer->predicted.first_costs = trainer->planning.profile.costs;
    return failed;
}

/* ---- state ---- */

/* The rows of added tokens. */
static int add_rows(const job *j, state *state, pt_error *e)
{
    const state_new_rows rows = {j->added.first, j->added.n, j->added.pieces.ids, j->added.end};
    safetensors *st;
    int failed = safetensors_open(j->model_dir, &st, e);
    if (failed)
        return failed;
    failed = state_add_rows(state, st, &rows, e);
    safetensors_close(st);
    return failed;
}

/* A head of scores that the model does not have. */
static int init_head(const job *j, state *state, pt_error *e)
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
    return state_init_head(state, j->o.seed, e);
}

static int load_weights(trainer *trainer, pt_error *e)
{
    state state;
    state_open(&state, trainer->engine.x);
    base_lend(&trainer->job.base, &state);
    int failed;
    if (trainer->job.model->adapters) {
        failed =
            adapters_load(&state, trainer->job.random_init ? NULL : trainer->job.model_dir, trainer->job.o.adapter, trainer->job.o.seed, e);
        trainer->job.base_sum = state.base_sum;
    } else if (trainer->job.random_init) {
        failed = state_init(&state, trainer->job.o.seed, e);
    } else {
        safetensors *st;
        failed = safetensors_open(trainer->job.model_dir, &st, e);
        if (!failed) {
            failed = state_load(&state, st, e);
            if (!failed)
                weights_notice_unused(trainer->job.model, st, trainer->job.o.notice, trainer->job.o.arg);
            safetensors_close(st);
        }
    }
    if (!failed && trainer->job.model->config.labels && !trainer->job.random_init && !trainer->job.o.adapter)
        failed = init_head(&trainer->job, &state, e);
    if (!failed && trainer->job.added.n && !trainer->job.random_init)
        failed = add_rows(&trainer->job, &state, e);
    if (!failed && !trainer->job.random_init)
        failed = ranks_compare_loaded(trainer, &state, trainer->job.model_dir, e);
    base_take_sum(&trainer->job.base, &state);
    int closed = state_close(&state, failed ? NULL : e);
    if (!failed && !closed)
        engine_loaded(&trainer->engine);
    return failed ? failed : closed;
}

static int write_profile(trainer *trainer, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    const planning *planning = &trainer->planning;
    int failed = planning->profiled ? path_join(path, trainer->out.path, "profile.json", e) : 0;
    trainer->out.wrote_profile = planning->profiled; /* by rank 0, if there are several */
    return failed || !planning->profiled ? failed : profile_write(path, &planning->request, &planning->profile, e);
}

/* machine.json: a machine file from the measurements of this run, or the given one. */
static int write_machine(trainer *trainer, pt_error *e)
{
    const planning *planning = &trainer->planning;
    char path[FILE_PATH_BYTES];
    if (!ranks_lead(trainer))
        return 0;
    int failed = path_join(path, trainer->out.path, "machine.json", e);
    trainer->out.wrote_machine = true;
    if (!failed && planning->from_file)
        return file_copy_atomic(planning->machine_path, path, e);
    return failed ? failed : planning_write_machine(planning, &planning->profile.costs, path, e);
}

/* ---- the steps of setting up ---- */

static int claim_output(trainer *trainer, pt_error *e)
{
    int failed = ranks_lead(trainer) ? output_claim(&trainer->out, &trainer->job.o, e) : 0;
    if (!failed)
        failed = ranks_share(trainer, trainer->out.path, sizeof trainer->out.path, e);
    if (!failed && !ranks_lead(trainer))
        failed = dir_make(trainer->out.path, e); /* another machine may not see it */
    if (!failed)
        failed = ranks_share(trainer, trainer->out.cache, sizeof trainer->out.cache, e);
    if (!failed)
        failed = ranks_share(trainer, trainer->out.from, sizeof trainer->out.from, e);
    if (!failed && !ranks_lead(trainer))
        failed = commits_find_too(&trainer->out, e);
    return failed ? failed : ranks_share(trainer, &trainer->out.finished, sizeof trainer->out.finished, e);
}

static int open_model(trainer *trainer, pt_error *e) { return job_open_model(&trainer->job, trainer->out.from, e); }

static int choose_shape(trainer *trainer, pt_error *e) { return job_choose_shape(&trainer->job, trainer->out.from[0] != 0, e); }

static int open_data(trainer *trainer, pt_error *e)
{
    int failed = ranks_lead(trainer) ? 0 : ranks_wait(trainer, e); /* until the token cache is complete */
    if (!failed)
        failed = job_open_data(&trainer->job, trainer->out.cache, e);
    return !failed && ranks_lead(trainer) ? ranks_wait(trainer, e) : failed;
}

static int count_steps(trainer *trainer, pt_error *e) { return job_count_steps(&trainer->job, e); }

static int read_counters(trainer *trainer, pt_error *e)
{
    if (!trainer->out.finished)
        return trainer->out.from[0] ? checkpoint_read_counters(trainer, trainer->out.from, e) : 0;
    int failed = ranks_lead(trainer) ? checkpoint_read_finished(trainer, e) : 0;
    if (!failed)
        failed = ranks_share(trainer, &trainer->at, sizeof trainer->at, e);
    trainer->complete = !failed;
    if (trainer->complete)
        options_notice(&trainer->job.o, "the run in %.600s is complete: its %lld steps are done and its %s is written", trainer->out.path,
                       (long long)trainer->at.step, trainer->job.model->adapters ? "adapter" : "model");
    return failed;
}

static int take_turn(trainer *trainer, pt_error *e)
{
    const job *j = &trainer->job;
    const int groups = block_turns_groups(&j->o, j->model);
    if (groups > 1 && !trainer->complete)
        options_notice(&j->o, "%lld of %lld layers are trained at a time, for %lld steps: all of them have had a turn after %lld steps, "
                              "and the run has %lld",
                       (long long)j->o.train_blocks, (long long)j->model->config.layers, (long long)j->o.switch_every,
                       (long long)(groups * j->o.switch_every), (long long)j->steps);
    return block_turns_take(trainer, e);
}

/* Those of a run with another `keep` go with the next one that is written. */
static void tell_surplus(const trainer *trainer)
{
    const int keep = trainer->job.o.keep, there = checkpoints_count(trainer->out.path, trainer->at.step);
    if (keep && there > keep)
        options_notice(&trainer->job.o, "%.600s has %d checkpoints, and the next one replaces all but the newest %d: `keep` 0 keeps them",
                       trainer->out.path, there, keep - 1);
}

static int check_room(trainer *trainer, pt_error *e)
{
    const room_need need = checkpoint_room(trainer);
    if (!ranks_lead(trainer))
        return 0;
    tell_surplus(trainer);
    return room_check(&need, &trainer->job.o, e);
}

/* ---- reference losses of pairs ---- */

static int open_training(trainer *trainer, bool fresh, pt_error *e)
{
    const reference_want w = reference_of_training(&trainer->job);
    return reference_open(&trainer->reference, trainer->out.path, "reference.bin", &w, fresh, trainer->at.reference, &trainer->job, e);
}

static int open_held(trainer *trainer, bool fresh, pt_error *e)
{
    const reference_want w = reference_of_evaluation(&trainer->job);
    char path[FILE_PATH_BYTES];
    const bool there =
        !path_join(path, trainer->out.path, "reference-eval.bin", NULL) && path_exists(path); /* it may evaluate from now on */
    return reference_open(&trainer->held, trainer->out.path, "reference-eval.bin", &w, fresh || !there, trainer->at.reference,
                          &trainer->job, e);
}

/* Sends rank 0's description of the reference file to the other ranks. */
static int share_reference(const trainer *trainer, reference *r, pt_error *e)
{
    reference of_zero = *r;
    const int failed = ranks_share(trainer, &of_zero, sizeof of_zero, e);
    if (!failed && !ranks_lead(trainer)) {
        *r = of_zero;
        r->fd = -1;
    }
    return failed;
}

static int open_references(trainer *trainer, pt_error *e)
{
    const bool leads = ranks_lead(trainer), fresh = !trainer->out.from[0];
    if (!reference_is_used(&trainer->job))
        return 0;
    int failed = leads ? open_training(trainer, fresh, e) : 0;
    if (!failed && leads && trainer->job.eval)
        failed = open_held(trainer, fresh, e);
    if (!failed)
        failed = share_reference(trainer, &trainer->reference, e);
    if (!failed && !trainer->at.reference)
        trainer->at.reference = trainer->reference.model;
    return failed ? failed : share_reference(trainer, &trainer->held, e);
}

static bool references_lack(const trainer *trainer)
{
    const reference_want w = reference_is_used(&trainer->job) ? reference_of_training(&trainer->job) : (reference_want){0};
    const reference_want held = w.data && trainer->job.eval ? reference_of_evaluation(&trainer->job) : (reference_want){0};
    return reference_lacks(&trainer->reference, &w) || reference_lacks(&trainer->held, &held);
}

/* Tells whether it is the model that the run began with. */
static int sum_model(trainer *trainer, uint64_t *sum, pt_error *e)
{
    uint64_t sums[STATE_KINDS_MOST];
    state state;
    state_open(&state, trainer->engine.x);
    int failed = state_checksums(&state, sums, e), closed = state_close(&state, failed ? NULL : e);
    *sum = sums[STATE_MASTER] + trainer->job.base_sum + trainer->job.base.sum;
    return failed ? failed : closed;
}

static int complete(trainer *trainer, reference *r, const reference_want *w, pt_error *e)
{
    return reference_lacks(r, w) ? reference_complete(r, w, trainer->at.reference, &trainer->job, trainer->engine.x, ranks_lead(trainer), e)
                                 : 0;
}

static int complete_references(trainer *trainer, pt_error *e)
{
    uint64_t sum = 0;
    int failed = sum_model(trainer, &sum, e);
    if (!failed && trainer->at.reference && trainer->at.reference != sum)
        failed = pt_fail(e, PT_FAILED,
                         "`model` %.300s is not the model that the run began with, with which pairs are compared: give that one",
                         trainer->job.model_dir);
    if (failed)
        return failed;
    if (trainer->out.from[0] && !trainer->at.reference)
        options_notice(&trainer->job.o, "%.600s does not say with which model the run began: `model` %.300s is taken for it",
                       trainer->out.from, trainer->job.model_dir);
    trainer->at.reference = sum;
    const reference_want w = reference_of_training(&trainer->job);
    failed = complete(trainer, &trainer->reference, &w, e);
    if (failed || !trainer->job.eval)
        return failed;
    const reference_want held = reference_of_evaluation(&trainer->job);
    return complete(trainer, &trainer->held, &held, e);
}

/* A resumed run that needs more reference losses first loads the model with which it began. */
static int load_state(trainer *trainer, pt_error *e)
{
    const bool fresh = !trainer->out.from[0], asks = references_lack(trainer),
               frozen = trainer->out.committed && !model_trains_all(trainer->job.model);
    int failed = fresh || asks || frozen ? load_weights(trainer, e) : 0;
    if (!failed && asks)
        failed = complete_references(trainer, e);
    if (failed || fresh)
        return failed;
    failed = trainer->out.committed     ? commits_load(trainer, e)
             : block_turns_start(trainer) ? checkpoint_load_weights(trainer, trainer->out.from, e)
                                    : checkpoint_load_state(trainer, trainer->out.from, e);
    if (!failed)
        options_notice(&trainer->job.o, "continuing from %.600s, after step %lld", trainer->out.from, (long long)trainer->at.step);
    return failed;
}

static int open_turns(trainer *trainer, pt_error *e)
{
    return block_turns_groups(&trainer->job.o, trainer->job.model) > 1 && !trainer->comm ? turn_files_open(trainer, e) : 0;
}

static int put_later_away(trainer *trainer, pt_error *e)
{
    const bool goes_on = ranks_lead(trainer) && trainer->out.from[0] && trainer->at.step < trainer->job.steps;
    return goes_on ? checkpoints_put_later_away(trainer->out.path, trainer->at.step, &trainer->job.o, e) : 0;
}

/* Takes samples of the model before training; not for resumed runs or random weights. Only rank 0 computes them. */
static int take_samples(trainer *trainer, pt_error *e)
{
    if (!trainer->out.from[0] && !trainer->job.random_init && ranks_lead(trainer))
        samples_take(trainer, false);
    return ranks_wait(trainer, e);
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
static void open_watch(trainer *trainer)
{
    const job *j = &trainer->job;
    const double guess = shape_compares(&j->shape) ? INFINITY : log((double)model_outputs(&j->model->config));
    uint64_t torn;
    watch_open(&trainer->watch, guess, j->shape.batch);
    if (trainer->at.step && metrics_file_read(trainer->metrics.path, watch_line, &trainer->watch, &torn, NULL))
        watch_open(&trainer->watch, guess, j->shape.batch);
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
static int share_counters(trainer *trainer, pt_error *e) { return ranks_share(trainer, &trainer->at, sizeof trainer->at, e); }

static int open_metrics(trainer *trainer, pt_error *e)
{
    lines_read lines = {.t = trainer};
    bool there;
    if (!ranks_lead(trainer))
        return share_counters(trainer, e);
    int failed = step_lines_open(&trainer->metrics, trainer->out.path, trainer->at.step, read_line, &lines, &there, e);
    if (!failed)
        failed = events_open(&trainer->events, trainer->out.path, trainer->at.step, trainer->job.o.tensorboard, e);
    if (failed)
        return failed;
    if (there && lines.last < trainer->at.step)
        options_notice(&trainer->job.o, "%s has no lines for steps %lld to %lld", trainer->metrics.path, (long long)lines.last + 1,
                       (long long)trainer->at.step);
    open_watch(trainer);
    trainer->at.owes_evaluation = lines.last && lines.last == trainer->at.step && !lines.evaluated && trainer_evaluates(trainer);
    best_look_for(trainer);
    return share_counters(trainer, e);
}

static int write_plan(trainer *trainer, pt_error *e) { return ranks_lead(trainer) ? trainer_write_plan(trainer, e) : 0; }

/* run.yaml, with which the run is repeated, and what is known of it before the first step. */
static int write_run(trainer *trainer, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    pt_error why = {0};
    if (!ranks_lead(trainer))
        return 0;
    trainer->out.wrote_run = true;
    pt_train_options o = trainer->job.o;
    o.device = o.device == trainer->gpu ? "auto" : o.device; /* a rank's own GPU is not that of all */
    int failed = path_join(path, trainer->out.path, RUN_FILE, e);
    if (!failed)
        failed = run_file_write(&train_table, &o, path, e);
    if (!failed && summary_begin(trainer, &why)) /* no more than an account, as at the end */
        options_notice(&trainer->job.o, "%s", why.text);
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
