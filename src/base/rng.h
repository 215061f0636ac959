/* rng.h - counter-based random numbers (Philox 4x32-10; Salmon et al., SC 2011).
 *
 * A number is a pure function of (seed, purpose, stream, counter): it is the same in every thread, under every plan, and after a resume.
 */
#ifndef PT_RNG_H
#define PT_RNG_H

#include <stdint.h>

enum rng_purpose {
    RNG_INIT = 1, RNG_SHUFFLE = 2, RNG_SAMPLE = 3, RNG_TEST = 4, RNG_SHARE = 5, RNG_POINTS = 6, RNG_DROPOUT = 7, RNG_PROJECT = 8,
    RNG_TURNS = 9
};

/* Four 32-bit words for the counter value (stream, index). */
void rng_words(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t index, uint32_t out[4]);

/* The same for n counter values from `first` on, vectorized: word k of value first + i is wk[i]. */
void rng_words_run(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t first, int n,
                   uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3);
/* The same for a list of counter values. */
void rng_words_at(uint64_t seed, uint32_t purpose, uint32_t stream, const uint64_t *index, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2,
                  uint32_t *w3);

/* Uniform in [0, 1) with 53 bits. */
double rng_uniform(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t index);

/* Standard normal (Box-Muller on one counter value). */
double rng_normal(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t index);

#endif
