#include "infer/sample.h"

#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool before(candidate a, candidate b) { return a.weight > b.weight || (a.weight == b.weight && a.id < b.id); }

static int compare(const void *a, const void *b)
{
    return before(*(const candidate *)a, *(const candidate *)b) ? -1 : 1;
}

static int most_probable(const float *logits, int32_t n, int32_t *id, pt_error *e)
{
    *id = 0;
    for (int32_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return pt_fail(e, PT_FAILED,
                           "the model's output is not a number: its weights are damaged, or too large for bf16 (try "
                           "`precision` fp32)");
        if (logits[i] > logits[*id])
            *id = i;
    }
    if (!isfinite(logits[*id]))
        return pt_fail(e, PT_FAILED,
                       "the model's output is infinite: its weights are damaged, or too large for bf16 (try `precision` fp32)");
    return 0;
}

/* Moves the k best of c[0 .. n) to the front, in any order. */
static void select_best(candidate *c, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        candidate pivot = c[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (before(c[i], pivot))
                i++;
            while (before(pivot, c[j]))
                j--;
            if (i <= j) {
                candidate t = c[i];
                c[i++] = c[j];
                c[j--] = t;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
}

static double total_weight(const candidate *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)c[i].weight;
    return sum;
}

/* Cuts c[0 .. n) to the fewest candidates whose probabilities reach top_p of `total`, best first. All candidates below the n-th part of the
 * rest have less than the rest together, so they are never among them and need not be sorted. */
static int64_t cut_tail(candidate *c, int64_t n, double top_p, double total)
{
    double least = (1 - top_p) * total / (double)n, sum = 0;
    int64_t kept = 0, end = 0;
    for (int64_t i = 0; i < n; i++)
        if ((double)c[i].weight >= least)
            c[kept++] = c[i];
    qsort(c, (size_t)kept, sizeof *c, compare);
    while (end < kept && (end == 0 || sum < top_p * total))
        sum += (double)c[end++].weight;
    return end;
}

void penalize(float *out, const float *logits, int32_t n, const uint32_t *ids, size_t ids_n, double penalty)
{
    const float by = (float)penalty;
    memcpy(out, logits, (size_t)n * sizeof *out);
    for (size_t i = 0; i < ids_n; i++)
        if (ids[i] < (uint32_t)n)
            out[ids[i]] = logits[ids[i]] < 0 ? logits[ids[i]] * by : logits[ids[i]] / by;
}

int sample(const sampler *s, const float *logits, int32_t n, uint64_t position, int32_t *id, pt_error *e)
{
    int failed = most_probable(logits, n, id, e);
    if (failed || s->temperature == 0)
        return failed;
    candidate *c = s->candidates;
    float best = logits[*id], colder = (float)(1 / s->temperature);
    int64_t left = n;
    for (int32_t i = 0; i < n; i++)
        c[i] = (candidate){expf((logits[i] - best) * colder), i};
    if (s->top_k && s->top_k < left) {
        select_best(c, left, s->top_k);
        left = s->top_k;
        qsort(c, (size_t)left, sizeof *c, compare);
    }
    double total = total_weight(c, left);
    if (s->top_p < 1) {
        left = cut_tail(c, left, s->top_p, total);
        total = total_weight(c, left);
    }
    double at = rng_uniform(s->seed, RNG_SAMPLE, 0, position) * total;
    int64_t i = 0;
    while (i < left - 1 && (at -= (double)c[i].weight) >= 0)
        i++;
    *id = c[i].id;
    return 0;
}
