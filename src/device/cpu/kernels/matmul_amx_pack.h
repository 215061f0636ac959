/* matmul_amx_pack.h - panels of bf16 for AMX tiles (matmul_amx.c).
 *
 * A panel has 32 rows of a, or 32 columns of b. It consists of steps of 32 k, each 2 KiB in the order in which tiles are loaded:
 *
 *     of a: two tiles, each 16 rows of 32 k           of b: 16 lines of pairs of k, each of 32 columns, half of them for either tile
 */
#ifndef PT_MATMUL_AMX_PACK_H
#define PT_MATMUL_AMX_PACK_H

#include "device/cpu/kernels/matmul_amx_panel.h"

/* Pairs 32 adjacent elements of line k with those of line k + 1. */
INLINE void pair(__m512i low, __m512i high, __m512i out[2])
{
    const __m512i left = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), right = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    __m512i even = _mm512_unpacklo_epi16(low, high), odd = _mm512_unpackhi_epi16(low, high);
    out[0] = _mm512_permutex2var_epi64(even, left, odd);
    out[1] = _mm512_permutex2var_epi64(even, right, odd);
}

static const bf16 *element(const operand *m, int64_t i, int64_t k)
{
    return (const bf16 *)m->base + (m->k_inside ? i * m->ld + k : k * m->ld + i);
}

/* Packs 32 k of `count` rows from i on, where the factors of a row are adjacent. */
static void rows_straight(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    for (int64_t r = 0; r < PANEL; r++)
        for (int64_t step = 0; step < steps_of(kc); step++) {
            __mmask32 there = r < count ? first(kc - step * STEP) : 0;
            __m512i x = _mm512_maskz_loadu_epi16(there, element(m, i + r, k + step * STEP));
            _mm512_store_si512(to + step * STEP_FACTORS + r * LINE, x);
        }
}

/* A line of 16 pairs of k and k + 1; `left`: k that are left. */
static __m512i pair_line(const operand *m, int64_t i, int64_t count, int64_t k, int64_t left)
{
    __mmask16 there = (__mmask16)first(left > 0 ? least(count, 16) : 0), next = left > 1 ? there : 0;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, element(m, i, k)));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(next, element(m, i, k + 1)));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Like rows_straight, where the elements of one k are adjacent. */
static void rows_transposed(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    for (int64_t step = 0; step < steps_of(kc); step++)
        for (int half = 0; half < 2; half++) {
            __m512i r[16];
#pragma GCC unroll 16
            for (int p = 0; p < 16; p++)
                r[p] = pair_line(m, i + 16 * half, count - 16 * half, k + step * STEP + 2 * p, kc - step * STEP - 2 * p);
            transpose_16x16(r);
#pragma GCC unroll 16
            for (int row = 0; row < 16; row++)
                _mm512_store_si512(to + step * STEP_FACTORS + half * TILE + row * LINE, r[row]);
        }
}

/* Packs a panel of columns whose k are adjacent, by transposing them. */
static void columns_transposed(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    for (int64_t step = 0; step < steps_of(kc); step++)
        for (int half = 0; half < 2; half++) {
            __m512i r[16];
#pragma GCC unroll 16
            for (int c = 0; c < 16; c++) {
                int64_t at = 16 * half + c;
                __mmask32 there = at < count ? first(kc - step * STEP) : 0;
                r[c] = _mm512_maskz_loadu_epi16(there, element(m, i + at, k + step * STEP));
            }
            transpose_16x16(r);
#pragma GCC unroll 16
            for (int p = 0; p < 16; p++)
                _mm512_store_si512(to + step * STEP_FACTORS + p * PANEL + half * LINE, r[p]);
        }
}

/* Packs several panels whose columns are adjacent, line by line, so that memory is read in order. */
static void columns_straight(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, int64_t panel_factors, factor *to)
{
    for (int64_t p = 0; p < steps_of(kc) * LINE; p++, to += PANEL)
        for (int64_t j = 0; j < count; j += PANEL) {
            __mmask32 there = 2 * p < kc ? first(count - j) : 0, next = 2 * p + 1 < kc ? there : 0;
            __m512i pairs[2];
            pair(_mm512_maskz_loadu_epi16(there, element(m, i + j, k + 2 * p)),
                 _mm512_maskz_loadu_epi16(next, element(m, i + j, k + 2 * p + 1)), pairs);
            _mm512_store_si512(to + j / PANEL * panel_factors, pairs[0]);
            _mm512_store_si512(to + j / PANEL * panel_factors + LINE, pairs[1]);
        }
}

#endif
