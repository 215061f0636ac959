/* vec.h - vectors of floats of the width of the instruction set that a kernel is compiled for.
 *
 * VEC_LANES is 4 (v2, NEON), 8 (v3) or 16 (v4). Arithmetic uses the operators of GCC's vector types. Every function here rounds as IEEE 754
 * requires, v2's fma included, so a kernel has the same bits at every width if no sum depends on the width. Sums over a row therefore
 * always have SUM_LANES partial sums, in as many vectors as that takes, and the same tree at the end:
 *
 *     element   0 ........ 31 | 32 ....... 63 | ...      lane = index mod 32
 *               + + + + + + +
 *     tree      lane l += lane l + 16, then + 8, + 4, + 2, + 1
 *
 * The last elements of a row, fewer than a vector, use `lanes`: load() sets the missing lanes to zero, store() does not write them, and
 * first_lanes() masks them.
 *
 * load() and store() have the element type as first argument. A kernel is an INLINE function of the type, called with a constant type, so
 * that no test remains at run time.
 *
 * Large outputs that are not read soon are written past the caches, with streaming (non-temporal) stores: functions and parameters named
 * `past`. On ARM64 they are ordinary stores.
 */
#ifndef PT_VEC_H
#define PT_VEC_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

#if defined __AVX512F__
#define VEC_LANES 16
#elif defined __AVX2__
#define VEC_LANES 8
#else
#define VEC_LANES 4
#endif

enum { SUM_LANES = 32, SUM_VECS = SUM_LANES / VEC_LANES };

typedef float vf __attribute__((vector_size(VEC_LANES * 4)));
typedef int32_t vi __attribute__((vector_size(VEC_LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(VEC_LANES * 4)));
typedef double vd __attribute__((vector_size(VEC_LANES * 4))); /* half as many lanes */
typedef float vf_at __attribute__((vector_size(VEC_LANES * 4), aligned(4), may_alias));
typedef uint32_t vu_at __attribute__((vector_size(VEC_LANES * 4), aligned(2), may_alias)); /* of pairs of bf16 */
/* Results may replace inputs of another type, so elements are accessed through types that may alias. */
typedef float f32_at __attribute__((may_alias));
typedef uint16_t u16_at __attribute__((may_alias));

#if VEC_LANES == 16
#define VEC_INDEX {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif VEC_LANES == 8
#define VEC_INDEX {0, 1, 2, 3, 4, 5, 6, 7}
#else
#define VEC_INDEX {0, 1, 2, 3}
#endif

static INLINE vf vec_set(float x)
{
    return x - (vf){0}; /* x - 0 is x for every x, -0 and NaN included */
}

/* All bits set in the first `lanes` lanes. */
static INLINE vi first_lanes(int64_t lanes)
{
    return (vi)VEC_INDEX < (int32_t)lanes;
}

static INLINE vf vec_keep(vi mask, vf x)
{
    return (vf)(mask & (vi)x);
}

/* mask ? a : b */
static INLINE vf vec_select(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

static INLINE vf vec_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

#if VEC_LANES == 16

static INLINE vf vec_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static INLINE vf vec_fms(vf a, vf b, vf c) { return (vf)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)c); }
static INLINE vf vec_sqrt(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
static INLINE vf vec_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
static INLINE vf vec_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
static INLINE vu u16_load(const uint16_t *p)
{
    return (vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
static INLINE void u16_store(uint16_t *p, vu x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)x));
}
/* x * x + sum for an x that was a float: its square is exact, so fma has the same rounding as mul and add. */
static INLINE vd vec_add_square(vd x, vd sum) { return (vd)_mm512_fmadd_pd((__m512d)x, (__m512d)x, (__m512d)sum); }
static INLINE vd vec_low_double(vf x) { return (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x)); }
static INLINE vd vec_high_double(vf x)
{
    return (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
}

#elif VEC_LANES == 8

static INLINE vf vec_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static INLINE vf vec_fms(vf a, vf b, vf c) { return (vf)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)c); }
static INLINE vf vec_sqrt(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
static INLINE vf vec_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
static INLINE vf vec_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
static INLINE vu u16_load(const uint16_t *p)
{
    return (vu)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}
static INLINE void u16_store(uint16_t *p, vu x) /* every lane below 65536 */
{
    __m256i packed = _mm256_packus_epi32((__m256i)x, (__m256i)x);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
static INLINE vd vec_add_square(vd x, vd sum) { return (vd)_mm256_fmadd_pd((__m256d)x, (__m256d)x, (__m256d)sum); }
static INLINE vd vec_low_double(vf x) { return (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)); }
static INLINE vd vec_high_double(vf x) { return (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1)); }

#elif defined(__aarch64__)

static INLINE vf vec_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
static INLINE vf vec_fms(vf a, vf b, vf c) { return vec_fma(a, b, -c); }
static INLINE vf vec_sqrt(vf x) { return (vf)vsqrtq_f32((float32x4_t)x); }
/* b if either is NaN, as on x86-64 */
static INLINE vf vec_min(vf a, vf b) { return vec_select(a < b, a, b); }
static INLINE vf vec_max(vf a, vf b) { return vec_select(a > b, a, b); }
static INLINE vu u16_load(const uint16_t *p) { return (vu)vmovl_u16(vld1_u16(p)); }
static INLINE void u16_store(uint16_t *p, vu x) { vst1_u16(p, vmovn_u32((uint32x4_t)x)); }
static INLINE vd vec_add_square(vd x, vd sum) { return (vd)vfmaq_f64((float64x2_t)sum, (float64x2_t)x, (float64x2_t)x); }
static INLINE vd vec_low_double(vf x) { return (vd)vcvt_f64_f32(vget_low_f32((float32x4_t)x)); }
static INLINE vd vec_high_double(vf x) { return (vd)vcvt_high_f64_f32((float32x4_t)x); }

#else

static INLINE vf vec_sqrt(vf x) { return (vf)_mm_sqrt_ps((__m128)x); }
static INLINE vf vec_min(vf a, vf b) { return (vf)_mm_min_ps((__m128)a, (__m128)b); }
static INLINE vf vec_max(vf a, vf b) { return (vf)_mm_max_ps((__m128)a, (__m128)b); }
static INLINE vu u16_load(const uint16_t *p)
{
    return (vu)_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p));
}
static INLINE void u16_store(uint16_t *p, vu x) /* every lane below 65536 */
{
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi32((__m128i)x, (__m128i)x));
}
static INLINE vd vec_add_square(vd x, vd sum) { return x * x + sum; }
static INLINE vd vec_low_double(vf x) { return (vd)_mm_cvtps_pd((__m128)x); }
static INLINE vd vec_high_double(vf x) { return (vd)_mm_cvtps_pd(_mm_movehl_ps((__m128)x, (__m128)x)); }

/* a * b is exact in fp64. The sum with c is rounded to odd in fp64 (if it is inexact, the last bit becomes 1), so that rounding it again,
 * to fp32, gives the correctly rounded result. */
static INLINE vd fma_double(vd a, vd b, vd c)
{
    typedef int64_t vl __attribute__((vector_size(16)));
    vd product = a * b, sum = product + c, part = sum - product;
    vd lost = (product - (sum - part)) + (c - part);
    vl inexact = (lost < 0) | (lost > 0); /* false if the sum is not finite */
    vl even = ((vl)sum & 1) - 1;
    vl towards = (((vl)sum ^ (vl)lost) >> 63) | 1; /* the magnitude is too large: -1 */
    return (vd)((vl)sum + (towards & inexact & even));
}
static INLINE vf vec_fma(vf a, vf b, vf c)
{
    vd low = fma_double(vec_low_double(a), vec_low_double(b), vec_low_double(c));
    vd high = fma_double(vec_high_double(a), vec_high_double(b), vec_high_double(c));
    return (vf)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)low), _mm_cvtpd_ps((__m128d)high));
}
static INLINE vf vec_fms(vf a, vf b, vf c) { return vec_fma(a, b, -c); } /* a * b - c */

#endif

/* ---- loads and stores ---- */

/* The nearest bf16, ties to even, in the upper half of each lane; the lower half is undefined. For numbers and for quiet NaN with a lower
 * half of 0: arithmetic on bf16 gives no other NaN. */
static INLINE vu bf16_upper_tame(vf x)
{
    vu u = (vu)x, rounded = u + 0x7fffu;
#if VEC_LANES == 16
    return (vu)_mm512_mask_add_epi32((__m512i)rounded, _mm512_test_epi32_mask((__m512i)u, _mm512_set1_epi32(0x10000)),
                                     (__m512i)rounded, _mm512_set1_epi32(1));
#else
    return rounded + ((u >> 16) & 1);
#endif
}

/* The same for any x; NaN becomes a quiet NaN. */
static INLINE vu bf16_upper(vf x)
{
    vu rounded = bf16_upper_tame(x);
#if VEC_LANES == 16
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (vu)_mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)x, _mm512_set1_epi32(0x400000));
#else
    return (vu)vec_select(x != x, (vf)((vu)x | 0x400000u), (vf)rounded);
#endif
}

/* x with every NaN as bf16_upper_tame() needs it. Rounded to bf16, results from it are the same. */
static INLINE vf vec_tame(vf x)
{
    return vec_select(x != x, (vf)(((vu)x | 0x400000u) & 0xffff0000u), x);
}

/* The same in the lower half; the upper half is 0. */
static INLINE vu bf16_round(vf x) { return bf16_upper(x) >> 16; }

/* x rounded to this type. */
static INLINE vf vec_round(pt_dtype type, vf x)
{
    return type == PT_BF16 ? (vf)(bf16_upper(x) & 0xffff0000u) : x;
}

static INLINE vu u16_load_lanes(const uint16_t *p, int64_t lanes)
{
    if (lanes >= VEC_LANES)
        return u16_load(p);
    uint16_t part[VEC_LANES] = {0};
    for (int64_t i = 0; i < lanes; i++)
        part[i] = ((const u16_at *)p)[i];
    return u16_load(part);
}

static INLINE void u16_store_lanes(uint16_t *p, vu x, int64_t lanes)
{
    if (lanes >= VEC_LANES) {
        u16_store(p, x);
        return;
    }
    uint16_t part[VEC_LANES];
    u16_store(part, x);
    for (int64_t i = 0; i < lanes; i++)
        ((u16_at *)p)[i] = part[i];
}

static INLINE vf f32_load(const float *p, int64_t lanes)
{
    if (lanes >= VEC_LANES)
        return *(const vf_at *)p;
    vf part = {0};
    for (int64_t i = 0; i < lanes; i++)
        part[i] = ((const f32_at *)p)[i];
    return part;
}

static INLINE void f32_store(float *p, vf x, int64_t lanes)
{
    if (lanes >= VEC_LANES) {
        *(vf_at *)p = x;
        return;
    }
    for (int64_t i = 0; i < lanes; i++)
        ((f32_at *)p)[i] = x[i];
}

/* Loads elements i .. i + lanes of an array of this type; lanes <= VEC_LANES, the others are zero. */
static INLINE vf load(pt_dtype type, const void *base, int64_t i, int64_t lanes)
{
    if (type == PT_BF16)
        return (vf)(u16_load_lanes((const uint16_t *)base + i, lanes) << 16);
    return f32_load((const float *)base + i, lanes);
}

static INLINE void store(pt_dtype type, void *base, int64_t i, vf x, int64_t lanes)
{
    if (type == PT_BF16)
        u16_store_lanes((uint16_t *)base + i, bf16_round(x), lanes);
    else
        f32_store((float *)base + i, x, lanes);
}

/* Loads 2 * VEC_LANES elements from i on for elementwise work, in the cheapest order: for bf16 the even ones, then the odd ones. */
static INLINE void load_pair(pt_dtype type, const void *base, int64_t i, vf out[2])
{
    if (type == PT_BF16) {
        vu both = *(const vu_at *)((const uint16_t *)base + i);
        out[0] = (vf)(both << 16), out[1] = (vf)(both & 0xffff0000u);
        return;
    }
    out[0] = f32_load((const float *)base + i, VEC_LANES);
    out[1] = f32_load((const float *)base + i + VEC_LANES, VEC_LANES);
}

/* A streaming store. p must be aligned to a vector: check with past_fits(), on addresses and strides in bytes combined by |. Call
 * past_end() before other threads may read. */
static INLINE void vec_store_past(void *p, vu x)
{
#if VEC_LANES == 16
    _mm512_stream_si512(p, (__m512i)x);
#elif VEC_LANES == 8
    _mm256_stream_si256(p, (__m256i)x);
#elif defined(__aarch64__)
    *(vu_at *)p = x;
#else
    _mm_stream_si128(p, (__m128i)x);
#endif
}

static INLINE bool past_fits(uintptr_t at) { return at % sizeof(vf) == 0; }
static INLINE void past_end(void)
{
#if !defined(__aarch64__)
    _mm_sfence();
#endif
}

static INLINE void vec_put(void *p, vu x, bool past)
{
    if (past)
        vec_store_past(p, x);
    else
        *(vu_at *)p = x;
}

/* Stores two vectors of upper halves that are in the order of load_pair(). */
static INLINE void upper_put_pair(uint16_t *p, vu even, vu odd, bool past)
{
    vec_put(p, (even >> 16) | (odd & 0xffff0000u), past);
}

/* Stores in the order of load_pair(). */
static INLINE void put_pair(pt_dtype type, void *base, int64_t i, const vf x[2], bool past)
{
    if (type == PT_BF16) {
        upper_put_pair((uint16_t *)base + i, bf16_upper(x[0]), bf16_upper(x[1]), past);
        return;
    }
    vec_put((float *)base + i, (vu)x[0], past);
    vec_put((float *)base + i + VEC_LANES, (vu)x[1], past);
}

/* The same for an x that bf16_upper_tame() accepts. */
static INLINE void put_pair_tame(pt_dtype type, void *base, int64_t i, const vf x[2], bool past)
{
    if (type == PT_BF16)
        upper_put_pair((uint16_t *)base + i, bf16_upper_tame(x[0]), bf16_upper_tame(x[1]), past);
    else
        put_pair(type, base, i, x, past);
}

static INLINE void store_pair(pt_dtype type, void *base, int64_t i, const vf x[2]) { put_pair(type, base, i, x, false); }
static INLINE void store_pair_tame(pt_dtype type, void *base, int64_t i, const vf x[2]) { put_pair_tame(type, base, i, x, false); }

/* Two vectors of floats to the order of load_pair() for bf16, and back. */
static INLINE void order_split(vf x[2])
{
    const vi even = 2 * (vi)VEC_INDEX;
    vf first = x[0];
    x[0] = __builtin_shuffle(first, x[1], even);
    x[1] = __builtin_shuffle(first, x[1], even + 1);
}

static INLINE void order_join(vf x[2])
{
    const vi lane = VEC_INDEX, low = (lane >> 1) + (lane & 1) * VEC_LANES;
    vf even = x[0];
    x[0] = __builtin_shuffle(even, x[1], low);
    x[1] = __builtin_shuffle(even, x[1], low + VEC_LANES / 2);
}

/* ---- two vectors of upper halves, in natural order ---- */

static INLINE void upper_store_two(uint16_t *p, vu first, vu second)
{
#if !defined(__aarch64__)
    first >>= 16, second >>= 16;
#endif
#if VEC_LANES == 16
    __m512i lanes = _mm512_packus_epi32((__m512i)first, (__m512i)second);
    *(vu_at *)p = (vu)_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), lanes);
#elif VEC_LANES == 8
    *(vu_at *)p = (vu)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)first, (__m256i)second), 0xd8);
#elif defined(__aarch64__)
    *(vu_at *)p = (vu)vuzp2q_u16((uint16x8_t)first, (uint16x8_t)second);
#else
    *(vu_at *)p = (vu)_mm_packus_epi32((__m128i)first, (__m128i)second);
#endif
}

static INLINE const void *at(pt_dtype type, const void *base, int64_t i)
{
    return (const char *)base + i * (type == PT_BF16 ? 2 : 4);
}

static INLINE void *at_mutable(pt_dtype type, void *base, int64_t i)
{
    return (char *)base + i * (type == PT_BF16 ? 2 : 4);
}

/* ---- sums over a row ---- */

typedef struct sums { vf part[SUM_VECS]; } sums;

/* Combines lanes l and l + width, for width = VEC_LANES / 2 down to 1. */
#define FOLD_LANES(x, combine)                                     \
    do {                                                           \
        vi index_ = VEC_INDEX;                                     \
        for (int width_ = VEC_LANES / 2; width_; width_ /= 2)      \
            (x) = combine((x), __builtin_shuffle((x), index_ + width_)); \
    } while (0)

static INLINE vf vec_add(vf a, vf b) { return a + b; }

static INLINE float sums_total(sums s)
{
#pragma GCC unroll 8
    for (int half = SUM_VECS / 2; half; half /= 2)
#pragma GCC unroll 8
        for (int j = 0; j < half; j++)
            s.part[j] += s.part[j + half];
    vf x = s.part[0];
    FOLD_LANES(x, vec_add);
    return x[0];
}

/* Reorders sums that were added in the order of load_pair() for bf16 to natural order. */
static INLINE void sums_join(sums *s)
{
#pragma GCC unroll 8
    for (int j = 0; j < SUM_VECS; j += 2)
        order_join(&s->part[j]);
}

static INLINE float vec_largest(vf x)
{
    FOLD_LANES(x, vec_max);
    return x[0];
}

/* The sum of term(ctx, i, lanes) over i = 0 .. n; lanes of a term past `lanes` must be zero. */
typedef vf (*sum_term)(const void *ctx, int64_t i, int64_t lanes);

static INLINE float row_sum(sum_term term, const void *ctx, int64_t n)
{
    sums s = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
#pragma GCC unroll 8
        for (int j = 0; j < SUM_VECS; j++)
            s.part[j] += term(ctx, i + j * VEC_LANES, VEC_LANES);
#pragma GCC unroll 8
    for (int j = 0; j < SUM_VECS; j++) {
        int64_t left = n - i - j * VEC_LANES;
        if (left > 0)
            s.part[j] += term(ctx, i + j * VEC_LANES, left < VEC_LANES ? left : VEC_LANES);
    }
    return sums_total(s);
}

#endif
