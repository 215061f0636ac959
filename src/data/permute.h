/* permute.h - a shuffled order of n things without a list of them.
 *
 * A Feistel network is a bijection of [0, 4^k) whatever its round function is; here that is
 * Philox keyed by (seed, epoch). 4^k is the smallest power of four that is not below n, and an
 * output that is not below n is sent through again until it is (cycle walking): what is left is a
 * bijection of [0, n), with at most four passes on average.
 */
#ifndef PT_DATA_PERMUTE_H
#define PT_DATA_PERMUTE_H

#include <stdint.h>

/* Where index i < n goes in the order of this (seed, epoch). n <= 2^62. */
uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n);

#endif
