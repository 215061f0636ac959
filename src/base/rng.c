#include "base/rng.h"

#include <math.h>

static inline void philox(uint32_t key0, uint32_t key1, uint32_t c[4])
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next0 = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        uint32_t next2 = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        c[0] = next0;
        c[2] = next2;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

void rng_words(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, purpose};
    philox((uint32_t)seed, (uint32_t)(seed >> 32), c);
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

/* ---- many at once ----
 *
 * They are integers, so that vectors of any width have the same bits. */

static inline __attribute__((always_inline)) void words_run(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t first, int n,
                                                            uint32_t *restrict w0, uint32_t *restrict w1, uint32_t *restrict w2,
                                                            uint32_t *restrict w3)
{
    for (int i = 0; i < n; i++) {
        const uint64_t index = first + (uint64_t)i;
        uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, purpose};
        philox((uint32_t)seed, (uint32_t)(seed >> 32), c);
        w0[i] = c[0];
        w1[i] = c[1];
        w2[i] = c[2];
        w3[i] = c[3];
    }
}

static inline __attribute__((always_inline)) void words_at(uint64_t seed, uint32_t purpose, uint32_t stream, const uint64_t *restrict index,
                                                           int n, uint32_t *restrict w0, uint32_t *restrict w1, uint32_t *restrict w2,
                                                           uint32_t *restrict w3)
{
    for (int i = 0; i < n; i++) {
        uint32_t c[4] = {(uint32_t)index[i], (uint32_t)(index[i] >> 32), stream, purpose};
        philox((uint32_t)seed, (uint32_t)(seed >> 32), c);
        w0[i] = c[0];
        w1[i] = c[1];
        w2[i] = c[2];
        w3[i] = c[3];
    }
}

__attribute__((target("avx2"))) static void words_run_avx2(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t first, int n,
                                                           uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3)
{
    words_run(seed, purpose, stream, first, n, w0, w1, w2, w3);
}

__attribute__((target("avx2"))) static void words_at_avx2(uint64_t seed, uint32_t purpose, uint32_t stream, const uint64_t *index, int n,
                                                          uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3)
{
    words_at(seed, purpose, stream, index, n, w0, w1, w2, w3);
}

void rng_words_run(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t first, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2,
                   uint32_t *w3)
{
    if (__builtin_cpu_supports("avx2"))
        words_run_avx2(seed, purpose, stream, first, n, w0, w1, w2, w3);
    else
        words_run(seed, purpose, stream, first, n, w0, w1, w2, w3);
}

void rng_words_at(uint64_t seed, uint32_t purpose, uint32_t stream, const uint64_t *index, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2,
                  uint32_t *w3)
{
    if (__builtin_cpu_supports("avx2"))
        words_at_avx2(seed, purpose, stream, index, n, w0, w1, w2, w3);
    else
        words_at(seed, purpose, stream, index, n, w0, w1, w2, w3);
}

double rng_uniform(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t index)
{
    uint32_t w[4];
    rng_words(seed, purpose, stream, index, w);
    return (double)((uint64_t)(w[0] >> 5) << 26 | w[1] >> 6) * 0x1p-53;
}

double rng_normal(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t index)
{
    uint32_t w[4];
    rng_words(seed, purpose, stream, index, w);
    double u = ((double)((uint64_t)(w[0] >> 5) << 26 | w[1] >> 6) + 0.5) * 0x1p-53;
    double v = (double)((uint64_t)(w[2] >> 5) << 26 | w[3] >> 6) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}
