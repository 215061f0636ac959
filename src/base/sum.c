#include "base/sum.h"

#include <string.h>

uint64_t sum_bytes(uint64_t a, uint64_t b, const void *bytes, size_t n)
{
    enum { LANES = 4 }; /* independent, for speed */
    uint64_t lane[LANES] = {a, b, 1, 2}, whole = 0;
    const char *at = bytes;
    for (size_t left = n, take; left; left -= take, at += take) {
        uint64_t words[LANES] = {0};
        take = left < sizeof words ? left : sizeof words;
        memcpy(words, at, take);
        for (int l = 0; l < LANES; l++) {
            uint64_t x = (lane[l] ^ words[l]) * 0x9E3779B97F4A7C15u;
            lane[l] = x << 29 | x >> 35;
        }
    }
    for (int l = 0; l < LANES; l++) {
        whole = (whole ^ lane[l]) * 0xD6E8FEB86659FD93u;
        whole ^= whole >> 32;
    }
    return whole;
}
