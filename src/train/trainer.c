#include "train/trainer.h"

#include "base/clock.h"
#include "base/units.h"
#include "io/disk.h"
#include "io/safetensors.h"
#include "model/lanes.h"
#include "run/evaluation.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void trainer_notice(const trainer *t, const char *fmt, ...)
{
    char sentence[1024];
    va_list ap;
    va_start(ap, fmt);
    text_format(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (t->o.notice)
        t->o.notice(t->o.arg, sentence);
}

void trainer_progress(const trainer *t, const char *stage, uint64_t done, uint64_t total)
{
    if (t->o.progress)
        t->o.progress(t->o.arg, stage, done, total);
}

/* ---- life ---- */

/* A file that the user may have put there, since a profile and a machine are read from anywhere. */
static bool is_given(const trainer *t, const char *file)
{
    return (!strcmp(file, "profile.json") && (t->o.profile_file || !t->wrote_profile)) ||
           (!strcmp(file, "machine.json") && (t->o.machine_file || !t->wrote_machine));
}

/* Of a run that could not begin nothing stays but the cache of its tokens, so that the same command may follow. */
static void trainer_undo(trainer *t)
{
    static const char *const files[] = {"plan.json", "machine.json", "profile.json", "metrics.jsonl"};
    char out[FILE_PATH_BYTES], path[FILE_PATH_BYTES];
    bool made_out = t->made_out;
    snprintf(out, sizeof out, "%s", t->out);
    for (size_t i = 0; t->found_empty && i < sizeof files / sizeof *files; i++)
        if (!is_given(t, files[i]) && !path_join(path, out, files[i], NULL))
            unlink(path);
    if (t->found_empty && !path_join(path, out, "cache", NULL))
        rmdir(path); /* folders only where nothing has come to be in them */
    pt_trainer_close(t);
    if (made_out)
        rmdir(out);
}

int pt_trainer_open(const pt_train_options *o, pt_trainer **out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_trainer_open", "the options");
    if (!out)
        return pt_fail_null(e, "pt_trainer_open", "the place for the trainer");
    *out = NULL;
    int failed = options_check(o, e);
    if (failed)
        return failed;
    trainer *t = calloc(1, sizeof *t);
    if (!t)
        return pt_fail(e, PT_FAILED, "out of memory");
    t->o = *o;
    t->lock.fd = -1;
    t->saved_step = -1;
    failed = trainer_setup(t, e);
    if (failed) {
        trainer_undo(t);
        return failed;
    }
    *out = t;
    return 0;
}

void pt_trainer_close(pt_trainer *t)
{
    if (!t)
        return;
    if (t->metrics)
        fclose(t->metrics);
    executor_close(t->x);
    planning_close(&t->planning);
    dataset_close(t->data);
    dataset_close(t->eval);
    tokenizer_close(t->tokenizer);
    companions_free(&t->companions);
    safetensors_close((safetensors *)t->layout.source);
    model_close(t->model);
    if (t->lock.fd >= 0)
        dir_lock_release(&t->lock);
    free(t);
}

/* ---- steps ---- */

static int load_batch(trainer *t, int64_t *targets, pt_error *e)
{
    executor_batch b = executor_input(t->x);
    int64_t len = t->shape.seq_len;
    *targets = 0;
    for (int64_t i = 0; i < t->shape.batch; i++) {
        uint64_t index = (uint64_t)(t->step * t->shape.batch + i);
        int failed = dataset_sample(t->data, index, (uint64_t)t->epoch_windows, b.ids + i * len, b.targets + i * len, b.first + i * len, e);
        if (failed)
            return failed;
    }
    if (t->shape.documents)
        executor_place(t->x);
    for (int64_t i = 0; i < t->shape.batch * len; i++)
        *targets += b.targets[i] >= 0;
    return *targets ? 0 : pt_fail(e, PT_FAILED, "step %lld has no target token at all: under --document-mask a document of one token has "
                                  "none; leave the option out, or give a larger --batch-size", (long long)t->step + 1);
}

static double sum_losses(const trainer *t)
{
    return lane_sum(shape_lanes(&t->shape), executor_losses(t->x), t->shape.batch * t->shape.seq_len);
}

/* Sum of squares per parameter, then over the parameters; *bad: the first that is not finite, or -1. */
static double gradient_norm(const trainer *t, int *bad)
{
    const double *partial = executor_sumsq(t->x);
    double total = 0;
    int64_t at = 0;
    *bad = -1;
    for (int i = 0; i < t->model->params_n; i++) {
        int64_t n = sumsq_index(t->model, i + 1) - at;
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
    t->broken = trainer_plan(t)->update == UPDATE_BACKWARD;
    if (t->broken)
        snprintf(sentence, n, "weights may have been changed by it: start anew from the last checkpoint (--model CHECKPOINT)");
    else if (checkpoint_save(t, &e))
        snprintf(sentence, n, "no weight has been changed by it, but saving them failed (%.300s): start anew", e.text);
    else
        snprintf(sentence, n, "no weight has been changed by it: start anew from what is saved (--model %.300s/checkpoint-%lld)", t->out,
                 (long long)t->step);
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
                 t->model->blocks_n - 1, t->model->blocks_n);
    else
        snprintf(what, sizeof what, "the gradient of %s (block %d of %d) is not finite", t->model->params[bad].part[0].name,
                 t->model->params[bad].block, t->model->blocks_n);
    return pt_fail(e, PT_FAILED, "step %lld: %s; %s, with a lower --lr or --dtype fp32", (long long)t->step + 1, what, saved);
}

static update_params params_of_step(const trainer *t, int64_t step, double norm)
{
    double clip = t->o.max_grad_norm;
    update_params u = {.lr = (float)lr_of_step(&t->o, step, t->steps), .beta1 = (float)t->o.beta1, .beta2 = (float)t->o.beta2,
                       .eps = (float)t->o.eps, .weight_decay = (float)t->o.weight_decay, .step = step, .grad_scale = 1,
                       .momentum = t->o.momentum > 0 ? (float)t->o.momentum : MUON_MOMENTUM, .lr_adjust = (lr_adjust)t->o.lr_adjust};
    if (clip > 0 && clip / (norm + 1e-6) < 1)
        u.grad_scale = (float)(clip / (norm + 1e-6));
    return u;
}

/* Nothing is waiting afterwards, if all went well. */
static int run_schedule(trainer *t, schedule_kind kind, float loss_scale, pt_error *e)
{
    int failed = 0;
    if (t->broken)
        failed = pt_fail(e, PT_FAILED, "the run failed in the middle of a step, and what is in memory is neither from before nor from after it");
    else
        failed = executor_run(t->x, kind, loss_scale, &t->update, e);
    t->broken = failed != 0;
    t->pending = false;
    const schedule_input in = trainer_schedules(t);
    if (!failed)
        measured_run(&t->measured, &in, &t->planning.profile.costs, t->x, kind);
    return failed;
}

int trainer_drain(trainer *t, pt_error *e) { return t->pending || t->broken ? run_schedule(t, SCHEDULE_DRAIN, 0, e) : 0; }

/* Runs the step's schedule; *targets: what the losses are divided by. */
static int run_step(trainer *t, int64_t *targets, pt_error *e)
{
    int failed = load_batch(t, targets, e);
    if (failed)
        return failed;
    if (trainer_plan(t)->update == UPDATE_BACKWARD)
        t->update = params_of_step(t, t->step + 1, 0);
    schedule_kind kind = t->pending ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP;
    executor_time_tasks(t->x, t->o.trace || measured_wants(&t->measured)); /* any step may turn out to be the last */
    t->last = kind;
    t->last_whole = false;
    return run_schedule(t, kind, (float)(1.0 / (double)*targets), e);
}

static bool pass_progress(void *arg, uint64_t done, uint64_t total)
{
    const trainer *t = arg;
    trainer_progress(t, "evaluating", done, total);
    return !t->o.stop || !t->o.stop(t->o.arg);
}

/* *whole: it was not stopped. */
static int evaluate(trainer *t, double *loss, int64_t *tokens, bool *whole, pt_error *e)
{
    evaluation_sum sum = {0};
    int failed = trainer_drain(t, e);
    if (!failed)
        failed = evaluation_run(t->x, t->eval, pass_progress, t, &sum, e);
    *whole = !sum.stopped;
    *tokens = sum.tokens;
    *loss = sum.loss / (double)(sum.tokens ? sum.tokens : 1);
    return failed;
}

bool trainer_evaluates(const trainer *t)
{
    return t->eval && (t->step == t->steps || (t->o.eval_every && t->step % t->o.eval_every == 0));
}

static int evaluate_step(trainer *t, pt_step *s, pt_error *e)
{
    int64_t tokens;
    int failed = evaluate(t, &s->eval_loss, &tokens, &s->evaluated, e);
    if (!failed && s->evaluated && !isfinite(s->eval_loss))
        trainer_notice(t, "step %lld: the loss on the evaluation data is not finite", (long long)t->step);
    return failed;
}

/* What a signal has ended before. 1: it was stopped again; of the next step it would be another one, so that the run has to end here, and
 * owes it when it is resumed. */
static int make_up_evaluation(trainer *t, pt_error *e)
{
    double loss;
    int64_t tokens;
    bool whole;
    int failed = evaluate(t, &loss, &tokens, &whole, e);
    if (failed || !whole)
        return failed ? failed : 1;
    t->owes_evaluation = false;
    trainer_notice(t, "step %lld: evaluation loss %.4f, which was interrupted before", (long long)t->step, loss);
    return metrics_add_evaluation(t, loss, e);
}

/* *hopeless: the step would fail again in the same way. */
static int take_step(trainer *t, pt_step *s, bool *hopeless, pt_error *e)
{
    int behind = t->owes_evaluation && t->x ? make_up_evaluation(t, e) : 0;
    if (behind > 0)
        *s = (pt_step){.step = t->step};
    if (behind)
        return behind;
    if (t->step >= t->steps)
        return 0;
    if (!t->x)
        return pt_fail(e, PT_FAILED, "the run has no memory any more");
    double start = clock_s();
    int64_t targets;
    bool steady = t->pending || trainer_plan(t)->update != UPDATE_NEXT_FORWARD;
    int bad, failed = run_step(t, &targets, e);
    if (failed)
        return failed;
    double loss = sum_losses(t) / (double)targets, norm = gradient_norm(t, &bad);
    failed = check_finite(t, loss, norm, bad, e);
    *hopeless = failed != 0;
    if (failed)
        return failed;
    t->step++;
    t->tokens += targets;
    if (trainer_plan(t)->update != UPDATE_BACKWARD) {
        t->update = params_of_step(t, t->step, norm);
        t->pending = true;
    }
    if (trainer_plan(t)->update == UPDATE_END && (failed = trainer_drain(t, e)))
        return failed;
    t->last_whole = true;
    *s = (pt_step){.step = t->step, .loss = loss, .grad_norm = norm, .lr = lr_of_step(&t->o, t->step, t->steps), .tokens = t->tokens};
    s->step_s = clock_s() - start;
    s->predicted_step_s = t->forecast.step_ns * 1e-9;
    measured_step(&t->measured, s->step_s, steady);
    s->tokens_per_s = (double)targets / s->step_s;
    if (trainer_evaluates(t))
        failed = evaluate_step(t, s, e);
    if (!failed)
        failed = metrics_write(t, s, e);
    if (!failed && t->o.save_every && t->step % t->o.save_every == 0)
        failed = checkpoint_save(t, e);
    if (!failed)
        failed = replan_look(t, e);
    return failed ? failed : 1;
}

/* ---- from outside ---- */

int pt_trainer_step(pt_trainer *t, pt_step *s, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_step", "the trainer");
    if (!s)
        return pt_fail_null(e, "pt_trainer_step", "the step");
    bool hopeless = false;
    int more = take_step(t, s, &hopeless, e);
    if (more < 0 && !hopeless)
        checkpoint_add_advice(t, e);
    return more;
}

int pt_trainer_evaluate(pt_trainer *t, double *loss, int64_t *tokens, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_evaluate", "the trainer");
    if (!loss)
        return pt_fail_null(e, "pt_trainer_evaluate", "the loss");
    if (!tokens)
        return pt_fail_null(e, "pt_trainer_evaluate", "the number of tokens");
    if (!t->eval)
        return pt_fail(e, PT_USAGE, "no evaluation data: --eval-data FILE");
    bool whole;
    int failed = evaluate(t, loss, tokens, &whole, e);
    if (failed)
        checkpoint_add_advice(t, e);
    return failed ? failed : whole ? 0 : pt_fail(e, PT_FAILED, "the evaluation was stopped");
}

/* What was predicted and what was measured: what a run was for is safe by then, so that it does not fail for these. */
static void write_account(const trainer *t)
{
    pt_error e = {0};
    if (summary_write(t, &e) || (t->o.trace && trace_write(t, &e)))
        trainer_notice(t, "%s", e.text);
}

int pt_trainer_save(pt_trainer *t, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_save", "the trainer");
    int failed = checkpoint_save(t, e);
    if (failed)
        checkpoint_add_advice(t, e);
    else
        write_account(t);
    return failed;
}

/* A later run may go on from the end. Nothing was kept free for this where no checkpoint was asked for, so it is left out where it is tight. */
static void save_end(trainer *t)
{
    const uint64_t bytes = room_of(t).checkpoint_bytes;
    uint64_t free_bytes;
    pt_error e = {0};
    char size[32];
    if (!t->step || (disk_is_memory(t->out) && !t->o.save_every))
        return;
    if (!disk_free_bytes(t->out, &free_bytes, NULL) && free_bytes < bytes + MACHINE_DISK_MARGIN)
        trainer_notice(t, "%s has no room for a checkpoint of the last step, %s: more steps cannot go on from there", t->out,
                       size_format(size, bytes));
    else if (checkpoint_save(t, &e))
        trainer_notice(t, "there is no checkpoint of the last step: %s", e.text);
}

int pt_trainer_finish(pt_trainer *t, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_finish", "the trainer");
    int failed = model_export(t, e);
    if (failed) {
        checkpoint_add_advice(t, e);
        return failed;
    }
    save_end(t);
    write_account(t);
    return 0;
}

const char *pt_version(void) { return PT_VERSION; }
