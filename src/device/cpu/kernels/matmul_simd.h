/* matmul_simd.h - vectors of the instruction set's width, and the factors that they multiply.
 *
 * A factor is the operand of one lane of a multiplication: a float or, in the copy for AVX512-BF16 (PT_PAIRS), two bf16 that are neighbours
 * along k, whose products are both added to an fp32 sum. That copy multiplies only bf16.
 */
#ifndef PT_MATMUL_SIMD_H
#define PT_MATMUL_SIMD_H

#include "base/dtype.h"
#include "device/cpu/kernels/isa.h"

#include <immintrin.h>

/* A register tile is MR x NR = MR x 2 vectors; with one line of b it fills the registers. */
#if defined(__AVX512F__)
enum { VL = 16, MR = 12 };
#elif defined(__FMA__)
enum { VL = 8, MR = 6 };
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
#else
    return a * b + c;
#endif
}

#ifdef PT_PAIRS

enum { FACTOR_K = 2 }; /* elements along k in a factor */
typedef uint32_t factor; /* the first element in the lower half; 0 past the last */
typedef uint32_t factor_at __attribute__((aligned(2), may_alias)); /* in a matrix */

INLINE vec factor_fma(const factor_at *a, const factor *b, vec c) /* one factor of a with VL factors of b */
{
#if defined(__AVX512BF16__)
    return (vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32((int)*a), (__m512bh)_mm512_load_si512(b));
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
    return vec_fma(*a - (vec){0}, *(const vec *)b, c);
}

#endif

/* Packing works on 8 x 8 blocks, whatever the width of the registers. */
typedef float f8 __attribute__((vector_size(32)));
typedef float f8_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef float f8_pairs_at __attribute__((vector_size(32), aligned(2), may_alias)); /* 16 bf16 */
typedef uint32_t u8 __attribute__((vector_size(32)));
typedef uint16_t h8 __attribute__((vector_size(16)));
typedef uint16_t h8_at __attribute__((vector_size(16), aligned(2), may_alias));

INLINE void f8_load_f32(f8 *out, const float *p) { *out = *(const f8_at *)p; }
INLINE void u8_load(u8 *out, const bf16 *p) /* widened */
{
#if defined(__AVX2__)
    *out = (u8)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
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
