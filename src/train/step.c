#include "train/step.h"

#include "base/clock.h"
#include "base/rng.h"
#include "model/adapter.h"
#include "model/lanes.h"
#include "run/evaluation.h"
#include "run/sequences.h"
#include "train/best.h"
#include "train/block_turns.h"
#include "train/checkpoint.h"
#include "train/options.h"
#include "train/ranks.h"
#include "train/replan.h"
#include "train/routing.h"

#include <math.h>
#include <stdlib.h>

/* Sums the counts over the ranks. */
static int add_counts(const trainer *trainer, dataset_counts *c, pt_error *e)
{
    int failed = ranks_add(trainer, &c->tokens, e);
    if (!failed)
        failed = ranks_add(trainer, &c->learned, e);
    if (!failed)
        failed = ranks_add(trainer, &c->chosen, e);
    return failed ? failed : ranks_add(trainer, &c->examples, e);
}

/* The windows of the step, of all ranks; NULL: out of memory. */
static uint64_t *step_windows(const trainer *trainer, pt_error *e)
{
    const uint64_t n = (uint64_t)trainer->job.shape.batch, first = (uint64_t)trainer->at.step * n;
    uint64_t *windows = malloc(n * sizeof *windows);
    for (uint64_t i = 0; windows && i < n; i++)
        windows[i] = dataset_window_of(trainer->job.data, first + i, (uint64_t)trainer->job.epoch_samples);
    if (!windows)
        pt_fail(e, PT_FAILED, "out of memory");
    return windows;
}

/* Loads the reference losses of all windows of the step, of all ranks. */
static int load_references(trainer *trainer, pt_error *e)
{
    uint64_t *windows = step_windows(trainer, e);
    const int failed =
        windows ? reference_fill(&trainer->reference, windows, (uint64_t)trainer->job.shape.batch, trainer->engine.x, e) : PT_FAILED;
    free(windows);
    return failed;
}

/* Runs the updates that wait, and the step's windows mismatched. */
static int run_baseline(trainer *trainer, double *kl, pt_error *e)
{
    int failed = trainer_drain(trainer, e);
    if (failed)
        return failed;
    uint64_t *windows = step_windows(trainer, e);
    failed = windows ? preferences_baseline(&trainer->reference, trainer->job.data, windows, (uint64_t)trainer->job.shape.batch,
                                            trainer->engine.x, kl, e)
                     : PT_FAILED;
    free(windows);
    if (!failed)
        measured_run(&trainer->engine.measured, executor_input_of(trainer->engine.x), &trainer->planning.profile.costs, trainer->engine.x,
                     SCHEDULE_EVAL);
    return failed;
}

static int load_sequence(void *arg, uint64_t sequence, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    const trainer *trainer = arg;
    const uint64_t index = (uint64_t)(trainer->at.step * trainer->job.shape.batch) + sequence;
    return dataset_sample(trainer->job.data, index, (uint64_t)trainer->job.epoch_samples, row, counts, e);
}

static int load_batch(trainer *trainer, dataset_counts *counts, pt_error *e)
{
    *counts = (dataset_counts){0};
    int failed = sequences_load(trainer->engine.x, load_sequence, trainer, counts, e);
    if (!failed && reference_is_used(&trainer->job))
        failed = load_references(trainer, e);
    if (failed)
        return failed;
    failed = add_counts(trainer, counts, e);
    if (failed)
        return failed;
    if (task_of(&trainer->job.o)->plane == TASK_PLANE_OWN)
        preferences_weigh(trainer->engine.x, counts);
    return counts->learned ? 0
                           : pt_fail(e, PT_FAILED,
                                     "step %lld has no target token: with `document_mask`, a document of one token has no target; leave "
                                     "the option out, or give a larger `batch_size`",
                                     (long long)trainer->at.step + 1);
}

/* The divisor of the sum of losses. */
static double loss_count(const trainer *trainer, const dataset_counts *c)
{
    return (double)(trainer->job.shape.weighted || shape_compares(&trainer->job.shape) ? c->examples : c->learned);
}

/* Sums lane by lane, then in the tree: this rank's lanes, then the ranks. */
static int mean_loss(const trainer *trainer, const dataset_counts *c, double *mean, pt_error *e)
{
    const step_shape *shape = trainer_shape(trainer);
    const int64_t n = shape->batch * shape->seq_len;
    const float *loss = executor_losses(trainer->engine.x) + shape->rank * n, *weights = executor_input(trainer->engine.x).weights;
    double sum = lane_sum(shape_lanes(shape), loss, shape->weighted ? weights : NULL, n);
    int failed = ranks_tree(trainer, &sum, e);
    *mean = sum / loss_count(trainer, c);
    return failed;
}

/* Of classification: the share of the step's examples whose label has the highest score. */
static double accuracy_of(const trainer *trainer, const dataset_counts *c)
{
    const float *right = executor_right(trainer->engine.x);
    const int64_t n = trainer->job.shape.batch * trainer->job.shape.seq_len;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)right[i];
    return sum / (double)c->learned;
}

/* Sums of squares per parameter, then over the parameters; *bad: the first that is not finite, or -1. */
static double gradient_norm(const trainer *trainer, int *bad)
{
    const double *partial = executor_sumsq(trainer->engine.x);
    double total = 0;
    int64_t at = 0;
    *bad = -1;
    for (int i = 0; i < trainer->job.model->params_n; i++) {
        int64_t n = sumsq_index(trainer->job.model, i + 1) - at;
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += partial[at + k];
        if (!isfinite(sum) && *bad < 0)
            *bad = i;
        at += n;
        total += sum;
    }
    return sqrt(total);
}

/* If the updates wait for the norm, nothing has changed yet, and the state before the step is saved. */
static void save_before(trainer *trainer, char *sentence, size_t n)
{
    const char *saved = trainer->job.model->adapters ? "adapter" : "model";
    pt_error e;
    if (!engine_reject(&trainer->engine, trainer_plan(trainer)->update))
        snprintf(sentence, n, "it may have changed weights: start again from the last checkpoint (give it as `%s`)", saved);
    else if (checkpoint_save(trainer, &e))
        snprintf(sentence, n, "it has changed no weight, but saving them failed (%.300s): start again", e.text);
    else
        snprintf(sentence, n, "it has changed no weight: start again from the saved %s (`%s` %.300s/checkpoint-%lld)", saved, saved,
                 trainer->out.path, (long long)trainer->at.step);
}

/* `bad`: the first parameter with a bad gradient, or -1. A loss that is not finite comes from the head. */
static int check_finite(trainer *trainer, double loss, double norm, int bad, pt_error *e)
{
    char saved[800], what[200];
    if (isfinite(loss) && isfinite(norm))
        return 0;
    save_before(trainer, saved, sizeof saved);
    if (!isfinite(loss) || bad < 0)
        snprintf(what, sizeof what, "the loss is %s (block %d of %d, the loss head)", isnan(loss) ? "nan" : "infinite",
                 trainer->job.model->blocks_n - 1, trainer->job.model->blocks_n);
    else
        snprintf(what, sizeof what, "the gradient of %s (block %d of %d) is not finite", trainer->job.model->params[bad].part[0].name,
                 trainer->job.model->params[bad].block, trainer->job.model->blocks_n);
    return pt_fail(e, PT_FAILED, "step %lld: %s; %s, with a lower `lr` or `precision` fp32", (long long)trainer->at.step + 1, what, saved);
}

static update_params params_of_step(const trainer *trainer, int64_t step, double norm)
{
    const pt_train_options *o = &trainer->job.o;
    const double clip = o->max_grad_norm;
    update_params u = {.lr = (float)lr_of_step(o, step, trainer->job.steps),
                       .beta1 = (float)o->beta1,
                       .beta2 = (float)o->beta2,
                       .eps = (float)o->eps,
                       .weight_decay = (float)o->weight_decay,
                       .step = block_turns_step(trainer, step),
                       .step_always = step,
                       .grad_scale = 1,
                       .momentum = o->momentum > 0 ? (float)o->momentum : MUON_MOMENTUM,
                       .lr_adjust = (lr_adjust)(o->lr_adjust - PT_LR_ADJUST_ORIGINAL),
                       .args = options_args(o),
                       .seed = o->seed};
    if (clip > 0 && clip / (norm + 1e-6) < 1)
        u.grad_scale = (float)(clip / (norm + 1e-6));
    return u;
}

/* Never 0, which would mean none. */
static uint64_t dropout_of_step(const trainer *trainer)
{
    uint32_t words[4];
    rng_words(trainer->job.o.seed, RNG_DROPOUT, 0, (uint64_t)trainer->at.step, words);
    return (uint64_t)words[0] << 32 | words[1] | 1;
}

static int run_step(trainer *trainer, dataset_counts *counts, double *kl, pt_error *e)
{
    *kl = 0;
    executor_time_tasks(trainer->engine.x,
                        trainer->job.o.trace || measured_wants(&trainer->engine.measured)); /* any step may turn out to be the last */
    int failed = shape_has_baseline(&trainer->job.shape) ? run_baseline(trainer, kl, e) : 0;
    if (!failed)
        failed = load_batch(trainer, counts, e);
    if (failed)
        return failed;
    if (trainer->job.shape.noise > 0 || (trainer->job.model->adapters && trainer->job.model->adapters->dropout > 0))
        executor_set_dropout(trainer->engine.x, dropout_of_step(trainer));
    if (trainer_plan(trainer)->update == UPDATE_BACKWARD)
        trainer->engine.update = params_of_step(trainer, trainer->at.step + 1, 0);
    const schedule_kind kind = trainer->engine.state == ENGINE_WAITING ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP;
    trainer->engine.last = kind;
    trainer->engine.last_whole = false;
    return trainer_run(trainer, kind, (float)(1.0 / loss_count(trainer, counts)), e);
}

static bool pass_progress(void *arg, uint64_t done, uint64_t total)
{
    const trainer *trainer = arg;
    options_progress(&trainer->job.o, "evaluating", done, total);
    return trainer->comm || !trainer->job.o.stop ||
           !trainer->job.o.stop(trainer->job.o.arg); /* the ranks would not see it at the same moment */
}

static int evaluate_pairs(trainer *trainer, pt_step *step, int64_t *tokens, pt_error *e)
{
    preference_evaluation v;
    int failed =
        preferences_evaluate(&trainer->job, &trainer->held, trainer->engine.x, &(evaluation_pass){pass_progress, NULL, trainer}, &v, e);
    if (!failed)
        failed = ranks_add(trainer, &v.learned, e);
    const preference_means mean = preferences_mean(&v.sum, trainer->job.shape.compare.kind);
    step->evaluated = !v.stopped;
    step->eval_loss = mean.loss;
    step->eval_reward_chosen = mean.chosen;
    step->eval_reward_rejected = mean.rejected;
    step->eval_reward_margin = mean.margin;
    step->eval_reward_accuracy = mean.accuracy;
    step->eval_kl = shape_has_baseline(&trainer->job.shape) ? v.sum.kl : NAN;
    step->eval_accuracy = NAN;
    *tokens = v.learned;
    return failed;
}

static bool classifies(const trainer *trainer) { return task_of(&trainer->job.o)->scores == SCORES_LABELS; }

static int evaluate_tokens(trainer *trainer, pt_step *step, int64_t *tokens, pt_error *e)
{
    evaluation_sum sum = {0};
    int failed = evaluation_run(trainer->engine.x, trainer->job.eval, &(evaluation_pass){pass_progress, NULL, trainer}, &sum, e);
    step->evaluated = !sum.stopped;
    *tokens = sum.learned;
    step->eval_loss = sum.loss / (double)(sum.learned ? sum.learned : 1);
    step->eval_accuracy = classifies(trainer) ? (double)sum.right / (double)(sum.learned ? sum.learned : 1) : NAN;
    return failed;
}

int step_evaluate(trainer *trainer, pt_step *step, int64_t *tokens, pt_error *e)
{
    int failed = trainer_drain(trainer, e);
    if (failed)
        return failed;
    return shape_compares(&trainer->job.shape) ? evaluate_pairs(trainer, step, tokens, e) : evaluate_tokens(trainer, step, tokens, e);
}

static int evaluate_step(trainer *trainer, pt_step *step, pt_error *e)
{
    int64_t tokens;
    int failed = step_evaluate(trainer, step, &tokens, e);
    if (!failed && step->evaluated && !isfinite(step->eval_loss))
        options_notice(&trainer->job.o, "step %lld: the loss on the evaluation data is not finite", (long long)trainer->at.step);
    if (!failed && step->evaluated)
        best_note(&trainer->at, &trainer->job.o, step->step, step->eval_loss, best_value(&trainer->job.o, step));
    return failed;
}

/* ---- warnings ---- */

static const char *advice(watch_kind kind)
{
    static const char *const all[] = {
        [WATCH_LOSS] = "training diverges; give a lower `lr`, or more `warmup_steps`",
        [WATCH_NORM] = "training may diverge; give a lower `lr`, or a lower `max_grad_norm`",
        [WATCH_EVALUATION] = "the model now learns only what its training data have; give fewer `steps` or `epochs`, or more data"};
    return all[kind];
}

static void tell_warnings(const trainer *trainer, int64_t step)
{
    for (watch_kind k = 0; k < WATCH_KINDS; k++)
        if (trainer->watch.at[k] == step)
            options_notice(&trainer->job.o, "%s: %s", trainer->watch.text[k], advice(k));
}

static void look_for_warnings(trainer *trainer, const pt_step *step)
{
    if (!ranks_lead(trainer))
        return;
    const bool of_step = watch_step(&trainer->watch, step->step, step->loss, step->grad_norm);
    if ((step->evaluated && watch_evaluation(&trainer->watch, step->step, step->eval_loss)) || of_step)
        tell_warnings(trainer, step->step);
}

/* An evaluation that a signal had stopped before. 1: it was stopped again; a later evaluation would have another result, so the run must
 * end here and do it when it is resumed. */
static int make_up_evaluation(trainer *trainer, pt_error *e)
{
    pt_step step = {.step = trainer->at.step, .pairs = shape_compares(&trainer->job.shape)};
    int64_t tokens;
    int failed = step_evaluate(trainer, &step, &tokens, e);
    if (failed || !step.evaluated)
        return failed ? failed : 1;
    trainer->at.owes_evaluation = false;
    best_note(&trainer->at, &trainer->job.o, step.step, step.eval_loss, best_value(&trainer->job.o, &step));
    options_notice(&trainer->job.o, "step %lld: evaluation loss %.4f (of the evaluation that was interrupted)",
                   (long long)trainer->at.step, step.eval_loss);
    if (ranks_lead(trainer) && watch_evaluation(&trainer->watch, step.step, step.eval_loss))
        tell_warnings(trainer, step.step);
    failed = ranks_lead(trainer) ? metrics_add_evaluation(&trainer->metrics, &step, &trainer->watch, e) : 0;
    return failed || !ranks_lead(trainer) ? failed : events_write_evaluation(&trainer->events, &step, e);
}

static int write_metrics(const trainer *trainer, const pt_step *step, pt_error *e)
{
    if (!ranks_lead(trainer))
        return 0;
    pt_memory memory[TIERS];
    const int n = trainer_memory(trainer, memory);
    const int failed = metrics_write(&trainer->metrics, step, memory, n, &trainer->watch, e);
    return failed ? failed : events_write(&trainer->events, step, memory, n, e);
}

/* Ranks end together: if one was told to stop, all stop. */
static int agree_to_stop(const trainer *trainer, bool *stop, pt_error *e)
{
    *stop = trainer->comm && trainer->job.o.stop && trainer->job.o.stop(trainer->job.o.arg);
    return ranks_any(trainer, stop, e);
}

static void tell_past(const trainer *trainer)
{
    const long long n = (long long)trainer->at.since_best;
    options_notice(&trainer->job.o, "the run ends after step %lld of %lld: the last %lld evaluation%s not better than that of step %lld "
                              "(`patience`)", (long long)trainer->at.step, (long long)trainer->job.steps, n, n == 1 ? " was" : "s were",
                   (long long)trainer->at.best_step);
}

static int take(trainer *trainer, pt_step *step, bool *hopeless, pt_error *e);

int step_take(trainer *trainer, pt_step *step, bool *hopeless, pt_error *e)
{
    bool stop = false;
    int more = agree_to_stop(trainer, &stop, e);
    if (!more && stop && trainer->at.step < trainer->job.steps) {
        *step = (pt_step){.step = trainer->at.step, .stopped = true};
        return 1;
    }
    if (!more)
        more = take(trainer, step, hopeless, e);
    ranks_fail(trainer, more < 0 && !*hopeless ? more : 0, e);
    return more;
}

/* Of a caller's function. */
static int check_rate(const trainer *trainer, int64_t step, pt_error *e)
{
    const double lr = lr_of_step(&trainer->job.o, step, trainer->job.steps);
    return isfinite(lr) && lr >= 0 ? 0 : pt_fail(e, PT_FAILED, "step %lld: `lr_of_step` returned %g: it must be 0 or more",
                                                 (long long)step, lr);
}

static int take(trainer *trainer, pt_step *step, bool *hopeless, pt_error *e)
{
    int behind = trainer->at.owes_evaluation && trainer->engine.x ? make_up_evaluation(trainer, e) : 0;
    if (behind > 0)
        *step = (pt_step){.step = trainer->at.step};
    if (behind)
        return behind;
    if (trainer->at.step >= trainer->job.steps)
        return 0;
    if (best_is_past(trainer)) {
        tell_past(trainer);
        return 0;
    }
    if (!trainer->engine.x)
        return pt_fail(e, PT_FAILED, "the run has given its memory back: open it again");
    int failed = block_turns_switch(trainer, e);
    if (failed)
        return failed;
    double start = clock_s();
    dataset_counts counts;
    bool steady = trainer->engine.state == ENGINE_WAITING || trainer_plan(trainer)->update != UPDATE_NEXT_FORWARD;
    double kl;
    int bad;
    failed = check_rate(trainer, trainer->at.step + 1, e);
    if (!failed)
        failed = run_step(trainer, &counts, &kl, e);
    if (!failed && trainer_plan(trainer)->update == UPDATE_NEXT_FORWARD) /* it has updated for the step before */
        failed = commits_step(trainer, e);
    if (failed)
        return failed;
    preference_sum pairs = {0};
    failed = shape_compares(&trainer->job.shape) ? preferences_sum(trainer->engine.x, kl, &pairs, e) : 0;
    if (failed)
        return failed;
    const preference_means mean = preferences_mean(&pairs, trainer->job.shape.compare.kind);
    double loss = mean.loss, norm = gradient_norm(trainer, &bad);
    failed = pairs.pairs ? 0 : mean_loss(trainer, &counts, &loss, e);
    if (failed)
        return failed;
    failed = check_finite(trainer, loss, norm, bad, e);
    *hopeless = failed != 0;
    if (failed)
        return failed;
    trainer->at.step++;
    trainer->at.tokens += counts.tokens;
    trainer->at.learned += counts.learned;
    const update_params update = params_of_step(trainer, trainer->at.step, norm);
    engine_accept(&trainer->engine, trainer_plan(trainer)->update == UPDATE_BACKWARD ? NULL : &update);
    if (trainer_plan(trainer)->update == UPDATE_END && (failed = trainer_drain(trainer, e)))
        return failed;
    trainer->engine.last_whole = true;
    *step = (pt_step){.step = trainer->at.step,
                      .loss = loss,
                      .grad_norm = norm,
                      .lr = lr_of_step(&trainer->job.o, trainer->at.step, trainer->job.steps),
                      .tokens = trainer->at.tokens,
                      .learned_tokens = trainer->at.learned,
                      .pairs = pairs.pairs,
                      .first_layer = block_turns_first_layer(trainer),
                      .accuracy = classifies(trainer) ? accuracy_of(trainer, &counts) : NAN,
                      .eval_accuracy = NAN};
    if (pairs.pairs) {
        step->reward_chosen = mean.chosen;
        step->reward_rejected = mean.rejected;
        step->reward_margin = mean.margin;
        step->reward_accuracy = mean.accuracy;
        step->kl = shape_has_baseline(&trainer->job.shape) ? kl : NAN;
    }
    routing_measure(trainer, step);
    step->step_s = clock_s() - start;
    step->predicted_step_s = trainer->predicted.now.step_ns * 1e-9;
    measured_step(&trainer->engine.measured, step->step_s, steady);
    step->tokens_per_s = (double)counts.tokens / step->step_s;
    if (trainer_evaluates(trainer))
        failed = evaluate_step(trainer, step, e);
    if (!failed)
        look_for_warnings(trainer, step);
    if (!failed)
        failed = write_metrics(trainer, step, e);
    const bool due = trainer->job.o.save_every && trainer->at.step % trainer->job.o.save_every == 0;
    if (!failed && (due || best_is_now(trainer)))
        failed = checkpoint_save(trainer, e);
    if (!failed && trainer->engine.state == ENGINE_CURRENT)
        failed = commits_step(trainer, e);
    if (!failed)
        failed = replan_look(trainer, e);
    return failed ? failed : 1;
}
