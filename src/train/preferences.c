#include "train/preferences.h"

#include "comm/comm.h"
#include "device/preference.h"
#include "task/task.h"

#include <stdlib.h>

/* ---- pairs ---- */

/* Divided by beta. IPO's and NORM's are not divided by lengths, as in TRL. */
static double reward_of(const preference_pairs *p, int example)
{
    return p->rule.kind == PREFERENCE_IPO || p->rule.kind == PREFERENCE_NORM ? p->example[example].sum : preference_score(p, example);
}

/* One or both replies, each an example of its own. */
static void add_replies(preference_sum *sum, const preference_pairs *p)
{
    sum->loss += preference_pair_loss(p);
    for (int k = 0; k < 2; k++) {
        if (!p->example[k].n)
            continue;
        const double score = preference_score(p, k);
        sum->reward[k] += p->rule.beta * score;
        sum->replies[k]++;
        sum->right += preference_beyond(p->rule, score, k) > 0;
        sum->pairs++;
    }
}

static void add_pair(preference_sum *sum, const preference_pairs *p)
{
    if (p->rule.kind == PREFERENCE_KTO) {
        add_replies(sum, p);
        return;
    }
    const double beta = p->rule.beta, reward[2] = {reward_of(p, 0), reward_of(p, 1)}, margin = beta * (reward[0] - reward[1]);
    sum->loss += preference_pair_loss(p) + (p->rule.kind == PREFERENCE_ORPO ? p->own : 0);
    sum->margin += margin;
    for (int k = 0; k < 2; k++) {
        sum->reward[k] += beta * reward[k];
        sum->replies[k]++;
    }
    sum->right += margin > 0;
    sum->pairs++;
}

typedef void visit_sequence(void *arg, const step_shape *s, const int32_t *first, const int32_t *targets, const float *loss,
                            const float *given);

/* Adds the pairs of a sequence to a preference_sum. */
static void add_sequence(void *arg, const step_shape *shape, const int32_t *first, const int32_t *targets, const float *loss,
                         const float *given)
{
    preference_sum *sum = arg;
    preference_rule rule = shape->compare;
    rule.baseline = (float)sum->kl;
    preference_pairs p = preference_begin(rule, NULL);
    for (int64_t r = 0; r < shape->seq_len; r++) {
        const bool begins = first[r] == r;
        if (preference_is_whole(&p, begins)) {
            add_pair(sum, &p);
            preference_close(&p);
        }
        preference_row(&p, r, begins, targets[r] >= 0, loss[r], given ? given[r] : 0);
    }
    if (preference_is_whole(&p, true))
        add_pair(sum, &p);
}

/* Inputs of the sums, of all sequences of a step: (ranks, batch, seq_len) each. given: NULL if the batch has none. */
typedef struct whole_step { int32_t *first, *targets; float *given; } whole_step;

static int gather_step(executor *exec, whole_step *w, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    const executor_batch b = executor_input(exec);
    const size_t n = (size_t)(shape->batch * shape->seq_len), all = n * (size_t)shape_ranks(shape);
    comm *c = executor_comm(exec);
    *w = (whole_step){malloc(3 * all * sizeof(float)), NULL, NULL};
    if (!w->first)
        return pt_fail(e, PT_FAILED, "out of memory");
    w->targets = w->first + all;
    w->given = shape->weighted ? (float *)(w->targets + all) : NULL;
    int failed = comm_all_gather(c, b.first, n * sizeof *b.first, w->first, e);
    if (!failed)
        failed = comm_all_gather(c, b.targets, n * sizeof *b.targets, w->targets, e);
    return failed || !w->given ? failed : comm_all_gather(c, b.weights, n * sizeof *b.weights, w->given, e);
}

/* Visits the first n sequences of the step that exec has run, of all ranks in order. */
static int visit_sequences(executor *exec, int64_t n, visit_sequence *visit, void *arg, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    const executor_batch b = executor_input(exec);
    const bool several = executor_comm(exec);
    whole_step w = {b.first, b.targets, shape->weighted ? b.weights : NULL};
    int failed = several ? gather_step(exec, &w, e) : 0;
    for (int64_t i = 0; i < n && !failed; i++) {
        const int64_t at = i * shape->seq_len;
        visit(arg, shape, w.first + at, w.targets + at, executor_losses(exec) + at, w.given ? w.given + at : NULL);
    }
    if (several)
        free(w.first);
    return failed;
}

void preferences_weigh(executor *exec, const dataset_counts *counts)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    float *weights = executor_input(exec).weights;
    const float one = (float)((double)counts->examples / (double)(counts->chosen ? counts->chosen : 1));
    for (int64_t i = 0; i < shape->batch * shape->seq_len; i++)
        weights[i] *= one;
}

int preferences_sum(executor *exec, double kl, preference_sum *sum, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    *sum = (preference_sum){.kl = kl};
    return visit_sequences(exec, shape->batch * shape_ranks(shape), add_sequence, sum, e);
}

preference_means preferences_mean(const preference_sum *s, preference_kind kind)
{
    const double n = (double)(s->pairs ? s->pairs : 1), chosen = s->reward[0] / (double)s->replies[0];
    const double rejected = s->reward[1] / (double)s->replies[1];
    return (preference_means){.loss = s->loss / n, .chosen = chosen, .rejected = rejected,
                              .margin = kind == PREFERENCE_KTO ? chosen - rejected : s->margin / n, .accuracy = (double)s->right / n};
}

/* ---- the baseline ---- */

/* Adds the log-ratios of a sequence to a double. */
static void add_ratios(void *arg, const step_shape *shape, const int32_t *first, const int32_t *targets, const float *loss,
                       const float *given)
{
    double *sum = arg;
    for (int64_t r = 0; r < shape->seq_len; r++)
        *sum += targets[r] >= 0 ? (double)given[r] - (double)loss[r] : 0;
}

int preferences_baseline(const reference *r, dataset *data, const uint64_t *windows, uint64_t n, executor *exec, double *kl, pt_error *e)
{
    uint64_t *mismatched = malloc(n * sizeof *mismatched);
    dataset_counts counts = {0};
    double sum = 0;
    int failed = mismatched ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (uint64_t i = 0; i < n && !failed; i++)
        mismatched[i] = windows[i] == NO_WINDOW ? NO_WINDOW : dataset_windows(data) + windows[i];
    if (!failed)
        failed = reference_load(data, mismatched, n, exec, &counts, e);
    if (!failed)
        failed = reference_fill(r, mismatched, n, exec, e);
    if (!failed)
        failed = executor_run(exec, SCHEDULE_EVAL, 0, NULL, e);
    if (!failed)
        failed = visit_sequences(exec, (int64_t)n, add_ratios, &sum, e);
    free(mismatched);
    if (!failed)
        failed = evaluation_add_ranks(exec, &counts.examples, e);
    sum /= (double)(counts.examples ? counts.examples : 1);
    *kl = sum < 0 ? 0 : sum;
    executor_set_baseline(exec, (float)*kl);
    return failed;
}

/* ---- evaluation ---- */

/* This rank's part of n windows, with what their pairs are given. Adds its targets to *learned. */
static int load_windows(const job *j, const reference *r, const uint64_t *windows, uint64_t n, executor *exec, int64_t *learned,
                        pt_error *e)
{
    dataset_counts counts = {0};
    int failed = reference_load(j->eval, windows, n, exec, &counts, e);
    *learned += counts.learned;
    if (!failed && reference_is_used(j))
        failed = reference_fill(r, windows, n, exec, e);
    if (failed || task_of(&j->o)->plane != TASK_PLANE_OWN)
        return failed;
    failed = evaluation_add_ranks(exec, &counts.examples, e);
    if (!failed)
        failed = evaluation_add_ranks(exec, &counts.chosen, e);
    preferences_weigh(exec, &counts);
    return failed;
}

int preferences_evaluate(const job *j, const reference *r, executor *exec, const evaluation_pass *pass, preference_evaluation *out,
                         pt_error *e)
{
    const uint64_t all = dataset_eval_windows(j->eval), batch = (uint64_t)j->shape.batch;
    uint64_t *windows = malloc(batch * sizeof *windows);
    double kl = 0;
    *out = (preference_evaluation){0};
    int failed = windows ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (uint64_t w = 0, n; w < all && !failed && !out->stopped; w += n) {
        n = all - w < batch ? all - w : batch;
        for (uint64_t i = 0; i < n; i++)
            windows[i] = w + i;
        out->stopped = !pass->progress(pass->arg, w, all);
        if (!out->stopped && shape_has_baseline(&j->shape))
            failed = preferences_baseline(r, j->eval, windows, n, exec, &out->sum.kl, e);
        kl += out->sum.kl * (double)n;
        failed = failed || out->stopped ? failed : load_windows(j, r, windows, n, exec, &out->learned, e);
        if (!failed && !out->stopped)
            failed = executor_run(exec, SCHEDULE_EVAL, 0, NULL, e);
        if (!failed && !out->stopped)
            failed = visit_sequences(exec, (int64_t)n, add_sequence, &out->sum, e);
        if (!failed && !out->stopped && pass->ran)
            failed = pass->ran(pass->arg, w, n, e);
    }
    out->sum.kl = kl / (double)(all ? all : 1);
    free(windows);
    if (!failed && !out->stopped)
        pass->progress(pass->arg, all, all);
    return failed;
}
