/* matmul_simd.h - vectors of the instruction set's width, and the factors that they multiply.
 *
 * A factor is the operand of one lane of a multiplication: a float or, in the copies for AVX512-BF16 and FEAT_BF16 (PT_PAIRS), two bf16
 * that are neighbours along k, whose products are both added to an fp32 sum. Those copies multiply only bf16. With PT_QUADS a factor is
 * four bf16, and BFMMLA multiplies two rows by two columns. It adds two pairs of products one after the other, as two BFDOT do, so that the
 * bits are the same.
 */
#ifndef PT_MATMUL_SIMD_H
#define PT_MATMUL_SIMD_H

#include "base/dtype.h"
#include "device/cpu/kernels/isa.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

/* A register tile is MR x NR = MR x 2 vectors; with one line of b it fills the registers. */
#if defined(__AVX512F__)
enum { VL = 16, MR = 12 };
#elif defined(__FMA__)
enum { VL = 8, MR = 6 };
#elif defined(__aarch64__)
enum { VL = 4, MR = 12 };
#else
enum { VL = 4, MR = 6 };
#endif
enum { NR = 2 * VL };

typedef float vec __attribute__((vector_size(4 * VL)));
typedef float vec_at __attribute__((vector_size(4 * VL), aligned(4), may_alias)); /* in memory */

#define INLINE static inline __attribute__((always_inline))

INLINE vec vec_fma(vec a, vec b, vec c) /* a * b + c; rounded once if the instruction exists */
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

INLINE vec vec_fma_all(float a, vec b, vec c) /* with a in each lane */
{
#if defined(__aarch64__)
    return (vec)vfmaq_n_f32((float32x4_t)c, (float32x4_t)b, a);
#else
    return vec_fma(a - (vec){0}, b, c);
#endif
}

#if defined(PT_QUADS)

enum { FACTOR_K = 4 }; /* elements along k in a factor */
typedef uint64_t factor; /* the first element in the lowest bits; 0 past the last */
typedef uint64_t factor_at __attribute__((aligned(2), may_alias)); /* in a matrix */

/* Blocks of two rows and two columns of a sum: s[i][0], s[i][1], s[i + 1][0], s[i + 1][1] are those of rows i and i + 1. Adds a factor of
 * each row, times factors of eight columns. */
INLINE void factor_fma_blocks(const factor_at *a, const factor *b, vec s[2][2])
{
    const bfloat16x8_t x = (bfloat16x8_t)*(const vec_at *)a;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        s[j / 2][j % 2] = (vec)vbfmmlaq_f32((float32x4_t)s[j / 2][j % 2], x, (bfloat16x8_t)*(const vec_at *)(b + 2 * j));
}

/* The blocks become rows: s[i] is the sums of row i. */
INLINE void blocks_to_rows(vec s[2][2])
{
    const float64x2_t a = (float64x2_t)s[0][0], b = (float64x2_t)s[0][1], c = (float64x2_t)s[1][0], d = (float64x2_t)s[1][1];
    s[0][0] = (vec)vzip1q_f64(a, b), s[0][1] = (vec)vzip1q_f64(c, d);
    s[1][0] = (vec)vzip2q_f64(a, b), s[1][1] = (vec)vzip2q_f64(c, d);
}

#elif defined(PT_PAIRS)

enum { FACTOR_K = 2 };
typedef uint32_t factor;
typedef uint32_t factor_at __attribute__((aligned(2), may_alias));

INLINE vec factor_fma(const factor_at *a, const factor *b, vec c) /* one factor of a with VL factors of b */
{
#if defined(__AVX512BF16__)
    return (vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32((int)*a), (__m512bh)_mm512_load_si512(b));
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return (vec)vbfdotq_f32((float32x4_t)c, (bfloat16x8_t)(*a - (uint32x4_t){0}), (bfloat16x8_t)vld1q_u32(b));
#else /* the same without the instruction, so that tests can run this code on any processor */
    typedef uint32_t pairs __attribute__((vector_size(4 * VL), may_alias));
    pairs x = *a - (pairs){0}, y = *(const pairs *)b;
    c = vec_fma((vec)(x & 0xffff0000u), (vec)(y & 0xffff0000u), c);
    return vec_fma((vec)(x << 16), (vec)(y << 16), c);
#endif
}

#else

enum { FACTOR_K = 1 };
typedef float factor;
typedef float factor_at __attribute__((may_alias));

INLINE vec factor_fma(const factor_at *a, const factor *b, vec c)
{
    return vec_fma_all(*a, *(const vec *)b, c);
}

#endif

#if defined(__aarch64__) && !defined(PT_QUADS)

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define LANE_FMA(sum, b, a, lane) ((vec)vbfdotq_laneq_f32((float32x4_t)(sum), (bfloat16x8_t)(b), (bfloat16x8_t)(a), lane))
#else
#define LANE_FMA(sum, b, a, lane) ((vec)vfmaq_laneq_f32((float32x4_t)(sum), (float32x4_t)(b), (float32x4_t)(a), lane))
#endif

/* s[i] += factor i of a with 2 VL factors of b */
INLINE void factor_fma_lanes(const factor_at *a, const factor *b, vec s[4][2])
{
    const vec x = *(const vec_at *)a, b0 = *(const vec_at *)b, b1 = *(const vec_at *)(b + VL);
    s[0][0] = LANE_FMA(s[0][0], b0, x, 0), s[0][1] = LANE_FMA(s[0][1], b1, x, 0);
    s[1][0] = LANE_FMA(s[1][0], b0, x, 1), s[1][1] = LANE_FMA(s[1][1], b1, x, 1);
    s[2][0] = LANE_FMA(s[2][0], b0, x, 2), s[2][1] = LANE_FMA(s[2][1], b1, x, 2);
    s[3][0] = LANE_FMA(s[3][0], b0, x, 3), s[3][1] = LANE_FMA(s[3][1], b1, x, 3);
}

#endif

/* Packing works on 8 x 8 blocks, whatever the width of the registers. */
typedef float f8 __attribute__((vector_size(32)));
typedef float f8_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef float f8_pairs_at __attribute__((vector_size(32), aligned(2), may_alias)); /* 16 bf16 */
typedef uint32_t u8 __attribute__((vector_size(32)));
typedef uint16_t h8 __attribute__((vector_size(16)));
typedef uint16_t h8_at __attribute__((vector_size(16), aligned(2), may_alias));
#if defined(__aarch64__)
typedef float q4 __attribute__((vector_size(16), may_alias)); /* half of eight */
#endif

INLINE void f8_load_f32(f8 *out, const float *p) { *out = *(const f8_at *)p; }
INLINE void u8_load(u8 *out, const bf16 *p) /* widened */
{
#if defined(__AVX2__)
    *out = (u8)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined(__aarch64__)
    const uint16x8_t x = vld1q_u16(p);
    ((q4 *)out)[0] = (q4)vmovl_u16(vget_low_u16(x)), ((q4 *)out)[1] = (q4)vmovl_high_u16(x);
#else
    *out = __builtin_convertvector(*(const h8_at *)p, u8);
#endif
}
INLINE void f8_load_bf16(f8 *out, const bf16 *p)
{
    u8 wide;
    u8_load(&wide, p);
    *out = (f8)(wide << 16);
}

/* r[i][j] = r[j][i] */
#if defined(__aarch64__)

INLINE void q4_transpose(q4 *const from[4], q4 *const to[4])
{
    const float32x4_t a = (float32x4_t)*from[0], b = (float32x4_t)*from[1], c = (float32x4_t)*from[2], d = (float32x4_t)*from[3];
    const float64x2_t ab = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), cd = vreinterpretq_f64_f32(vtrn1q_f32(c, d));
    const float64x2_t ab2 = vreinterpretq_f64_f32(vtrn2q_f32(a, b)), cd2 = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    *to[0] = (q4)vtrn1q_f64(ab, cd);
    *to[1] = (q4)vtrn1q_f64(ab2, cd2);
    *to[2] = (q4)vtrn2q_f64(ab, cd);
    *to[3] = (q4)vtrn2q_f64(ab2, cd2);
}
INLINE void f8_transpose(f8 r[8]) /* blocks of 4 x 4 */
{
    q4 *x = (q4 *)r, t[16];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            q4_transpose((q4 *[4]){x + 8 * i + j, x + 8 * i + 2 + j, x + 8 * i + 4 + j, x + 8 * i + 6 + j},
                         (q4 *[4]){t + 8 * j + i, t + 8 * j + 2 + i, t + 8 * j + 4 + i, t + 8 * j + 6 + i});
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = t[i];
}

#else

INLINE void f8_transpose(f8 r[8])
{
    typedef int32_t i8 __attribute__((vector_size(32)));
    const i8 low1 = {0, 8, 1, 9, 4, 12, 5, 13}, high1 = {2, 10, 3, 11, 6, 14, 7, 15};
    const i8 low2 = {0, 1, 8, 9, 4, 5, 12, 13}, high2 = {2, 3, 10, 11, 6, 7, 14, 15};
    const i8 low4 = {0, 1, 2, 3, 8, 9, 10, 11}, high4 = {4, 5, 6, 7, 12, 13, 14, 15};
    f8 s[8], t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        s[i] = __builtin_shuffle(r[i], r[i + 1], low1);
        s[i + 1] = __builtin_shuffle(r[i], r[i + 1], high1);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            t[i + 2 * j] = __builtin_shuffle(s[i + j], s[i + j + 2], low2);
            t[i + 2 * j + 1] = __builtin_shuffle(s[i + j], s[i + j + 2], high2);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = __builtin_shuffle(t[i], t[i + 4], low4);
        r[i + 4] = __builtin_shuffle(t[i], t[i + 4], high4);
    }
}

#endif

#endif
