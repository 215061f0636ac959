/* matmul_pack.h - packs a and b for the kernels of a matmul. */
#ifndef PT_MATMUL_PACK_H
#define PT_MATMUL_PACK_H

#include "device/cpu/kernels/matmul_simd.h"

#include <stdbool.h>
#include <string.h>

enum { CACHE_LINE = 64 };

/* The longest part of K that is summed on its own. The sums of ARM64's pairs are rounded to odd, and need shorter ones to be as exact. */
#if defined(__aarch64__)
enum { K_BLOCK = 384 };
#else
enum { K_BLOCK = 384 * FACTOR_K };
#endif

/* Blocks of about equal length: 2048 is 5 x 352 + 288, not 5 x 384 + 128 (of pairs 2 x 688 + 672). */
INLINE int k_block(int64_t k)
{
    int64_t blocks = (k + K_BLOCK - 1) / K_BLOCK;
    int64_t length = blocks ? (k + blocks - 1) / blocks : 0;
    return (int)(length + 15 < K_BLOCK ? (length + 15) / 16 * 16 : K_BLOCK);
}

/* A matrix to be packed. Element (i, k): i is a row of c for a, a column of c for b. */
typedef struct operand {
    const void *base;
    pt_dtype type;
    bool k_inside; /* (i, k) is at i * ld + k; else at k * ld + i */
    int64_t ld;
} operand;

/* For lines that are not in place, each the elements of an i (k_inside) or of a k: line i is line lines[i] of the matrix. Copies i0 .. i0 +
 * count, k0 .. k0 + kc to `to`, side by side; the result has them from (0, 0) on. */
INLINE operand gather(const operand *m, const int32_t *lines, int64_t i0, int64_t count, int64_t k0, int64_t kc, void *to)
{
    enum { AHEAD = 4 };
    const int64_t size = (int64_t)dtype_bytes(m->type), n = m->k_inside ? count : kc, length = m->k_inside ? kc : count;
    const char *from = (const char *)m->base + (m->k_inside ? k0 : i0) * size;
    lines += m->k_inside ? i0 : k0;
    for (int64_t line = 0; line < n; line++) {
        for (int64_t at = 0; line + AHEAD < n && at < length * size; at += CACHE_LINE)
            __builtin_prefetch(from + lines[line + AHEAD] * m->ld * size + at);
        memcpy((char *)to + line * length * size, from + lines[line] * m->ld * size, (size_t)(length * size));
    }
    return (operand){to, m->type, m->k_inside, length};
}

INLINE int64_t factors(int64_t k) { return (k + FACTOR_K - 1) / FACTOR_K; }

/* ---- packing: panel[k * width + i] = factor k of i, 0 where i >= count ----------------------- */

INLINE float type_load(const void *p, pt_dtype type, int64_t i)
{
    return type == PT_BF16 ? bf16_to_f32(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

/* The factor that begins at k; kc: number of k left. */
INLINE factor load_factor(const operand *m, int64_t i, int64_t k, int64_t kc)
{
#ifdef PT_PAIRS
    const bf16 *x = (const bf16 *)m->base + (m->k_inside ? i * m->ld + k : k * m->ld + i);
    factor f = 0;
    for (int j = 0; j < FACTOR_K && j < kc; j++)
        f |= (factor)x[m->k_inside ? j : j * m->ld] << 16 * j;
    return f;
#else
    return type_load(m->base, m->type, m->k_inside ? i * m->ld + k : k * m->ld + i);
#endif
}

INLINE void pack_edge(const operand *m, int64_t i0, int count, int width, int64_t k0, int kc, factor *panel)
{
    for (int k = 0; k < kc; k += FACTOR_K, panel += width)
        for (int i = 0; i < width; i++)
            panel[i] = i < count ? load_factor(m, i0 + i, k0 + k, kc - k) : 0;
}

enum { AHEAD_BYTES = 2 * CACHE_LINE };

#ifdef PT_QUADS

/* Two rows at a time, whose factors alternate in the panel. */
INLINE void pack_transposed(const operand *m, pt_dtype type, int64_t i0, int count, int width, int64_t k0, int kc,
                        factor *panel)
{
    enum { LENGTH = 2 * FACTOR_K };
    int k = 0;
    for (; k + LENGTH <= kc; k += LENGTH)
        for (int i = 0; i < width; i += 2) {
            const bf16 *row = (const bf16 *)m->base + (i0 + i) * m->ld + k0 + k;
            const uint64x2_t none = vdupq_n_u64(0);
            const uint64x2_t a = i < count ? vreinterpretq_u64_u16(vld1q_u16(row)) : none;
            const uint64x2_t b = i + 1 < count ? vreinterpretq_u64_u16(vld1q_u16(row + m->ld)) : none;
            factor *to = panel + k / FACTOR_K * width + i;
            if (k % (AHEAD_BYTES / 2) == 0) {
                __builtin_prefetch((const char *)row + AHEAD_BYTES);
                __builtin_prefetch((const char *)(row + m->ld) + AHEAD_BYTES);
            }
            vst1q_u64(to, vzip1q_u64(a, b));
            vst1q_u64(to + width, vzip2q_u64(a, b));
        }
    pack_edge(m, i0, count, width, k0 + k, kc - k, panel + k / FACTOR_K * width);
}

/* Eight factors from FACTOR_K lines, the first at p. */
INLINE void copy_eight(pt_dtype type, const char *p, int64_t step, factor *to)
{
    const uint16x8x4_t lines = {{vld1q_u16((const bf16 *)p), vld1q_u16((const bf16 *)(p + step)), vld1q_u16((const bf16 *)(p + 2 * step)),
                                 vld1q_u16((const bf16 *)(p + 3 * step))}};
    vst4q_u16((uint16_t *)to, lines);
}

#else

/* The number of k of a transposed block: a vector of fp32, or of pairs of bf16. */
INLINE int transpose_length(pt_dtype type) { return type == PT_BF16 ? 16 : 8; }

/* Transposes in registers: r[j][i] = factor j of (i0 + i, k ...), for 8 i and transpose_length k; i past `count` give 0. Two neighbouring
 * bf16 are moved as one 32-bit element, and separated at the end if they are not one factor. */
INLINE void transpose_block(const operand *m, pt_dtype type, int64_t i0, int64_t count, int64_t k, f8 r[16])
{
    int64_t step = m->ld * (int64_t)dtype_bytes(type);
    const char *row = (const char *)m->base + i0 * step + k * (int64_t)dtype_bytes(type);
    f8 x[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        if (i < count)
            x[i] = *(const f8_pairs_at *)(row + i * step);
        else
            x[i] = (f8){0};
    f8_transpose(x);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        if (type == PT_BF16 && FACTOR_K == 1) {
            r[2 * j] = (f8)((u8)x[j] << 16);
            r[2 * j + 1] = (f8)((u8)x[j] & 0xffff0000u);
        } else {
            r[j] = x[j];
        }
}

/* Prefetches for a later block: the hardware prefetcher does not follow so many lines at once. */
INLINE void prefetch_block(const operand *m, pt_dtype type, int64_t i0, int count, int64_t k)
{
    const char *at = (const char *)m->base + (i0 * m->ld + k) * (int64_t)dtype_bytes(type) + AHEAD_BYTES;
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        __builtin_prefetch(at + i * m->ld * (int64_t)dtype_bytes(type));
}

/* If the width is not a multiple of 8, the last block of a panel writes too much, which earlier blocks and the next k overwrite. So blocks
 * go from last to first, and k from first to last. */
INLINE void pack_transposed(const operand *m, pt_dtype type, int64_t i0, int count, int width, int64_t k0, int kc,
                        factor *panel)
{
    int k = 0, length = transpose_length(type);
    for (; k + length <= kc; k += length)
#pragma GCC unroll 4
        for (int i = (width - 1) / 8 * 8; i >= 0; i -= 8) {
            f8 r[16];
            if (k % (2 * length) == 0)
                prefetch_block(m, type, i0 + i, i + 8 <= width ? 8 : width - i, k0 + k);
            if (count >= width && i + 8 <= width)
                transpose_block(m, type, i0 + i, 8, k0 + k, r);
            else
                transpose_block(m, type, i0 + i, count - i, k0 + k, r);
#pragma GCC unroll 16
            for (int j = 0; j < length / FACTOR_K; j++)
                *(f8_at *)(panel + (k / FACTOR_K + j) * width + i) = r[j];
        }
    pack_edge(m, i0, count, width, k0 + k, kc - k, panel + k / FACTOR_K * width);
}

/* Eight factors from FACTOR_K lines, the first at p. */
INLINE void copy_eight(pt_dtype type, const char *p, int64_t step, factor *to)
{
    f8 v;
#ifdef PT_PAIRS
    u8 low, high;
    u8_load(&low, (const bf16 *)p);
    u8_load(&high, (const bf16 *)(p + step));
    v = (f8)(low | high << 16);
#else
    if (type == PT_BF16)
        f8_load_bf16(&v, (const bf16 *)p);
    else
        f8_load_f32(&v, (const float *)p);
#endif
    *(f8_at *)to = v;
}

#endif

enum { LINES_AHEAD = 16 }; /* prefetch distance; lines are pages apart */

/* Copies several full panels whose i are adjacent, line by line, so that memory is read in order. If width >= 8, the last vector of a
 * panel's line overlaps the previous one, to end with the line. */
INLINE void pack_straight(const operand *m, pt_dtype type, int64_t i0, int panels, int width, int64_t k0, int kc, factor *to)
{
    int64_t size = (int64_t)dtype_bytes(type), step = m->ld * size, panel_size = factors(kc) * width;
    const char *line = (const char *)m->base + k0 * step + i0 * size;
    int done = width >= 8 ? kc / FACTOR_K * FACTOR_K : 0;
    for (int k = 0; k < done; k += FACTOR_K, line += FACTOR_K * step, to += width) {
        for (int j = 0; j < FACTOR_K; j++)
            for (int64_t at = 0; at < panels * width * size; at += CACHE_LINE)
                __builtin_prefetch(line + (LINES_AHEAD + j) * step + at);
        for (int p = 0; p < panels; p++) {
            const char *from = line + p * width * size;
#pragma GCC unroll 4
            for (int i = 0; i < width; i += 8) {
                int at = i + 8 <= width ? i : width - 8;
                copy_eight(type, from + at * size, step, to + p * panel_size + at);
            }
        }
    }
    for (int p = 0; p < panels && done < kc; p++)
        pack_edge(m, i0 + p * width, width, width, k0 + done, kc - done, to + p * panel_size);
}

INLINE void pack_typed(const operand *m, pt_dtype type, int64_t i0, int count, int width, int64_t k0, int kc, factor *to)
{
    int64_t panel_size = factors(kc) * width;
    int i = m->k_inside ? 0 : count / width * width;
    if (!m->k_inside)
        pack_straight(m, type, i0, count / width, width, k0, kc, to);
    for (; i < count; i += width) {
        factor *panel = to + i / width * panel_size;
        int wide = count - i < width ? count - i : width;
        if (m->k_inside)
            pack_transposed(m, type, i0 + i, wide, width, k0, kc, panel);
        else
            pack_edge(m, i0 + i, wide, width, k0, kc, panel);
    }
}

/* Packs i0 .. i0 + count in consecutive panels of `width`. */
INLINE void pack(const operand *m, int64_t i0, int64_t count, int width, int64_t k0, int kc, factor *to)
{
    if (FACTOR_K > 1 || m->type == PT_BF16)
        pack_typed(m, PT_BF16, i0, (int)count, width, k0, kc, to);
    else
        pack_typed(m, PT_F32, i0, (int)count, width, k0, kc, to);
}

#endif
