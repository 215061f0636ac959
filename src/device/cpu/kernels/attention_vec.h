/* attention_vec.h - vectors of fp32 for the attention kernels: 16, 8 or 4 lanes.
 *
 * The three sections differ in width and intrinsics, not in what they compute. With fma (v3 and v4) every lane has the same roundings, so
 * that these two copies of a kernel have the same bits. The last section has no intrinsics but NEON's; only NEON's copy has fma, and so the
 * bits of v3.
 */
#ifndef PT_ATTENTION_VEC_H
#define PT_ATTENTION_VEC_H

#include "device/cpu/kernels/tanh.h"

#include <stdint.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
enum { VEC = 16 };
#elif defined(__AVX2__)
enum { VEC = 8 };
#else
enum { VEC = 4 };
#endif

typedef float vec __attribute__((vector_size(4 * VEC)));
typedef int32_t ivec __attribute__((vector_size(4 * VEC)));
typedef float vec_memory __attribute__((vector_size(4 * VEC), aligned(4), may_alias));
typedef int32_t ivec_memory __attribute__((vector_size(4 * VEC), aligned(4), may_alias));

static inline vec vec_load(const float *p) { return *(const vec_memory *)p; }
static inline void vec_store(float *p, vec x) { *(vec_memory *)p = x; }
static inline ivec ivec_load(const int32_t *p) { return *(const ivec_memory *)p; }
static inline ivec ivec_all(int32_t x) { return x - (ivec){0}; }

#if defined(__AVX512F__)

static inline vec vec_all(float x) { return (vec)_mm512_set1_ps(x); }
/* VEC bf16 values, widened */
static inline vec vec_load_bf16(const uint16_t *p)
{
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
}
static inline vec vec_fma(vec a, vec b, vec c) { return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
/* max and min return b if either is NaN */
static inline vec vec_max(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
static inline vec vec_min(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }
/* x, but 0 in lanes with limit > test (not if test is NaN) */
static inline vec vec_zero_below(vec x, vec test, float limit)
{
    return (vec)_mm512_maskz_mov_ps(
        _mm512_cmp_ps_mask((__m512)test, _mm512_set1_ps(limit), _CMP_NLT_UQ), (__m512)x);
}
/* x where lo <= i <= hi, else `other` */
static inline vec vec_in_range(vec x, ivec i, ivec lo, ivec hi, vec other)
{
    __mmask16 in = _mm512_cmp_epi32_mask((__m512i)lo, (__m512i)i, _MM_CMPINT_LE);
    in = _mm512_mask_cmp_epi32_mask(in, (__m512i)i, (__m512i)hi, _MM_CMPINT_LE);
    return (vec)_mm512_mask_mov_ps((__m512)other, in, (__m512)x);
}

#elif defined(__AVX2__)

static inline vec vec_all(float x) { return (vec)_mm256_set1_ps(x); }
static inline vec vec_load_bf16(const uint16_t *p)
{
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
}
static inline vec vec_fma(vec a, vec b, vec c) { return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline vec vec_max(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vec vec_min(vec a, vec b) { return (vec)_mm256_min_ps((__m256)a, (__m256)b); }
static inline vec vec_zero_below(vec x, vec test, float limit)
{
    __m256 keep = _mm256_cmp_ps((__m256)test, _mm256_set1_ps(limit), _CMP_NLT_UQ);
    return (vec)_mm256_and_ps(keep, (__m256)x);
}
static inline vec vec_in_range(vec x, ivec i, ivec lo, ivec hi, vec other)
{
    __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32((__m256i)lo, (__m256i)i),
                                  _mm256_cmpgt_epi32((__m256i)i, (__m256i)hi));
    return (vec)_mm256_blendv_ps((__m256)x, (__m256)other, (__m256)out);
}

#else

static inline vec vec_select(ivec mask, vec a, vec b)
{
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}
static inline vec vec_all(float x) { return x - (vec){0}; }
#if defined(__aarch64__)
static inline vec vec_load_bf16(const uint16_t *p) { return (vec)vshll_n_u16(vld1_u16(p), 16); }
static inline vec vec_fma(vec a, vec b, vec c) { return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#else
static inline vec vec_load_bf16(const uint16_t *p)
{
    ivec x = {p[0], p[1], p[2], p[3]};
    return (vec)(x << 16);
}
static inline vec vec_fma(vec a, vec b, vec c) { return a * b + c; }
#endif
static inline vec vec_max(vec a, vec b) { return vec_select(a > b, a, b); }
static inline vec vec_min(vec a, vec b) { return vec_select(a < b, a, b); }
static inline vec vec_zero_below(vec x, vec test, float limit)
{
    return (vec)(~(ivec)(test < vec_all(limit)) & (ivec)x);
}
static inline vec vec_in_range(vec x, ivec i, ivec lo, ivec hi, vec other)
{
    return vec_select((lo <= i) & (i <= hi), x, other);
}

#endif

/* exp(x) within 2 ulp where the result is a normal number; 0 below -87.33 (so for -inf), infinity
 * above 88.37, NaN for NaN. x = n ln2 + r, |r| <= ln2 / 2; exp(r) = 1 + r + r^2 p(r) with p
 * minimax in relative error over that range (3e-9; found by iterated weighted least squares). */
static inline vec vec_exp(vec x)
{
    const float lowest = -87.33f, highest = 88.72f;
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer in the low bits */
    vec c = vec_min(vec_all(highest), vec_max(vec_all(lowest), x));
    vec biased = vec_fma(c, vec_all(0x1.715476p+0f), vec_all(rounder));
    vec n = biased - vec_all(rounder);
    vec r = vec_fma(n, vec_all(-0.693359375f), c); /* exact: ln2's first 9 bits */
    r = vec_fma(n, vec_all(2.12194440e-4f), r);
    vec p = vec_all(0x1.6a2412p-10f);
    p = vec_fma(p, r, vec_all(0x1.1239f6p-7f));
    p = vec_fma(p, r, vec_all(0x1.5558f2p-5f));
    p = vec_fma(p, r, vec_all(0x1.555492p-3f));
    p = vec_fma(p, r, vec_all(0x1.fffffcp-2f));
    p = vec_fma(p, r, vec_all(1.0f));
    p = vec_fma(p, r, vec_all(1.0f));
    vec power = (vec)(((ivec)biased << 23) + ivec_all(127 << 23)); /* 2^n */
    return vec_zero_below(p * power, x, lowest);
}

/* tanh.h; NaN for NaN. */
static inline vec vec_tanh(vec x)
{
    vec a = (vec)((ivec)x & 0x7fffffff), e = vec_exp(a * -2.0f), s = a * a, p = vec_all(tanh_terms[0]);
    for (int i = 1; i < 5; i++)
        p = vec_fma(p, s, vec_all(tanh_terms[i]));
    vec small = vec_fma(a * s, p, a), large = (1.0f - e) / (1.0f + e);
    ivec near = a < TANH_NEAR;
    return (vec)((near & (ivec)small) | (~near & (ivec)large) | ((ivec)x & INT32_MIN));
}

#if defined(__AVX512F__)

/* 2^x within 2 ulp where the result is a normal number; 0 below -126 (so for -inf), infinity from 128 on, NaN for NaN. x = n + r, |r| <=
 * 1/2; 2^r by a polynomial that is minimax in relative error over that range (2e-9; found by iterated weighted least squares). */
static inline vec vec_exp2(vec x)
{
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126), _CMP_NLT_UQ);
    __m512 n = _mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec r = x - (vec)n;
    vec p = vec_fma(vec_all(0x1.41fbbcp-13f), r, vec_all(0x1.5f3e54p-10f));
    p = vec_fma(p, r, vec_all(0x1.3b2d4cp-7f));
    p = vec_fma(p, r, vec_all(0x1.c6aee8p-5f));
    p = vec_fma(p, r, vec_all(0x1.ebfbdcp-3f));
    p = vec_fma(p, r, vec_all(0x1.62e430p-1f));
    p = vec_fma(p, r, vec_all(1.0f));
    return (vec)_mm512_maskz_scalef_ps(normal, (__m512)p, n);
}

#endif

#endif
