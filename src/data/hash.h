/* hash.h - a 128-bit streaming hash that identifies data. It is not cryptographic. */
#ifndef PT_DATA_HASH_H
#define PT_DATA_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct data_hash {
    uint64_t a, b;
} data_hash;

#define DATA_HASH_START ((data_hash){0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu})

static inline void hash_u64(data_hash *h, uint64_t x)
{
    uint64_t a = (h->a ^ x) * 0x9E3779B97F4A7C15u, b = (h->b + x) * 0xD6E8FEB86659FD93u;
    h->a = a << 29 | a >> 35;
    h->b = b << 31 | b >> 33;
}

static inline void hash_bytes(data_hash *h, const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        hash_u64(h, c[i]);
    hash_u64(h, n);
}

/* Mixes the state once more, so that every bit depends on the last values too. */
static inline data_hash hash_end(data_hash h)
{
    for (int i = 0; i < 4; i++) {
        uint64_t a = h.a;
        hash_u64(&h, h.b ^ h.b >> 31);
        h.b ^= a >> 32;
    }
    return h;
}

static inline void hash_hex(data_hash h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.a, (unsigned long long)h.b);
}

#endif
