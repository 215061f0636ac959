/* sample.h - samples a token from logits. */
#ifndef PT_SAMPLE_H
#define PT_SAMPLE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* weight: probability up to a common factor; the best has 1. */
typedef struct candidate { float weight; int32_t id; } candidate;

typedef struct sampler {
    double temperature;   /* 0: the most probable token */
    int64_t top_k;        /* sample from the k most probable ones; 0: from all */
    double top_p;         /* sample from the fewest with this total probability; 1: from all */
    uint64_t seed;
    candidate *candidates; /* scratch for the vocabulary */
} sampler;

/* What Transformers' repetition penalty leaves of the logits of ids that occurred: divided by it, or multiplied if negative. */
void penalize(float *out, const float *logits, int32_t n, const uint32_t *ids, size_t ids_n, double penalty);

/* The token at `position` of its sequence, from logits (n). Equal logits are ordered by id. Temperature first, then top-k, then top-p of
 * the rest. The result depends on the seed and the position, not on earlier calls. PT_FAILED if no logit is finite or one is NaN. */
int sample(const sampler *s, const float *logits, int32_t n, uint64_t position, int32_t *id, pt_error *e);

#endif
