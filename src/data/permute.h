/* permute.h - a pseudorandom permutation of n indices, computed without a list.
 *
 * A Feistel network is a bijection of [0, 4^k) for any round function; here that is Philox keyed by (seed, epoch). 4^k is the smallest
 * power of four that is at least n. An output of n or more is permuted again until it is below n (cycle walking). This gives a bijection of
 * [0, n), with at most four passes on average.
 */
#ifndef PT_DATA_PERMUTE_H
#define PT_DATA_PERMUTE_H

#include <stdint.h>

/* The image of index i < n in the permutation of (seed, epoch). n <= 2^62. */
uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n);

#endif
