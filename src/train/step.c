#include "train/step.h"

#include "base/clock.h"
#include "base/rng.h"
#include "model/adapter.h"
#include "model/lanes.h"
#include "run/evaluation.h"
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
static int add_counts(const trainer *t, dataset_counts *c, pt_error *e)
{
    int failed = ranks_add(t, &c->tokens, e);
    if (!failed)
        failed = ranks_add(t, &c->learned, e);
    if (!failed)
        failed = ranks_add(t, &c->chosen, e);
    return failed ? failed : ranks_add(t, &c->examples, e);
}

/* The windows of the step, of all ranks; NULL: out of memory. */
static uint64_t *step_windows(const trainer *t, pt_error *e)
{
    const uint64_t n = (uint64_t)t->job.shape.batch, first = (uint64_t)t->at.step * n;
    uint64_t *windows = malloc(n * sizeof *windows);
    for (uint64_t i = 0; windows && i < n; i++)
        windows[i] = dataset_window_of(t->job.data, first + i, (uint64_t)t->job.epoch_samples);
    if (!windows)
        pt_fail(e, PT_FAILED, "out of memory");
    return windows;
}

/* Loads the reference losses of all windows of the step, of all ranks. */
static int load_references(trainer *t, pt_error *e)
{
    uint64_t *windows = step_windows(t, e);
    const int failed = windows ? reference_fill(&t->reference, windows, (uint64_t)t->job.shape.batch, t->engine.x, e) : PT_FAILED;
    free(windows);
    return failed;
}

/* Runs the updates that wait, and the step's windows mismatched. */
static int run_baseline(trainer *t, double *kl, pt_error *e)
{
    int failed = trainer_drain(t, e);
    if (failed)
        return failed;
    uint64_t *windows = step_windows(t, e);
    failed = windows ? preferences_baseline(&t->reference, t->job.data, windows, (uint64_t)t->job.shape.batch, t->engine.x, kl, e)
                     : PT_FAILED;
    free(windows);
    if (!failed)
        measured_run(&t->engine.measured, executor_input_of(t->engine.x), &t->planning.profile.costs, t->engine.x, SCHEDULE_EVAL);
    return failed;
}

static int load_batch(trainer *t, dataset_counts *counts, pt_error *e)
{
    const executor_batch b = executor_input(t->engine.x);
    const step_shape *s = trainer_shape(t);
    int failed = 0;
    *counts = (dataset_counts){0};
    for (int64_t i = 0; i < s->batch; i++) {
        const uint64_t index = (uint64_t)(t->at.step * t->job.shape.batch + s->rank * s->batch + i);
        const int64_t at = i * s->seq_len;
        const dataset_row row = {b.ids + at, b.targets + at, b.first + at, s->weighted ? b.weights + at : NULL};
        failed = dataset_sample(t->job.data, index, (uint64_t)t->job.epoch_samples, &row, counts, e);
        if (failed)
            return failed;
    }
    if (reference_is_used(&t->job) && (failed = load_references(t, e)))
        return failed;
    if (s->documents)
        executor_place(t->engine.x);
    failed = add_counts(t, counts, e);
    if (failed)
        return failed;
    if (task_of(&t->job.o)->plane == TASK_PLANE_OWN)
        preferences_weigh(t->engine.x, counts);
    return counts->learned ? 0
                           : pt_fail(e, PT_FAILED,
                                     "step %lld has no target token: with `document_mask`, a document of one token has no target; leave "
                                     "the option out, or give a larger `batch_size`",
                                     (long long)t->at.step + 1);
}

/* The divisor of the sum of losses. */
static double loss_count(const trainer *t, const dataset_counts *c)
{
    return (double)(t->job.shape.weighted || shape_compares(&t->job.shape) ? c->examples : c->learned);
}

/* Sums lane by lane, then in the tree: this rank's lanes, then the ranks. */
static int mean_loss(const trainer *t, const dataset_counts *c, double *mean, pt_error *e)
{
    const step_shape *s = trainer_shape(t);
    const int64_t n = s->batch * s->seq_len;
    const float *loss = executor_losses(t->engine.x) + s->rank * n, *weights = executor_input(t->engine.x).weights;
    double sum = lane_sum(shape_lanes(s), loss, s->weighted ? weights : NULL, n);
    int failed = ranks_tree(t, &sum, e);
    *mean = sum / loss_count(t, c);
    return failed;
}

/* Of classification: the share of the step's examples whose label has the highest score. */
static double accuracy_of(const trainer *t, const dataset_counts *c)
{
    const float *right = executor_right(t->engine.x);
    const int64_t n = t->job.shape.batch * t->job.shape.seq_len;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)right[i];
    return sum / (double)c->learned;
}

/* Sums of squares per parameter, then over the parameters; *bad: the first that is not finite, or -1. */
static double gradient_norm(const trainer *t, int *bad)
{
    const double *partial = executor_sumsq(t->engine.x);
    double total = 0;
    int64_t at = 0;
    *bad = -1;
    for (int i = 0; i < t->job.model->params_n; i++) {
        int64_t n = sumsq_index(t->job.model, i + 1) - at;
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
static void save_before(trainer *t, char *sentence, size_t n)
{
    const char *saved = t->job.model->adapters ? "adapter" : "model";
    pt_error e;
    if (!engine_reject(&t->engine, trainer_plan(t)->update))
        snprintf(sentence, n, "it may have changed weights: start again from the last checkpoint (give it as `%s`)", saved);
    else if (checkpoint_save(t, &e))
        snprintf(sentence, n, "it has changed no weight, but saving them failed (%.300s): start again", e.text);
    else
        snprintf(sentence, n, "it has changed no weight: start again from the saved %s (`%s` %.300s/checkpoint-%lld)", saved, saved,
                 t->out.path, (long long)t->at.step);
}

/* `bad`: the first parameter with a bad gradient, or -1. A loss that is not finite comes from the head. */
static int check_finite(trainer *t, double loss, double norm, int bad, pt_error *e)
{
    char saved[800], what[200];
    if (isfinite(loss) && isfinite(norm))
        return 0;
    save_before(t, saved, sizeof saved);
    if (!isfinite(loss) || bad < 0)
        snprintf(what, sizeof what, "the loss is %s (block %d of %d, the loss head)", isnan(loss) ? "nan" : "infinite",
                 t->job.model->blocks_n - 1, t->job.model->blocks_n);
    else
        snprintf(what, sizeof what, "the gradient of %s (block %d of %d) is not finite", t->job.model->params[bad].part[0].name,
                 t->job.model->params[bad].block, t->job.model->blocks_n);
    return pt_fail(e, PT_FAILED, "step %lld: %s; %s, with a lower `lr` or `precision` fp32", (long long)t->at.step + 1, what, saved);
}

static update_params params_of_step(const trainer *t, int64_t step, double norm)
{
    const pt_train_options *o = &t->job.o;
    const double clip = o->max_grad_norm;
    update_params u = {.lr = (float)lr_of_step(o, step, t->job.steps), .beta1 = (float)o->beta1, .beta2 = (float)o->beta2,
                       .eps = (float)o->eps, .weight_decay = (float)o->weight_decay, .step = block_turns_step(t, step), .step_always = step,
                       .grad_scale = 1,
                       .momentum = o->momentum > 0 ? (float)o->momentum : MUON_MOMENTUM,
                       .lr_adjust = (lr_adjust)(o->lr_adjust - PT_LR_ADJUST_ORIGINAL), .args = options_args(o), .seed = o->seed};
    if (clip > 0 && clip / (norm + 1e-6) < 1)
        u.grad_scale = (float)(clip / (norm + 1e-6));
    return u;
}

/* Never 0, which would mean none. */
static uint64_t dropout_of_step(const trainer *t)
{
    uint32_t words[4];
    rng_words(t->job.o.seed, RNG_DROPOUT, 0, (uint64_t)t->at.step, words);
    return (uint64_t)words[0] << 32 | words[1] | 1;
}

static int run_step(trainer *t, dataset_counts *counts, double *kl, pt_error *e)
{
    *kl = 0;
    executor_time_tasks(t->engine.x, t->job.o.trace || measured_wants(&t->engine.measured)); /* any step may turn out to be the last */
    int failed = shape_has_baseline(&t->job.shape) ? run_baseline(t, kl, e) : 0;
    if (!failed)
        failed = load_batch(t, counts, e);
    if (failed)
        return failed;
    if (t->job.shape.noise > 0 || (t->job.model->adapters && t->job.model->adapters->dropout > 0))
        executor_set_dropout(t->engine.x, dropout_of_step(t));
    if (trainer_plan(t)->update == UPDATE_BACKWARD)
        t->engine.update = params_of_step(t, t->at.step + 1, 0);
    const schedule_kind kind = t->engine.state == ENGINE_WAITING ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP;
    t->engine.last = kind;
    t->engine.last_whole = false;
    return trainer_run(t, kind, (float)(1.0 / loss_count(t, counts)), e);
}

static bool pass_progress(void *arg, uint64_t done, uint64_t total)
{
    const trainer *t = arg;
    options_progress(&t->job.o, "evaluating", done, total);
    return t->comm || !t->job.o.stop || !t->job.o.stop(t->job.o.arg); /* the ranks would not see it at the same moment */
}

static int evaluate_pairs(trainer *t, pt_step *s, int64_t *tokens, pt_error *e)
{
    preference_evaluation v;
    int failed = preferences_evaluate(&t->job, &t->held, t->engine.x, &(evaluation_pass){pass_progress, NULL, t}, &v, e);
    if (!failed)
        failed = ranks_add(t, &v.learned, e);
    const preference_means mean = preferences_mean(&v.sum, t->job.shape.compare.kind);
    s->evaluated = !v.stopped;
    s->eval_loss = mean.loss;
    s->eval_reward_chosen = mean.chosen;
    s->eval_reward_rejected = mean.rejected;
    s->eval_reward_margin = mean.margin;
    s->eval_reward_accuracy = mean.accuracy;
    s->eval_kl = shape_has_baseline(&t->job.shape) ? v.sum.kl : NAN;
    s->eval_accuracy = NAN;
    *tokens = v.learned;
    return failed;
}

static bool classifies(const trainer *t) { return task_of(&t->job.o)->scores == SCORES_LABELS; }

static int evaluate_tokens(trainer *t, pt_step *s, int64_t *tokens, pt_error *e)
{
    evaluation_sum sum = {0};
    int failed = evaluation_run(t->engine.x, t->job.eval, &(evaluation_pass){pass_progress, NULL, t}, &sum, e);
    s->evaluated = !sum.stopped;
    *tokens = sum.learned;
    s->eval_loss = sum.loss / (double)(sum.learned ? sum.learned : 1);
    s->eval_accuracy = classifies(t) ? (double)sum.right / (double)(sum.learned ? sum.learned : 1) : NAN;
    return failed;
}

int step_evaluate(trainer *t, pt_step *s, int64_t *tokens, pt_error *e)
{
    int failed = trainer_drain(t, e);
    if (failed)
        return failed;
    return shape_compares(&t->job.shape) ? evaluate_pairs(t, s, tokens, e) : evaluate_tokens(t, s, tokens, e);
}

static int evaluate_step(trainer *t, pt_step *s, pt_error *e)
{
    int64_t tokens;
    int failed = step_evaluate(t, s, &tokens, e);
    if (!failed && s->evaluated && !isfinite(s->eval_loss))
        options_notice(&t->job.o, "step %lld: the loss on the evaluation data is not finite", (long long)t->at.step);
    if (!failed && s->evaluated)
        best_note(&t->at, &t->job.o, s->step, s->eval_loss, best_value(&t->job.o, s));
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

static void tell_warnings(const trainer *t, int64_t step)
{
    for (watch_kind k = 0; k < WATCH_KINDS; k++)
        if (t->watch.at[k] == step)
            options_notice(&t->job.o, "%s: %s", t->watch.text[k], advice(k));
}

static void look_for_warnings(trainer *t, const pt_step *s)
{
    if (!ranks_lead(t))
        return;
    const bool of_step = watch_step(&t->watch, s->step, s->loss, s->grad_norm);
    if ((s->evaluated && watch_evaluation(&t->watch, s->step, s->eval_loss)) || of_step)
        tell_warnings(t, s->step);
}

/* An evaluation that a signal had stopped before. 1: it was stopped again; a later evaluation would have another result, so the run must
 * end here and do it when it is resumed. */
static int make_up_evaluation(trainer *t, pt_error *e)
{
    pt_step s = {.step = t->at.step, .pairs = shape_compares(&t->job.shape)};
    int64_t tokens;
    int failed = step_evaluate(t, &s, &tokens, e);
    if (failed || !s.evaluated)
        return failed ? failed : 1;
    t->at.owes_evaluation = false;
    best_note(&t->at, &t->job.o, s.step, s.eval_loss, best_value(&t->job.o, &s));
    options_notice(&t->job.o, "step %lld: evaluation loss %.4f (of the evaluation that was interrupted)",
                   (long long)t->at.step, s.eval_loss);
    if (ranks_lead(t) && watch_evaluation(&t->watch, s.step, s.eval_loss))
        tell_warnings(t, s.step);
    failed = ranks_lead(t) ? metrics_add_evaluation(&t->metrics, &s, &t->watch, e) : 0;
    return failed || !ranks_lead(t) ? failed : events_write_evaluation(&t->events, &s, e);
}

static int write_metrics(const trainer *t, const pt_step *s, pt_error *e)
{
    if (!ranks_lead(t))
        return 0;
    pt_memory memory[TIERS];
    const int n = trainer_memory(t, memory);
    const int failed = metrics_write(&t->metrics, s, memory, n, &t->watch, e);
    return failed ? failed : events_write(&t->events, s, memory, n, e);
}

/* Ranks end together: if one was told to stop, all stop. */
static int agree_to_stop(const trainer *t, bool *stop, pt_error *e)
{
    *stop = t->comm && t->job.o.stop && t->job.o.stop(t->job.o.arg);
    return ranks_any(t, stop, e);
}

static void tell_past(const trainer *t)
{
    const long long n = (long long)t->at.since_best;
    options_notice(&t->job.o, "the run ends after step %lld of %lld: the last %lld evaluation%s not better than that of step %lld "
                              "(`patience`)", (long long)t->at.step, (long long)t->job.steps, n, n == 1 ? " was" : "s were",
                   (long long)t->at.best_step);
}

static int take(trainer *t, pt_step *s, bool *hopeless, pt_error *e);

int step_take(trainer *t, pt_step *s, bool *hopeless, pt_error *e)
{
    bool stop = false;
    int more = agree_to_stop(t, &stop, e);
    if (!more && stop && t->at.step < t->job.steps) {
        *s = (pt_step){.step = t->at.step, .stopped = true};
        return 1;
    }
    if (!more)
        more = take(t, s, hopeless, e);
    ranks_fail(t, more < 0 && !*hopeless ? more : 0, e);
    return more;
}

/* Of a caller's function. */
static int check_rate(const trainer *t, int64_t step, pt_error *e)
{
    const double lr = lr_of_step(&t->job.o, step, t->job.steps);
    return isfinite(lr) && lr >= 0 ? 0 : pt_fail(e, PT_FAILED, "step %lld: `lr_of_step` returned %g: it must be 0 or more",
                                                 (long long)step, lr);
}

static int take(trainer *t, pt_step *s, bool *hopeless, pt_error *e)
{
    int behind = t->at.owes_evaluation && t->engine.x ? make_up_evaluation(t, e) : 0;
    if (behind > 0)
        *s = (pt_step){.step = t->at.step};
    if (behind)
        return behind;
    if (t->at.step >= t->job.steps)
        return 0;
    if (best_is_past(t)) {
        tell_past(t);
        return 0;
    }
    if (!t->engine.x)
        return pt_fail(e, PT_FAILED, "the run has given its memory back: open it again");
    int failed = block_turns_switch(t, e);
    if (failed)
        return failed;
    double start = clock_s();
    dataset_counts counts;
    bool steady = t->engine.state == ENGINE_WAITING || trainer_plan(t)->update != UPDATE_NEXT_FORWARD;
    double kl;
    int bad;
    failed = check_rate(t, t->at.step + 1, e);
    if (!failed)
        failed = run_step(t, &counts, &kl, e);
    if (!failed && trainer_plan(t)->update == UPDATE_NEXT_FORWARD) /* it has updated for the step before */
        failed = commits_step(t, e);
    if (failed)
        return failed;
    preference_sum pairs = {0};
    failed = shape_compares(&t->job.shape) ? preferences_sum(t->engine.x, kl, &pairs, e) : 0;
    if (failed)
        return failed;
    const preference_means mean = preferences_mean(&pairs, t->job.shape.compare.kind);
    double loss = mean.loss, norm = gradient_norm(t, &bad);
    failed = pairs.pairs ? 0 : mean_loss(t, &counts, &loss, e);
    if (failed)
        return failed;
    failed = check_finite(t, loss, norm, bad, e);
    *hopeless = failed != 0;
    if (failed)
        return failed;
    t->at.step++;
    t->at.tokens += counts.tokens;
    t->at.learned += counts.learned;
    const update_params update = params_of_step(t, t->at.step, norm);
    engine_accept(&t->engine, trainer_plan(t)->update == UPDATE_BACKWARD ? NULL : &update);
    if (trainer_plan(t)->update == UPDATE_END && (failed = trainer_drain(t, e)))
        return failed;
    t->engine.last_whole = true;
    *s = (pt_step){.step = t->at.step, .loss = loss, .grad_norm = norm, .lr = lr_of_step(&t->job.o, t->at.step, t->job.steps),
                   .tokens = t->at.tokens, .learned_tokens = t->at.learned, .pairs = pairs.pairs, .first_layer = block_turns_first_layer(t),
                   .accuracy = classifies(t) ? accuracy_of(t, &counts) : NAN, .eval_accuracy = NAN};
    if (pairs.pairs) {
        s->reward_chosen = mean.chosen;
        s->reward_rejected = mean.rejected;
        s->reward_margin = mean.margin;
        s->reward_accuracy = mean.accuracy;
        s->kl = shape_has_baseline(&t->job.shape) ? kl : NAN;
    }
    routing_measure(t, s);
    s->step_s = clock_s() - start;
    s->predicted_step_s = t->predicted.now.step_ns * 1e-9;
    measured_step(&t->engine.measured, s->step_s, steady);
    s->tokens_per_s = (double)counts.tokens / s->step_s;
    if (trainer_evaluates(t))
        failed = evaluate_step(t, s, e);
    if (!failed)
        look_for_warnings(t, s);
    if (!failed)
        failed = write_metrics(t, s, e);
    const bool due = t->job.o.save_every && t->at.step % t->job.o.save_every == 0;
    if (!failed && (due || best_is_now(t)))
        failed = checkpoint_save(t, e);
    if (!failed && t->engine.state == ENGINE_CURRENT)
        failed = commits_step(t, e);
    if (!failed)
        failed = replan_look(t, e);
    return failed ? failed : 1;
}
