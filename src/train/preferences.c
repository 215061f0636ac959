#include "train/preferences.h"

#include "comm/comm.h"
#include "device/preference.h"
#include "run/evaluation.h"
#include "task/task.h"

#include <stdlib.h>

/* ---- pairs ---- */

/* Divided by beta. IPO's is not divided by lengths, as in TRL. */
static double reward_of(const preference_pairs *p, int example)
{
    return p->rule.kind == PREFERENCE_IPO ? p->example[example].sum : preference_score(p, example);
}

static void add_pair(preference_sum *sum, const preference_pairs *p)
{
    const double beta = p->rule.beta, reward[2] = {reward_of(p, 0), reward_of(p, 1)}, margin = beta * (reward[0] - reward[1]);
    sum->loss += preference_loss(p->rule, preference_score(p, 0), preference_score(p, 1)) + p->own;
    sum->margin += margin;
    for (int k = 0; k < 2; k++)
        sum->reward[k] += beta * reward[k];
    sum->right += margin > 0;
    sum->pairs++;
}

static void add_sequence(preference_sum *sum, const step_shape *s, const int32_t *first, const int32_t *targets, const float *loss,
                         const float *given)
{
    preference_pairs p = preference_begin(s->compare, NULL);
    for (int64_t r = 0; r < s->seq_len; r++) {
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

static int gather_step(executor *x, whole_step *w, pt_error *e)
{
    const step_shape *s = executor_input_of(x)->shape;
    const executor_batch b = executor_input(x);
    const size_t n = (size_t)(s->batch * s->seq_len), all = n * (size_t)shape_ranks(s);
    comm *c = executor_comm(x);
    *w = (whole_step){malloc(3 * all * sizeof(float)), NULL, NULL};
    if (!w->first)
        return pt_fail(e, PT_FAILED, "out of memory");
    w->targets = w->first + all;
    w->given = s->weighted ? (float *)(w->targets + all) : NULL;
    int failed = comm_all_gather(c, b.first, n * sizeof *b.first, w->first, e);
    if (!failed)
        failed = comm_all_gather(c, b.targets, n * sizeof *b.targets, w->targets, e);
    return failed || !w->given ? failed : comm_all_gather(c, b.weights, n * sizeof *b.weights, w->given, e);
}

/* Adds the first n sequences of the step that x has run. */
static int add_sequences(executor *x, int64_t n, preference_sum *sum, pt_error *e)
{
    const step_shape *s = executor_input_of(x)->shape;
    const executor_batch b = executor_input(x);
    const bool several = executor_comm(x);
    whole_step w = {b.first, b.targets, s->weighted ? b.weights : NULL};
    int failed = several ? gather_step(x, &w, e) : 0;
    for (int64_t i = 0; i < n && !failed; i++) {
        const int64_t at = i * s->seq_len;
        add_sequence(sum, s, w.first + at, w.targets + at, executor_losses(x) + at, w.given ? w.given + at : NULL);
    }
    if (several)
        free(w.first);
    return failed;
}

void preferences_weigh(executor *x, const dataset_counts *counts)
{
    const step_shape *s = executor_input_of(x)->shape;
    float *weights = executor_input(x).weights;
    const float one = (float)((double)counts->examples / (double)(counts->chosen ? counts->chosen : 1));
    for (int64_t i = 0; i < s->batch * s->seq_len; i++)
        weights[i] *= one;
}

int preferences_sum(executor *x, preference_sum *sum, pt_error *e)
{
    const step_shape *s = executor_input_of(x)->shape;
    *sum = (preference_sum){0};
    return add_sequences(x, s->batch * shape_ranks(s), sum, e);
}

/* ---- evaluation ---- */

/* This rank's part of n windows, with what their pairs are given. Adds its targets to *learned. */
static int load_windows(const job *j, const reference *r, const uint64_t *windows, uint64_t n, executor *x, int64_t *learned, pt_error *e)
{
    dataset_counts counts = {0};
    int failed = reference_load(j->eval, windows, n, x, &counts, e);
    *learned += counts.learned;
    if (!failed && reference_is_used(j))
        failed = reference_fill(r, windows, n, x, e);
    if (failed || task_of(&j->o)->plane != TASK_PLANE_OWN)
        return failed;
    failed = evaluation_add_ranks(x, &counts.examples, e);
    if (!failed)
        failed = evaluation_add_ranks(x, &counts.chosen, e);
    preferences_weigh(x, &counts);
    return failed;
}

int preferences_evaluate(const job *j, const reference *r, executor *x, bool (*progress)(void *arg, uint64_t done, uint64_t total),
                         void *arg, preference_evaluation *out, pt_error *e)
{
    const uint64_t all = dataset_eval_windows(j->eval), batch = (uint64_t)j->shape.batch;
    uint64_t *windows = malloc(batch * sizeof *windows);
    *out = (preference_evaluation){0};
    int failed = windows ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (uint64_t w = 0, n; w < all && !failed && !out->stopped; w += n) {
        n = all - w < batch ? all - w : batch;
        for (uint64_t i = 0; i < n; i++)
            windows[i] = w + i;
        out->stopped = !progress(arg, w, all);
        failed = out->stopped ? 0 : load_windows(j, r, windows, n, x, &out->learned, e);
        if (!failed && !out->stopped)
            failed = executor_run(x, SCHEDULE_EVAL, 0, NULL, e);
        if (!failed && !out->stopped)
            failed = add_sequences(x, (int64_t)n, &out->sum, e);
    }
    free(windows);
    if (!failed && !out->stopped)
        progress(arg, all, all);
    return failed;
}
