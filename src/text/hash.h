/* hash.h - the hash functions of the tokenizer's tables: multiply and fold, as in wyhash. */
#ifndef PT_TEXT_HASH_H
#define PT_TEXT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd6e8feb86659fd93u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = n, word;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = hash_mix(h, word);
    }
    word = 0;
    if (n)
        memcpy(&word, s, n);
    return hash_mix(h, word);
}

#endif
