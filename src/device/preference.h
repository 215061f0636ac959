/* preference.h - the losses of the pairs of a sequence, row by row; shared by all backends and by the code that reports losses.
 *
 *     for each row:  if (preference_is_whole()) preference_close();  preference_row();
 *     at the end:    preference_close();
 *
 * A row's weight is that of its example, which is known only at the end of the pair; it is stored at the example's first row.
 */
#ifndef PT_DEVICE_PREFERENCE_H
#define PT_DEVICE_PREFERENCE_H

#include "device/device.h"

#include <math.h>

#ifdef __CUDACC__
#define PREFERENCE_CALL __host__ __device__ static inline
#else
#define PREFERENCE_CALL static inline
#endif

typedef struct preference_example { double sum; int64_t first, n; } preference_example;

typedef struct preference_pairs {
    preference_kind kind;
    double beta;
    float *weights;                /* of the sequence's rows; NULL: not wanted */
    preference_example example[2]; /* chosen, rejected */
    int begun;                     /* examples begun, of the pair */
} preference_pairs;

PREFERENCE_CALL preference_pairs preference_begin(preference_kind kind, float beta, float *weights)
{
    preference_pairs p;
    p.kind = kind;
    p.beta = beta;
    p.weights = weights;
    p.begun = 0;
    return p;
}

PREFERENCE_CALL double preference_score(const preference_pairs *p, int example)
{
    const preference_example *x = &p->example[example];
    return p->kind == PREFERENCE_IPO && x->n > 0 ? x->sum / (double)x->n : x->sum;
}

/* The margin of a complete pair, before it is closed. */
PREFERENCE_CALL double preference_margin(const preference_pairs *p) { return preference_score(p, 0) - preference_score(p, 1); }

/* log(1 + e^-x), without overflow. */
PREFERENCE_CALL double preference_log_loss(double x) { return x > 0 ? log1p(exp(-x)) : log1p(exp(x)) - x; }

PREFERENCE_CALL double preference_loss(preference_kind kind, double beta, double margin)
{
    const double off = margin - 1 / (2 * beta);
    return kind == PREFERENCE_IPO ? off * off : preference_log_loss(beta * margin);
}

/* The derivative of the loss by the margin. */
PREFERENCE_CALL double preference_slope(preference_kind kind, double beta, double margin)
{
    return kind == PREFERENCE_IPO ? 2 * (margin - 1 / (2 * beta)) : -beta / (1 + exp(beta * margin));
}

PREFERENCE_CALL void preference_close(preference_pairs *p)
{
    const double slope = p->begun == 2 ? preference_slope(p->kind, p->beta, preference_margin(p)) : 0;
    for (int i = 0; p->weights && i < p->begun; i++) {
        const preference_example *x = &p->example[i];
        const double by_score = i == 0 ? -slope : slope;
        p->weights[x->first] = (float)(p->kind == PREFERENCE_IPO && x->n > 0 ? by_score / (double)x->n : by_score);
    }
    p->begun = 0;
}

/* An example begins after a complete pair, which must be closed first. */
PREFERENCE_CALL bool preference_is_whole(const preference_pairs *p, bool begins) { return begins && p->begun == 2; }

PREFERENCE_CALL void preference_row(preference_pairs *p, int64_t r, bool begins, bool target, float loss, float reference)
{
    if (begins) {
        preference_example *x = &p->example[p->begun++];
        x->sum = 0;
        x->first = r;
        x->n = 0;
    }
    if (target && p->begun > 0) {
        p->example[p->begun - 1].sum += (double)reference - (double)loss;
        p->example[p->begun - 1].n++;
    }
}

#endif
