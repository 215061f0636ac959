#include "base/sum.h"

#include <string.h>

enum { LANES = 4 }; /* independent, for speed */

static inline void add(uint64_t lane[LANES], const uint64_t words[LANES])
{
    for (int l = 0; l < LANES; l++) {
        uint64_t x = (lane[l] ^ words[l]) * 0x9E3779B97F4A7C15u;
        lane[l] = x << 29 | x >> 35;
    }
}

uint64_t sum_bytes(uint64_t a, uint64_t b, const void *bytes, size_t n)
{
    uint64_t lane[LANES] = {a, b, 1, 2}, words[LANES], whole = 0;
    const char *at = bytes;
    for (; n >= sizeof words; n -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words); /* of a constant size: no call */
        add(lane, words);
    }
    if (n) {
        memset(words, 0, sizeof words);
        memcpy(words, at, n);
        add(lane, words);
    }
    for (int l = 0; l < LANES; l++) {
        whole = (whole ^ lane[l]) * 0xD6E8FEB86659FD93u;
        whole ^= whole >> 32;
    }
    return whole;
}
