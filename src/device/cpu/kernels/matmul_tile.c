/* matmul_tile.c - a rectangle of c = a . b, from packed panels and a register tile.
 *
 *     for each block of K (the same blocks for every element of c, from K alone):
 *         for each group of rows:          pack a:  ROW_GROUP x kc, in panels of MR rows
 *             for each NR columns:         pack b:  kc x NR (once, in the first group of rows)
 *                 for each MR rows:        sum (MR, NR) += a panel . b panel     in registers
 *     c = epilogue(sum)
 *
 * Packed panels are fp32 whatever the type of a and b (bf16 becomes fp32 by a shift, exactly), and
 * lie in the order in which the register tile reads them: k outside, MR or NR elements inside. The
 * panel of b (kc x NR) stays in the first-level cache, the group of a in the second.
 *
 * Bits: an element of c is a sum over the blocks of K, in order, of sums over k, in order, each a
 * chain of fma. Neither the place of the element in a rectangle nor the size of the rectangle plays
 * a part: rows and columns past the edge are computed from zeros and dropped. So a row's result
 * does not depend on the other rows, nor a column's on the other columns.
 */
#include "device/cpu/kernels/matmul_tile.h"

#include "device/cpu/kernels/matmul_simd.h"
#include "device/cpu/pool.h"

#include <stdbool.h>

enum {
    K_BLOCK = 384,
    ROW_GROUP = 144, /* rows of a that are packed at a time: a multiple of 6 and 12 */
    SUM_LD = TILE_COLS + 16 /* not a power of two: rows of a register tile fall into different cache sets */
};

/* Eight elements past the end: packing writes whole vectors. */
typedef struct scratch {
    _Alignas(64) float a[ROW_GROUP * K_BLOCK + 8];
    _Alignas(64) float b[K_BLOCK * TILE_COLS + 8];
    _Alignas(64) float sum[TILE_ROWS * SUM_LD];
} scratch;
_Static_assert(sizeof(scratch) <= POOL_SCRATCH_BYTES, "a tile must fit a thread's scratch space");
_Static_assert(ROW_GROUP % MR == 0 && TILE_ROW_STEP % MR == 0 && TILE_COL_STEP % NR == 0, "whole panels");

/* A matrix as packing sees it: element (i, k) of the operand, i the row of c for a, the column for b. */
typedef struct operand {
    const void *base;
    pt_dtype type;
    bool k_inside; /* (i, k) lies at i * ld + k; else at k * ld + i */
    int64_t ld;
} operand;

/* ---- packing: panel[k * width + i] = (i, k), 0 where i >= count ------------------------------ */

INLINE float type_load(const void *p, pt_dtype type, int64_t i)
{
    return type == PT_BF16 ? bf16_to_f32(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

INLINE float load_one(const operand *m, int64_t i, int64_t k)
{
    return type_load(m->base, m->type, m->k_inside ? i * m->ld + k : k * m->ld + i);
}

INLINE void load_eight(f8 *out, pt_dtype type, const void *p)
{
    if (type == PT_BF16)
        f8_load_bf16(out, p);
    else
        f8_load_f32(out, p);
}

static void pack_edge(const operand *m, int64_t i0, int count, int width, int64_t k0, int kc, float *panel)
{
    for (int k = 0; k < kc; k++)
        for (int i = 0; i < width; i++)
            panel[k * width + i] = i < count ? load_one(m, i0 + i, k0 + k) : 0.0f;
}

/* Eight k of eight i, turned in registers; i past the end give zeros. */
INLINE void turn_block(const operand *m, pt_dtype type, int64_t i0, int count, int64_t k, f8 r[8])
{
    const char *row = (const char *)m->base + (i0 * m->ld + k) * (int64_t)dtype_bytes(type);
    int64_t step = m->ld * (int64_t)dtype_bytes(type);
    if (count >= 8) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            load_eight(&r[j], type, row + j * step);
    } else {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            if (j < count)
                load_eight(&r[j], type, row + j * step);
            else
                r[j] = (f8){0};
    }
    f8_transpose(r);
}

/* Of a block at the end of a panel whose width is not a multiple of 8 the surplus is overwritten
 * afterwards, by the blocks before it and by the next k: so blocks go from last to first, k from
 * first to last. */
INLINE void pack_turned(const operand *m, pt_dtype type, int64_t i0, int count, int width, int64_t k0, int kc,
                        float *panel)
{
    int k = 0;
    for (; k + 8 <= kc; k += 8)
#pragma GCC unroll 4
        for (int i = (width - 1) / 8 * 8; i >= 0; i -= 8) {
            f8 r[8];
            turn_block(m, type, i0 + i, count - i, k0 + k, r);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                *(f8_at *)(panel + (k + j) * width + i) = r[j];
        }
    pack_edge(m, i0, count, width, k0 + k, kc - k, panel + k * width);
}

/* A full panel whose i lie side by side: a copy. The last vector of a line starts early enough to
 * end with the line where width >= 8. */
INLINE void pack_straight(const operand *m, pt_dtype type, int64_t i0, int width, int64_t k0, int kc, float *panel)
{
    int64_t size = (int64_t)dtype_bytes(type);
    const char *line = (const char *)m->base + (k0 * m->ld + i0) * size;
    for (int k = 0; k < kc; k++, line += m->ld * size, panel += width) {
        if (width < 8) {
            for (int i = 0; i < width; i++)
                panel[i] = type_load(line, type, i);
            continue;
        }
#pragma GCC unroll 4
        for (int i = 0; i < width; i += 8) {
            int at = i + 8 <= width ? i : width - 8;
            f8 v;
            load_eight(&v, type, line + at * size);
            *(f8_at *)(panel + at) = v;
        }
    }
}

INLINE void pack_typed(const operand *m, pt_dtype type, int64_t i0, int count, int width, int64_t k0, int kc,
                       float *panel)
{
    if (m->k_inside)
        pack_turned(m, type, i0, count, width, k0, kc, panel);
    else if (count == width)
        pack_straight(m, type, i0, width, k0, kc, panel);
    else
        pack_edge(m, i0, count, width, k0, kc, panel);
}

INLINE void pack(const operand *m, int64_t i0, int64_t left, int width, int64_t k0, int kc, float *panel)
{
    int count = left < width ? (int)left : width;
    if (m->type == PT_BF16)
        pack_typed(m, PT_BF16, i0, count, width, k0, kc, panel);
    else
        pack_typed(m, PT_F32, i0, count, width, k0, kc, panel);
}

static void pack_a(const operand *m, int64_t i0, int64_t left, int64_t k0, int kc, float *panel)
{
    pack(m, i0, left, MR, k0, kc, panel);
}

static void pack_b(const operand *m, int64_t i0, int64_t left, int64_t k0, int kc, float *panel)
{
    pack(m, i0, left, NR, k0, kc, panel);
}

/* ---- the register tile ---------------------------------------------------------------------- */

/* sum (rows, NR) = or += a (kc, MR)^T . b (kc, NR); `rows` is a constant where this is inlined. */
INLINE void register_tile(int rows, int kc, const float *a, const float *b, float *sum, bool first)
{
    vec s[MR][2];
    for (int i = 0; i < rows; i++)
        s[i][0] = s[i][1] = (vec){0};
    for (int k = 0; k < kc; k++, a += MR, b += NR) {
        vec b0 = *(const vec *)b, b1 = *(const vec *)(b + VL);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vec x = a[i] - (vec){0}; /* in all lanes */
            s[i][0] = vec_fma(x, b0, s[i][0]);
            s[i][1] = vec_fma(x, b1, s[i][1]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        vec_at *to = (vec_at *)(sum + i * SUM_LD);
        vec_at *to1 = (vec_at *)(sum + i * SUM_LD + VL);
        if (!first) {
            s[i][0] = *to + s[i][0];
            s[i][1] = *to1 + s[i][1];
        }
        *to = s[i][0];
        *to1 = s[i][1];
    }
}

/* Few rows are computed alone, so that a product with one row costs what reading b costs. */
static void register_tile_rows(int64_t rows, int kc, const float *a, const float *b, float *sum, bool first)
{
    if (rows == 1)
        register_tile(1, kc, a, b, sum, first);
    else if (rows == 2)
        register_tile(2, kc, a, b, sum, first);
    else if (rows <= 4)
        register_tile(4, kc, a, b, sum, first);
    else
        register_tile(MR, kc, a, b, sum, first);
}

/* ---- c from the sums ------------------------------------------------------------------------ */

/* One row: c[at ..] from sum[0 .. cols), bias from column n0. Types are constants where inlined. */
INLINE void epilogue_row(const op_matmul *o, pt_dtype type, pt_dtype out_type, float *sum, int64_t at, int64_t n0,
                         int64_t cols)
{
    if (o->bias)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += type_load(o->bias, type, n0 + j);
    if (o->residual)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += type_load(o->residual, type, at + j);
    if (out_type == PT_BF16) {
        bf16 *c = (bf16 *)o->c + at;
        for (int64_t j = 0; j < cols; j++)
            c[j] = bf16_from_f32(sum[j]);
        return;
    }
    float *c = (float *)o->c + at;
    if (o->accumulate)
        for (int64_t j = 0; j < cols; j++)
            c[j] += sum[j];
    else
        for (int64_t j = 0; j < cols; j++)
            c[j] = sum[j];
}

static void epilogue(const op_matmul *o, float *sum, int64_t m0, int64_t rows, int64_t n0, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++, sum += SUM_LD) {
        int64_t at = (m0 + i) * o->ldc + n0;
        if (o->out_type == PT_BF16)
            epilogue_row(o, PT_BF16, PT_BF16, sum, at, n0, cols);
        else if (o->type == PT_BF16)
            epilogue_row(o, PT_BF16, PT_F32, sum, at, n0, cols);
        else
            epilogue_row(o, PT_F32, PT_F32, sum, at, n0, cols);
    }
}

/* ---- the rectangle -------------------------------------------------------------------------- */

/* Blocks of about equal length: 2048 is 6 x 342, not 5 x 384 + 128. */
static int k_block(int64_t k)
{
    int64_t blocks = (k + K_BLOCK - 1) / K_BLOCK;
    int64_t length = blocks ? (k + blocks - 1) / blocks : 0;
    return (int)(length + 7 < K_BLOCK ? (length + 7) / 8 * 8 : K_BLOCK);
}

static void row_group(const operand *a, const operand *b, int64_t m0, int64_t rows, int64_t n0, int64_t cols,
                      int64_t k0, int kc, bool pack_columns, scratch *s, float *sum)
{
    for (int64_t i = 0; i < rows; i += MR)
        pack_a(a, m0 + i, rows - i, k0, kc, s->a + i * kc);
    for (int64_t j = 0; j < cols; j += NR) {
        float *panel = s->b + j * kc;
        if (pack_columns)
            pack_b(b, n0 + j, cols - j, k0, kc, panel);
        for (int64_t i = 0; i < rows; i += MR)
            register_tile_rows(rows - i, kc, s->a + i * kc, panel, sum + i * SUM_LD + j, k0 == 0);
    }
}

void KERNEL(matmul_tile)(const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *memory)
{
    scratch *s = memory;
    operand a = {o->a, o->type, o->layout != MATMUL_TN, o->lda};
    operand b = {o->b, o->type, o->layout == MATMUL_NT, o->ldb};
    int block = k_block(o->k);
    for (int64_t k0 = 0; k0 < o->k; k0 += block) {
        int kc = o->k - k0 < block ? (int)(o->k - k0) : block;
        for (int64_t i = 0; i < rows; i += ROW_GROUP) {
            int64_t group = rows - i < ROW_GROUP ? rows - i : ROW_GROUP;
            row_group(&a, &b, m0 + i, group, n0, cols, k0, kc, i == 0, s, s->sum + i * SUM_LD);
        }
    }
    if (o->k == 0)
        for (int64_t i = 0; i < rows; i++)
            memset(s->sum + i * SUM_LD, 0, (size_t)cols * sizeof(float));
    epilogue(o, s->sum, m0, rows, n0, cols);
}
