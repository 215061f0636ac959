/* preference.h - the losses of the pairs of a sequence, row by row; shared by all backends and by the code that reports losses.
 *
 *     for each row:  if (preference_is_whole()) preference_close();  preference_row();
 *     at the end:    preference_close();
 *
 * A row's weight is that of its example, which is known only at the end of the pair; it is stored at the example's first row.
 */
#ifndef PT_DEVICE_PREFERENCE_H
#define PT_DEVICE_PREFERENCE_H

#include "device/call.h"
#include "device/device.h"

#include <math.h>

typedef struct preference_example { double sum; int64_t first, n; } preference_example;

typedef struct preference_pairs {
    preference_rule rule;
    float *weights;                /* of the sequence's rows; NULL: not wanted */
    preference_example example[2]; /* chosen, rejected */
    double own;                    /* the sum of the rows' own losses, of the pair; REWARD: its margin */
    int begun;                     /* examples begun, of the pair */
} preference_pairs;

DEVICE_CALL preference_pairs preference_begin(preference_rule rule, float *weights)
{
    preference_pairs p;
    p.rule = rule;
    p.weights = weights;
    p.own = 0;
    p.begun = 0;
    return p;
}

DEVICE_CALL bool preference_is_mean(preference_kind kind)
{
    return kind != PREFERENCE_SIGMOID && kind != PREFERENCE_KTO && kind != PREFERENCE_REWARD;
}

DEVICE_CALL double preference_score(const preference_pairs *p, int example)
{
    const preference_example *x = &p->example[example];
    return preference_is_mean(p->rule.kind) && x->n > 0 ? x->sum / (double)x->n : x->sum;
}

/* log(1 + e^-x), without overflow. */
DEVICE_CALL double preference_log_loss(double x) { return x > 0 ? log1p(exp(-x)) : log1p(exp(x)) - x; }

/* Odds are finite for a reply whose probability rounds to 1. */
DEVICE_CALL double preference_below_one(double score) { return score > -1e-12 ? -1e-12 : score; }

DEVICE_CALL double preference_log_odds(double score)
{
    const double x = preference_below_one(score);
    return x - log(-expm1(x));
}

/* As if the share `smoothing` of the pairs were the wrong way round. */
DEVICE_CALL double preference_smoothed_loss(preference_rule rule, double x)
{
    const double wrong = rule.smoothing;
    return wrong > 0 ? (1 - wrong) * preference_log_loss(x) + wrong * preference_log_loss(-x) : preference_log_loss(x);
}

/* The loss of a pair, without its rows' own. */
DEVICE_CALL double preference_loss(preference_rule rule, double chosen, double rejected, double own)
{
    const double beta = rule.beta, margin = chosen - rejected, off = margin - 1 / (2 * beta), both = chosen + rejected;
    switch (rule.kind) {
    case PREFERENCE_REWARD: return preference_log_loss(margin - own) + (double)rule.center * both * both;
    case PREFERENCE_IPO: return off * off;
    case PREFERENCE_ORPO: return beta * preference_log_loss(preference_log_odds(chosen) - preference_log_odds(rejected));
    default: return preference_smoothed_loss(rule, beta * margin - rule.gamma);
    }
}

/* Its derivative by the score of the chosen reply (`of` 0), or of the rejected one. */
DEVICE_CALL double preference_slope(preference_rule rule, double chosen, double rejected, double own, int of)
{
    const double beta = rule.beta, margin = chosen - rejected, sign = of ? -1 : 1;
    switch (rule.kind) {
    case PREFERENCE_REWARD: return -sign / (1 + exp(margin - own)) + 2 * (double)rule.center * (chosen + rejected);
    case PREFERENCE_IPO: return sign * (2 * (margin - 1 / (2 * beta)));
    case PREFERENCE_ORPO:
        return sign * beta / (1 + exp(preference_log_odds(chosen) - preference_log_odds(rejected))) /
               expm1(preference_below_one(of ? rejected : chosen));
    default: return sign * (rule.smoothing * beta - beta / (1 + exp(beta * margin - rule.gamma)));
    }
}

/* How far an example of KTO is on its side of the baseline; of: 0 desirable, 1 undesirable. */
DEVICE_CALL double preference_beyond(preference_rule rule, double score, int of)
{
    return (of ? -1 : 1) * (double)rule.beta * (score - (double)rule.baseline);
}

DEVICE_CALL double preference_utility_loss(preference_rule rule, double score, int of)
{
    return (double)(of ? rule.undesirable : rule.desirable) / (1 + exp(preference_beyond(rule, score, of)));
}

DEVICE_CALL double preference_utility_slope(preference_rule rule, double score, int of)
{
    const double e = exp(-fabs(preference_beyond(rule, score, of)));
    return (of ? (double)rule.undesirable : -(double)rule.desirable) * (double)rule.beta * e / ((1 + e) * (1 + e));
}

/* The loss of the pair that is complete, without its rows' own. */
DEVICE_CALL double preference_pair_loss(const preference_pairs *p)
{
    double sum = 0;
    if (p->rule.kind != PREFERENCE_KTO)
        return preference_loss(p->rule, preference_score(p, 0), preference_score(p, 1), p->own);
    for (int i = 0; i < 2; i++)
        sum += p->example[i].n > 0 ? preference_utility_loss(p->rule, preference_score(p, i), i) : 0;
    return sum;
}

DEVICE_CALL double preference_pair_slope(const preference_pairs *p, int of)
{
    return p->rule.kind == PREFERENCE_KTO ? preference_utility_slope(p->rule, preference_score(p, of), of)
                                          : preference_slope(p->rule, preference_score(p, 0), preference_score(p, 1), p->own, of);
}

DEVICE_CALL void preference_close(preference_pairs *p)
{
    for (int i = 0; p->weights && i < p->begun; i++) {
        const preference_example *x = &p->example[i];
        const double slope = p->begun == 2 ? preference_pair_slope(p, i) : 0;
        p->weights[x->first] = (float)(preference_is_mean(p->rule.kind) && x->n > 0 ? -slope / (double)x->n : -slope);
    }
    p->own = 0;
    p->begun = 0;
}

/* An example begins after a complete pair, which must be closed first. */
DEVICE_CALL bool preference_is_whole(const preference_pairs *p, bool begins) { return begins && p->begun == 2; }

DEVICE_CALL double preference_given(preference_rule rule, float given) { return rule.cut > 0 ? fabs((double)given) : (double)given; }

/* The weight of a row among those of its example. */
DEVICE_CALL double preference_tail(preference_rule rule, float given)
{
    return rule.cut > 0 && signbit(given) ? 1 - (double)rule.cut : 1;
}

DEVICE_CALL void preference_row(preference_pairs *p, int64_t r, bool begins, bool target, float loss, float given)
{
    const bool own = p->rule.kind == PREFERENCE_ORPO, reward = p->rule.kind == PREFERENCE_REWARD;
    if (begins) {
        preference_example *x = &p->example[p->begun++];
        x->sum = 0;
        x->first = r;
        x->n = 0;
    }
    if (!target || p->begun == 0)
        return;
    if (own)
        p->own += fabs((double)given) * (double)loss;
    if (reward)
        p->own += (double)given;
    if (own && given < 0)
        return;
    const double above = own || reward ? 0 : preference_given(p->rule, given);
    p->example[p->begun - 1].sum += preference_tail(p->rule, given) * (above - (double)loss);
    p->example[p->begun - 1].n++;
}

/* The weight of a row, from that of its example. */
DEVICE_CALL float preference_row_weight(preference_rule rule, float weight, float given)
{
    if (rule.kind != PREFERENCE_ORPO)
        return (float)preference_tail(rule, given) * weight;
    return given < 0 ? -given : weight + given;
}

#endif
