#include "base/rng.h"

#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

#if defined(__x86_64__)

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

/* Eight counter values in lanes of 64 bits, of which only the low halves count: that is what the multiplication takes. */
__attribute__((target("avx512f"))) static inline void eight_words(uint64_t seed, uint32_t purpose, uint32_t stream, __m512i index,
                                                                  uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3)
{
    const __m512i a = _mm512_set1_epi64(0xD2511F53), b = _mm512_set1_epi64(0xCD9E8D57);
    __m512i c0 = index, c1 = _mm512_srli_epi64(index, 32), c2 = _mm512_set1_epi64(stream), c3 = _mm512_set1_epi64(purpose);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        const __m512i x = _mm512_mul_epu32(a, c0), y = _mm512_mul_epu32(b, c2);
        c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(y, 32), c1, _mm512_set1_epi64(key0), 0x96); /* exclusive or of three */
        c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(x, 32), c3, _mm512_set1_epi64(key1), 0x96);
        c1 = y;
        c3 = x;
    }
    _mm256_storeu_si256((__m256i *)w0, _mm512_cvtepi64_epi32(c0));
    _mm256_storeu_si256((__m256i *)w1, _mm512_cvtepi64_epi32(c1));
    _mm256_storeu_si256((__m256i *)w2, _mm512_cvtepi64_epi32(c2));
    _mm256_storeu_si256((__m256i *)w3, _mm512_cvtepi64_epi32(c3));
}

__attribute__((target("avx512f"))) static void words_run_avx512(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t first, int n,
                                                                uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3)
{
    __m512i index = _mm512_add_epi64(_mm512_set1_epi64((long long)first), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    int i = 0;
    for (; i + 8 <= n; i += 8, index = _mm512_add_epi64(index, _mm512_set1_epi64(8)))
        eight_words(seed, purpose, stream, index, w0 + i, w1 + i, w2 + i, w3 + i);
    words_run(seed, purpose, stream, first + (uint64_t)i, n - i, w0 + i, w1 + i, w2 + i, w3 + i);
}

__attribute__((target("avx512f"))) static void words_at_avx512(uint64_t seed, uint32_t purpose, uint32_t stream, const uint64_t *index,
                                                               int n, uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        eight_words(seed, purpose, stream, _mm512_loadu_si512(index + i), w0 + i, w1 + i, w2 + i, w3 + i);
    words_at(seed, purpose, stream, index + i, n - i, w0 + i, w1 + i, w2 + i, w3 + i);
}

void rng_words_run(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t first, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2,
                   uint32_t *w3)
{
    if (__builtin_cpu_supports("avx512f"))
        words_run_avx512(seed, purpose, stream, first, n, w0, w1, w2, w3);
    else if (__builtin_cpu_supports("avx2"))
        words_run_avx2(seed, purpose, stream, first, n, w0, w1, w2, w3);
    else
        words_run(seed, purpose, stream, first, n, w0, w1, w2, w3);
}

void rng_words_at(uint64_t seed, uint32_t purpose, uint32_t stream, const uint64_t *index, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2,
                  uint32_t *w3)
{
    if (__builtin_cpu_supports("avx512f"))
        words_at_avx512(seed, purpose, stream, index, n, w0, w1, w2, w3);
    else if (__builtin_cpu_supports("avx2"))
        words_at_avx2(seed, purpose, stream, index, n, w0, w1, w2, w3);
    else
        words_at(seed, purpose, stream, index, n, w0, w1, w2, w3);
}

#else

void rng_words_run(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t first, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2,
                   uint32_t *w3)
{
    words_run(seed, purpose, stream, first, n, w0, w1, w2, w3);
}

void rng_words_at(uint64_t seed, uint32_t purpose, uint32_t stream, const uint64_t *index, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2,
                  uint32_t *w3)
{
    words_at(seed, purpose, stream, index, n, w0, w1, w2, w3);
}

#endif

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
