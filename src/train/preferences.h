/* preferences.h - training on preferences: the losses of pairs, for some tasks compared with those of the reference (reference.h). */
#ifndef PT_PREFERENCES_H
#define PT_PREFERENCES_H

#include "run/evaluation.h"
#include "train/reference.h"

/* Sums over pairs. right: pairs with a margin above 0; reward: of the chosen and of the rejected replies. KTO: over replies; right: those
 * on their side of the baseline, `kl`. */
typedef struct preference_sum { int64_t pairs, right, replies[2]; double loss, margin, reward[2], kl; } preference_sum;
/* NAN: without such replies. */
typedef struct preference_means { double loss, chosen, rejected, margin, accuracy; } preference_means;
preference_means preferences_mean(const preference_sum *s, preference_kind kind);
/* Scales the rows' own weights (TASK_PLANE_OWN) by the pairs per target. counts: of the step, over all ranks. */
void preferences_weigh(executor *exec, const dataset_counts *counts);
/* Sums over the pairs of the step that exec has run, over all ranks; the bits do not depend on their number. */
int preferences_sum(executor *exec, double kl, preference_sum *sum, pt_error *e);
/* Runs n windows, at most a step of all ranks, mismatched. *kl: the mean log-ratio of their replies, at least 0, the baseline of the next
 * step. No update may wait. All ranks call it. */
int preferences_baseline(const reference *r, dataset *data, const uint64_t *windows, uint64_t n, executor *exec, double *kl, pt_error *e);

/* Over all pairs of the evaluation data. */
typedef struct preference_evaluation {
    preference_sum sum;
    int64_t learned; /* target tokens of the replies, in this rank's part */
    bool stopped;    /* `progress` stopped it; the other fields are invalid */
} preference_evaluation;
int preferences_evaluate(const job *j, const reference *r, executor *exec, const evaluation_pass *pass, preference_evaluation *out,
                         pt_error *e);

#endif
