#include "train/preferences.h"

#include "device/preference.h"

#include <stdlib.h>

/* ---- pairs ---- */

static void add_pair(preference_sum *sum, const preference_pairs *p)
{
    const double margin = p->beta * (p->example[0].sum - p->example[1].sum); /* of rewards, which IPO does not divide */
    sum->loss += preference_loss(p->kind, p->beta, preference_margin(p));
    sum->margin += margin;
    sum->right += margin > 0;
    sum->pairs++;
}

static void add_sequence(preference_sum *sum, const step_shape *s, const int32_t *first, const int32_t *targets, const float *loss,
                         const float *before)
{
    preference_pairs p = preference_begin(s->ipo ? PREFERENCE_IPO : PREFERENCE_SIGMOID, s->beta, NULL);
    for (int64_t r = 0; r < s->seq_len; r++) {
        const bool begins = first[r] == r;
        if (preference_is_whole(&p, begins)) {
            add_pair(sum, &p);
            preference_close(&p);
        }
        preference_row(&p, r, begins, targets[r] >= 0, loss[r], before[r]);
    }
    if (preference_is_whole(&p, true))
        add_pair(sum, &p);
}

preference_sum preferences_sum(const step_shape *s, executor *x)
{
    const executor_batch b = executor_input(x);
    preference_sum sum = {0};
    for (int64_t i = 0; i < s->batch; i++) {
        const int64_t at = i * s->seq_len;
        add_sequence(&sum, s, b.first + at, b.targets + at, executor_losses(x) + at, b.weights + at);
    }
    return sum;
}

/* ---- evaluation ---- */

/* The first n sequences of what x has run, which are windows from `first` on. */
static int add_windows(preference_sum *sum, const step_shape *s, const reference *r, executor *x, uint64_t first, uint64_t n, pt_error *e)
{
    const executor_batch b = executor_input(x);
    int failed = 0;
    for (uint64_t i = 0; i < n && !failed; i++) {
        const int64_t at = (int64_t)i * s->seq_len;
        failed = reference_read(r, first + i, s->seq_len, b.weights + at, e);
        if (!failed)
            add_sequence(sum, s, b.first + at, b.targets + at, executor_losses(x) + at, b.weights + at);
    }
    return failed;
}

int preferences_evaluate(const job *j, const reference *r, executor *x, bool (*progress)(void *arg, uint64_t done, uint64_t total),
                         void *arg, preference_evaluation *out, pt_error *e)
{
    const uint64_t all = dataset_eval_windows(j->eval), batch = (uint64_t)j->shape.batch;
    uint64_t *windows = malloc(batch * sizeof *windows);
    dataset_counts counts = {0};
    *out = (preference_evaluation){0};
    int failed = windows ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (uint64_t w = 0, n; w < all && !failed && !out->stopped; w += n) {
        n = all - w < batch ? all - w : batch;
        for (uint64_t i = 0; i < n; i++)
            windows[i] = w + i;
        out->stopped = !progress(arg, w, all);
        failed = out->stopped ? 0 : reference_load(j, j->eval, windows, n, x, &counts, e);
        if (!failed && !out->stopped)
            failed = executor_run(x, SCHEDULE_EVAL, 0, NULL, e);
        if (!failed && !out->stopped)
            failed = add_windows(&out->sum, &j->shape, r, x, w, n, e);
    }
    free(windows);
    out->learned = counts.learned;
    if (!failed && !out->stopped)
        progress(arg, all, all);
    return failed;
}
