#include "data/permute.h"

#include "base/rng.h"

#include <assert.h>

enum { ROUNDS = 8 };

static uint64_t feistel(uint64_t seed, uint64_t epoch, unsigned half_bits, uint64_t x)
{
    uint64_t mask = (1ull << half_bits) - 1, left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t word[4];
        rng_words(seed ^ (epoch >> 32), RNG_SHUFFLE, (uint32_t)epoch, round << 32 | right, word);
        uint64_t next = left ^ (word[0] & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n)
{
    assert(i < n && n <= 1ull << 62);
    unsigned half_bits = 1;
    while (1ull << 2 * half_bits < n)
        half_bits++;
    do
        i = feistel(seed, epoch, half_bits, i);
    while (i >= n);
    return i;
}
