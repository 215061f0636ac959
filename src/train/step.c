#include "train/step.h"

#include "base/clock.h"
#include "model/lanes.h"
#include "run/evaluation.h"
#include "train/checkpoint.h"
#include "train/options.h"
#include "train/ranks.h"
#include "train/replan.h"

#include <math.h>

static int load_batch(trainer *t, int64_t *targets, pt_error *e)
{
    executor_batch b = executor_input(t->engine.x);
    const step_shape *own = trainer_shape(t);
    int64_t len = own->seq_len;
    *targets = 0;
    for (int64_t i = 0; i < own->batch; i++) {
        uint64_t index = (uint64_t)(t->at.step * t->job.shape.batch + own->rank * own->batch + i);
        int failed = dataset_sample(t->job.data, index, (uint64_t)t->job.epoch_windows, b.ids + i * len, b.targets + i * len,
                                    b.first + i * len, e);
        if (failed)
            return failed;
    }
    if (t->job.shape.documents)
        executor_place(t->engine.x);
    for (int64_t i = 0; i < own->batch * len; i++)
        *targets += b.targets[i] >= 0;
    int failed = ranks_add(t, targets, e);
    if (failed)
        return failed;
    return *targets ? 0 : pt_fail(e, PT_FAILED, "step %lld has no target token at all: under --document-mask a document of one token has "
                                  "none; leave the option out, or give a larger --batch-size", (long long)t->at.step + 1);
}

static double sum_losses(const trainer *t)
{
    const step_shape *s = &t->job.shape;
    return lane_sum(shape_lanes(s), executor_losses(t->engine.x), s->batch * s->seq_len);
}

/* Sum of squares per parameter, then over the parameters; *bad: the first that is not finite, or -1. */
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

/* Where the updates wait for the norm, nothing has been changed yet: the state before the step is saved. */
static void save_before(trainer *t, char *sentence, size_t n)
{
    pt_error e;
    if (!engine_reject(&t->engine, trainer_plan(t)->update))
        snprintf(sentence, n, "weights may have been changed by it: start anew from the last checkpoint (--model CHECKPOINT)");
    else if (checkpoint_save(t, &e))
        snprintf(sentence, n, "no weight has been changed by it, but saving them failed (%.300s): start anew", e.text);
    else
        snprintf(sentence, n, "no weight has been changed by it: start anew from what is saved (--model %.300s/checkpoint-%lld)", t->out.path,
                 (long long)t->at.step);
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
    return pt_fail(e, PT_FAILED, "step %lld: %s; %s, with a lower --lr or --dtype fp32", (long long)t->at.step + 1, what, saved);
}

static update_params params_of_step(const trainer *t, int64_t step, double norm)
{
    const pt_train_options *o = &t->job.o;
    const double clip = o->max_grad_norm;
    update_params u = {.lr = (float)lr_of_step(o, step, t->job.steps), .beta1 = (float)o->beta1, .beta2 = (float)o->beta2,
                       .eps = (float)o->eps, .weight_decay = (float)o->weight_decay, .step = step, .grad_scale = 1,
                       .momentum = o->momentum > 0 ? (float)o->momentum : MUON_MOMENTUM, .lr_adjust = (lr_adjust)o->lr_adjust};
    if (clip > 0 && clip / (norm + 1e-6) < 1)
        u.grad_scale = (float)(clip / (norm + 1e-6));
    return u;
}

/* Runs the step's schedule; *targets: what the losses are divided by. */
static int run_step(trainer *t, int64_t *targets, pt_error *e)
{
    int failed = load_batch(t, targets, e);
    if (failed)
        return failed;
    if (trainer_plan(t)->update == UPDATE_BACKWARD)
        t->engine.update = params_of_step(t, t->at.step + 1, 0);
    const schedule_kind kind = t->engine.state == ENGINE_WAITING ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP;
    executor_time_tasks(t->engine.x, t->job.o.trace || measured_wants(&t->engine.measured)); /* any step may turn out to be the last */
    t->engine.last = kind;
    t->engine.last_whole = false;
    return trainer_run(t, kind, (float)(1.0 / (double)*targets), e);
}

static bool pass_progress(void *arg, uint64_t done, uint64_t total)
{
    const trainer *t = arg;
    options_progress(&t->job.o, "evaluating", done, total);
    return t->comm || !t->job.o.stop || !t->job.o.stop(t->job.o.arg); /* which ranks would not hear at the same moment */
}

int step_evaluate(trainer *t, double *loss, int64_t *tokens, bool *whole, pt_error *e)
{
    evaluation_sum sum = {0};
    int failed = trainer_drain(t, e);
    if (!failed)
        failed = evaluation_run(t->engine.x, t->job.eval, pass_progress, t, &sum, e);
    *whole = !sum.stopped;
    *tokens = sum.tokens;
    *loss = sum.loss / (double)(sum.tokens ? sum.tokens : 1);
    return failed;
}

static int evaluate_step(trainer *t, pt_step *s, pt_error *e)
{
    int64_t tokens;
    int failed = step_evaluate(t, &s->eval_loss, &tokens, &s->evaluated, e);
    if (!failed && s->evaluated && !isfinite(s->eval_loss))
        options_notice(&t->job.o, "step %lld: the loss on the evaluation data is not finite", (long long)t->at.step);
    return failed;
}

/* What a signal has ended before. 1: it was stopped again; of the next step it would be another one, so that the run has to end here, and
 * owes it when it is resumed. */
static int make_up_evaluation(trainer *t, pt_error *e)
{
    double loss;
    int64_t tokens;
    bool whole;
    int failed = step_evaluate(t, &loss, &tokens, &whole, e);
    if (failed || !whole)
        return failed ? failed : 1;
    t->at.owes_evaluation = false;
    options_notice(&t->job.o, "step %lld: evaluation loss %.4f, which was interrupted before", (long long)t->at.step, loss);
    return ranks_lead(t) ? metrics_add_evaluation(&t->metrics, loss, e) : 0;
}

static int write_metrics(const trainer *t, const pt_step *s, pt_error *e)
{
    if (!ranks_lead(t))
        return 0;
    pt_memory memory[TIERS];
    const int n = trainer_memory(t, memory);
    return metrics_write(&t->metrics, s, memory, n, e);
}

/* Ranks end together: where one was told to stop, all are. */
static int agree_to_stop(const trainer *t, bool *stop, pt_error *e)
{
    *stop = t->comm && t->job.o.stop && t->job.o.stop(t->job.o.arg);
    return ranks_any(t, stop, e);
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

static int take(trainer *t, pt_step *s, bool *hopeless, pt_error *e)
{
    int behind = t->at.owes_evaluation && t->engine.x ? make_up_evaluation(t, e) : 0;
    if (behind > 0)
        *s = (pt_step){.step = t->at.step};
    if (behind)
        return behind;
    if (t->at.step >= t->job.steps)
        return 0;
    if (!t->engine.x)
        return pt_fail(e, PT_FAILED, "the run has no memory any more");
    double start = clock_s();
    int64_t targets;
    bool steady = t->engine.state == ENGINE_WAITING || trainer_plan(t)->update != UPDATE_NEXT_FORWARD;
    int bad, failed = run_step(t, &targets, e);
    if (failed)
        return failed;
    double loss = sum_losses(t) / (double)targets, norm = gradient_norm(t, &bad);
    failed = check_finite(t, loss, norm, bad, e);
    *hopeless = failed != 0;
    if (failed)
        return failed;
    t->at.step++;
    t->at.tokens += targets;
    const update_params update = params_of_step(t, t->at.step, norm);
    engine_accept(&t->engine, trainer_plan(t)->update == UPDATE_BACKWARD ? NULL : &update);
    if (trainer_plan(t)->update == UPDATE_END && (failed = trainer_drain(t, e)))
        return failed;
    t->engine.last_whole = true;
    *s = (pt_step){.step = t->at.step, .loss = loss, .grad_norm = norm, .lr = lr_of_step(&t->job.o, t->at.step, t->job.steps),
                   .tokens = t->at.tokens};
    s->step_s = clock_s() - start;
    s->predicted_step_s = t->predicted.now.step_ns * 1e-9;
    measured_step(&t->engine.measured, s->step_s, steady);
    s->tokens_per_s = (double)targets / s->step_s;
    if (trainer_evaluates(t))
        failed = evaluate_step(t, s, e);
    if (!failed)
        failed = write_metrics(t, s, e);
    if (!failed && t->job.o.save_every && t->at.step % t->job.o.save_every == 0)
        failed = checkpoint_save(t, e);
    if (!failed && !t->comm)
        failed = replan_look(t, e);
    return failed ? failed : 1;
}
