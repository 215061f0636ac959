/* sample.h - from logits to a token. */
#ifndef PT_SAMPLE_H
#define PT_SAMPLE_H

#include "base/error.h"

/* weight: probability, but for a factor that all have in common; the best has 1. */
typedef struct candidate { float weight; int32_t id; } candidate;

typedef struct sampler {
    double temperature;   /* 0: the most probable token */
    int64_t top_k;        /* of the k most probable ones; 0: all */
    double top_p;         /* of the fewest that have this probability together; 1: all */
    uint64_t seed;
    candidate *candidates; /* room for the vocabulary */
} sampler;

/* The token at `position` of its sequence, from logits (n). Equal logits count in the order of their ids. Temperature
 * first, then top-k, then top-p of what is left. The draw depends on (seed, position) only. PT_FAILED where no logit
 * is finite or one is NaN. */
int sample(const sampler *s, const float *logits, int32_t n, uint64_t position, int32_t *id, pt_error *e);

#endif
