/* matmul_amx_split.h - panels of fp32 for AMX tiles (matmul_amx.c): each number in three parts of bf16.
 *
 *     x = high + middle + low        high = x rounded to bf16, middle = x - high rounded to bf16, low = the rest
 *
 * Each part has 8 of the 24 bits, and the differences are exact, so the sum is exactly x. A step of a panel is that of bf16
 * (matmul_amx_pack.h) three times, one part after the other, except that k and k + 16 make a pair: the first half of a line of 32 k goes to
 * the lower halves of factors and the second to the upper halves, without a shuffle.
 *
 * AMX flushes inputs, products and sums below 2^-126 to 0, so x keeps its 24 bits from 2^-103 on. If x is infinite, rounded to infinity
 * (from 3.396e38 on) or NaN, its low part is NaN.
 */
#ifndef PT_MATMUL_AMX_SPLIT_H
#define PT_MATMUL_AMX_SPLIT_H

#include "device/cpu/kernels/matmul_amx_panel.h"

static const float *element(const operand *m, int64_t i, int64_t k)
{
    return (const float *)m->base + (m->k_inside ? i * m->ld + k : k * m->ld + i);
}

/* The nearest bf16 to x, in the upper half. */
INLINE __m512i rounded(__m512 x)
{
    return _mm512_and_si512(_mm512_add_epi32((__m512i)x, _mm512_set1_epi32(0x8000)), _mm512_set1_epi32((int)0xffff0000u));
}

/* 16 factors of each part, with parts of x in the lower halves and of y in the upper halves. */
INLINE void split(__m512 x, __m512 y, __m512i out[PARTS])
{
#pragma GCC unroll 2
    for (int p = 0; p < PARTS; p++) {
        bool last = p == PARTS - 1;
        __m512i low = last ? (__m512i)x : rounded(x), high = last ? (__m512i)y : rounded(y);
        x = _mm512_sub_ps(x, (__m512)low);
        y = _mm512_sub_ps(y, (__m512)high);
        high = last ? _mm512_and_si512(high, _mm512_set1_epi32((int)0xffff0000u)) : high;
        out[p] = _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
    }
}

INLINE void split_to(__m512 x, __m512 y, factor *to)
{
    __m512i part[PARTS];
    split(x, y, part);
#pragma GCC unroll 3
    for (int p = 0; p < PARTS; p++)
        _mm512_store_si512(to + p * STEP_FACTORS, part[p]);
}

/* 16 numbers, or those of the mask `there`. */
INLINE __m512 load(bool whole, __mmask32 there, const float *from)
{
    return whole ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps((__mmask16)there, from);
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Packs a step of 32 rows whose k are adjacent. */
INLINE void step_rows(bool whole, const operand *m, int64_t i, int64_t count, int64_t k, int64_t left, factor *to)
{
    const float *row = element(m, i, k);
    for (int64_t r = 0; r < PANEL; r++, row += m->ld) {
        __mmask32 there = r < count ? first(left) : 0;
        split_to(load(whole, there, row), load(whole, there >> 16, row + 16), to + r * LINE);
    }
}

static void rows_straight(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    for (int64_t at = 0; at < kc; at += STEP, to += PARTS * STEP_FACTORS)
        if (count >= PANEL && kc - at >= STEP)
            step_rows(true, m, i, count, k + at, kc - at, to);
        else
            step_rows(false, m, i, count, k + at, kc - at, to);
}

/* 16 k of 16 rows, transposed. */
INLINE void transpose_rows(bool whole, const operand *m, int64_t i, int64_t count, int64_t k, int64_t left, __m512i r[16])
{
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++)
        r[p] = (__m512i)load(whole, p < left ? first(least(count, 16)) : 0, element(m, i, k + p));
    transpose_16x16(r);
}

/* Packs a step of 16 rows, where the elements of one k are adjacent. */
INLINE void step_rows_transposed(bool whole, const operand *m, int64_t i, int64_t count, int64_t k, int64_t left, factor *to)
{
    __m512i x[16], y[16];
    transpose_rows(whole, m, i, count, k, left, x);
    transpose_rows(whole, m, i, count, k + 16, left - 16, y);
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++)
        split_to((__m512)x[r], (__m512)y[r], to + r * LINE);
}

static void rows_transposed(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    for (int64_t at = 0; at < kc; at += STEP, to += PARTS * STEP_FACTORS)
        for (int half = 0; half < PANEL; half += 16)
            if (count >= PANEL && kc - at >= STEP)
                step_rows_transposed(true, m, i + half, count - half, k + at, kc - at, to + half * LINE);
            else
                step_rows_transposed(false, m, i + half, count - half, k + at, kc - at, to + half * LINE);
}

/* ---- columns -------------------------------------------------------------------------------- */

/* Packs a step of 16 columns whose k are adjacent, by transposing them. */
INLINE void step_columns(bool whole, const operand *m, int64_t i, int64_t count, int64_t k, int64_t left, factor *to)
{
    __m512i r[PARTS][16];
    for (int c = 0; c < 16; c++) {
        const float *column = element(m, i + c, k);
        __mmask32 there = c < count ? first(left) : 0;
        __m512i part[PARTS];
        split(load(whole, there, column), load(whole, there >> 16, column + 16), part);
        for (int p = 0; p < PARTS; p++)
            r[p][c] = part[p];
    }
    for (int p = 0; p < PARTS; p++) {
        transpose_16x16(r[p]);
#pragma GCC unroll 16
        for (int line = 0; line < LINE; line++)
            _mm512_store_si512(to + p * STEP_FACTORS + line * PANEL, r[p][line]);
    }
}

static void columns_transposed(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    for (int64_t at = 0; at < kc; at += STEP, to += PARTS * STEP_FACTORS)
        for (int half = 0; half < PANEL; half += 16)
            if (count >= PANEL && kc - at >= STEP)
                step_columns(true, m, i + half, count - half, k + at, kc - at, to + half);
            else
                step_columns(false, m, i + half, count - half, k + at, kc - at, to + half);
}

/* Packs several panels whose columns are adjacent, line by line, so that memory is read in order. */
static void columns_straight(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, int64_t panel_factors, factor *to)
{
    for (int64_t at = 0; at < steps_of(kc) * STEP; at += STEP, to += PARTS * STEP_FACTORS)
        for (int line = 0; line < LINE; line++) {
            const float *low = element(m, i, k + at + line), *high = element(m, i, k + at + line + 16);
            for (int64_t j = 0; j < (count + PANEL - 1) / PANEL * PANEL; j += 16) {
                __mmask16 there = (__mmask16)first(least(count - j, 16));
                __m512 x = _mm512_maskz_loadu_ps(at + line < kc ? there : 0, low + j);
                __m512 y = _mm512_maskz_loadu_ps(at + line + 16 < kc ? there : 0, high + j);
                split_to(x, y, to + j / PANEL * panel_factors + line * PANEL + j % PANEL);
            }
        }
}

#endif
