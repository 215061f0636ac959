/* matmul_narrow.c - a rectangle of c = a . b with few columns. a is not packed, nor is b if its columns are adjacent in memory. Sums go
 * from registers to c.
 *
 *     for each block of K (those of matmul_tile.c):
 *         for each MR rows:           or as many as are left
 *             for each NR columns:    sum = a . b in registers; after the last block c = epilogue(sum)
 *
 * With 64 columns a packed panel of a is read only twice; packing it, and storing and reloading sums, took a third of the time. The order
 * of every sum is that of matmul_tile.c, so the bits are the same.
 */
#include "device/cpu/kernels/matmul_narrow.h"

#include "device/cpu/kernels/matmul_epilogue.h"
#include "device/cpu/kernels/matmul_pack.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/pool.h"

#include <string.h>

_Static_assert((int)NARROW_K == (int)K_BLOCK && NARROW_COLS % NR == 0, "one block of K, whole panels");

/* The panels of a block of b; the sums of a rectangle if K has several blocks. */
typedef struct scratch {
    _Alignas(64) factor b[K_BLOCK * NARROW_COLS + 8];
    _Alignas(64) float sum[TILE_ROWS * NARROW_COLS];
} scratch;
_Static_assert(sizeof(scratch) <= NARROW_OWN_BYTES && (int)NARROW_OWN_BYTES <= (int)NARROW_SCRATCH_BYTES,
               "a tile must fit its part of a thread's scratch space");

typedef struct narrow {
    const op_matmul *o;
    int64_t n0, cols;
    int64_t k0;
    int kc;
    bool first, last; /* whether this is the first, the last block of K */
    scratch *s;
} narrow;

/* ---- c from the sums ------------------------------------------------------------------------ */

INLINE void put_vector(const op_matmul *o, int64_t m, int64_t n, vec sum)
{
    const int64_t at = m * o->ldc + n;
    vec_at *c = (vec_at *)((float *)o->c + at);
    if (o->bias)
        sum += *(const vec_at *)((const float *)o->bias + n);
    if (o->residual)
        sum += *(const vec_at *)((const float *)o->residual + at);
    if (o->accumulate)
        sum = *c + sum;
    *c = sum;
}

/* For a partial panel. */
ONE_COPY void put_part(const op_matmul *o, int64_t m, int64_t n, int64_t cols, vec first, vec second)
{
    float line[NR];
    memcpy(line, &first, sizeof first);
    memcpy(line + VL, &second, sizeof second);
    epilogue_row(o, line, m, n, cols);
}

/* A row of a register tile; `cols` columns exist. */
INLINE void put_row(const op_matmul *o, int vecs, int64_t m, int64_t n, int64_t cols, const vec *sum)
{
    if (cols < vecs * VL) {
        put_part(o, m, n, cols, sum[0], sum[1]);
        return;
    }
    for (int v = 0; v < vecs; v++)
        put_vector(o, m, n + v * VL, sum[v]);
}

/* ---- the register tile ---------------------------------------------------------------------- */

enum { PLACES = (MR + 2) / 3, K_AHEAD = CACHE_LINE / sizeof(float) };

/* Three rows share a pointer: addressing modes reach one and two strides past it. */
INLINE float row_value(const float *const at[PLACES], int i, int64_t stride) { return at[i / 3][i % 3 * stride]; }

/* Prefetches the next rows while this tile is computed. */
INLINE void prefetch_rows(int rows, const float *a, int64_t stride)
{
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        __builtin_prefetch(a + i * stride);
}

/* sum = a . b for rows m .. m + rows and `cols` columns from n on; rows, vecs and k_inside are constants where this is inlined. b: the
 * first row of the block of K; b_step: floats between its rows. */
INLINE void narrow_tile(int rows, int vecs, bool k_inside, const narrow *p, int64_t m, int64_t n, int64_t cols, const float *b,
                        int64_t b_step, float *kept)
{
    const op_matmul *o = p->o;
    const int64_t stride = k_inside ? o->lda : 1, step = k_inside ? 1 : o->lda;
    const float *at[PLACES];
    vec s[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        s[i][0] = s[i][1] = (vec){0};
        if (i % 3 == 0)
            at[i / 3] = (const float *)o->a + (m + i) * stride + p->k0 * step;
        if (p->last)
            for (int v = 0; v < vecs; v++)
                __builtin_prefetch((const float *)o->c + (m + i) * o->ldc + n + v * VL, 1);
    }
    for (int k = 0, end; k < p->kc; k = end) {
        end = k + (int)K_AHEAD < p->kc ? k + (int)K_AHEAD : p->kc;
        if (k_inside)
            prefetch_rows(rows, at[0] + rows * stride, stride);
        for (int l = k; l < end; l++, b += b_step) {
            const vec b0 = *(const vec_at *)b, b1 = *(const vec_at *)(vecs > 1 ? b + VL : b);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const float x = row_value(at, i, stride);
                s[i][0] = vec_fma_all(x, b0, s[i][0]);
                if (vecs > 1)
                    s[i][1] = vec_fma_all(x, b1, s[i][1]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < (rows + 2) / 3; i++)
                at[i] += step;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, kept += NARROW_COLS) {
        vec_at *sum = (vec_at *)kept;
        for (int v = 0; v < vecs; v++) {
            if (!p->first)
                s[i][v] = sum[v] + s[i][v];
            if (!p->last)
                sum[v] = s[i][v];
        }
        if (p->last)
            put_row(o, vecs, m + i, n, cols, s[i]);
    }
}

/* ---- the rectangle -------------------------------------------------------------------------- */

/* The start of a panel of the block of b; *step: floats between its rows. */
INLINE const float *panel_of(const narrow *p, int64_t j, int64_t *step)
{
    const op_matmul *o = p->o;
    const bool there = o->layout != MATMUL_NT && p->cols - j >= NR;
    *step = there ? o->ldb : NR;
    return there ? (const float *)o->b + p->k0 * o->ldb + p->n0 + j : p->s->b + j * p->kc;
}

static void pack_panels(const narrow *p)
{
    const op_matmul *o = p->o;
    const operand b = {o->b, PT_F32, o->layout == MATMUL_NT, o->ldb};
    const int64_t first = o->layout == MATMUL_NT ? 0 : p->cols / NR * NR;
    if (first < p->cols)
        pack(&b, p->n0 + first, p->cols - first, NR, p->k0, p->kc, p->s->b + first * p->kc);
}

INLINE void narrow_rows(int rows, bool k_inside, const narrow *p, int64_t m, float *kept)
{
    for (int64_t j = 0; j < p->cols; j += NR) {
        const int64_t cols = p->cols - j < NR ? p->cols - j : NR;
        int64_t step;
        const float *b = panel_of(p, j, &step);
        if (cols > VL)
            narrow_tile(rows, 2, k_inside, p, m, p->n0 + j, cols, b, step, kept + j);
        else
            narrow_tile(rows, 1, k_inside, p, m, p->n0 + j, cols, b, step, kept + j);
    }
}

INLINE void narrow_block(bool k_inside, const narrow *p, int64_t m0, int64_t rows)
{
    int64_t i = 0;
    float *kept = p->s->sum;
    for (; rows - i >= MR; i += MR)
        narrow_rows(MR, k_inside, p, m0 + i, kept + i * NARROW_COLS);
    for (; rows - i >= 4; i += 4)
        narrow_rows(4, k_inside, p, m0 + i, kept + i * NARROW_COLS);
    for (; i < rows; i++)
        narrow_rows(1, k_inside, p, m0 + i, kept + i * NARROW_COLS);
}

void KERNEL(matmul_narrow)(const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *memory)
{
    const int block = k_block(o->k);
    for (int64_t k0 = 0; k0 < o->k; k0 += block) {
        const int kc = o->k - k0 < block ? (int)(o->k - k0) : block;
        const narrow p = {o, n0, cols, k0, kc, k0 == 0, k0 + kc == o->k, memory};
        pack_panels(&p);
        if (o->layout == MATMUL_TN)
            narrow_block(false, &p, m0, rows);
        else
            narrow_block(true, &p, m0, rows);
    }
}
