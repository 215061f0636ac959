/* matmul_amx.c - a rectangle of c = a . b on AMX tiles (amx.h). Compiled twice: for bf16, and, with PT_SPLIT, for fp32.
 *
 *     for each block of K (at most K_MOST):
 *         pack b (unless it is packed):        kc x cols, in panels of 32 columns
 *         for each 32 rows:                    pack a: 32 x kc
 *             for each 32 columns:             sum (32, 32) += a panel . b panel     in four tiles
 *     c = epilogue(sum)
 *
 * A step of the innermost loop covers 32 k. In bf16 it reads two tiles of a (16 rows of 32 k) and two of b (16 rows of 16 columns of pairs
 * of k), 2 KiB of each in packed order, and does four tile matmuls, which take 64 cycles. A panel of a stays in the L1 cache with a panel
 * of b, which limits K_MOST. Panels of b come from the L2 cache, just in time; the sums are there too. With a longer block, sums would be
 * read and written less often, but both panels would come from the L2 cache, at two thirds of the speed (measured; bench/results).
 *
 * fp32 is three parts of bf16 (matmul_amx_split.h). Six of the nine products of parts are computed, one after the other:
 *
 *     a . b = high high + high middle + middle high + middle middle + high low + low high + terms below 2^-24 of |a b|
 *
 * A step takes 384 cycles, three eighths of the time of fma. Each tile that is read is used in more matmuls than in bf16, so this comes
 * nearer to the peak. Up to a K of about 1000 the error is smaller than that of fma; at K = 3072 it is 1.2 times as large (measured;
 * docs/numerics.md).
 *
 * Bits: each element of c is one chain of tdpbf16ps over K, 32 at a time (in fp32 six for these, in their order), whatever the rectangle
 * and the block. Elements past an edge are zeros, and their results are dropped. So a row's result does not depend on the other rows, nor a
 * column's on the other columns.
 */
#include "device/cpu/kernels/amx.h"
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_epilogue.h"
#include "device/cpu/kernels/matmul_narrow.h"

#ifdef PT_SPLIT
#include "device/cpu/kernels/matmul_amx_split.h"
#else
#include "device/cpu/kernels/matmul_amx_pack.h"
#endif

enum {
    K_MOST = PARTS == 1 ? 256 : 128,
    ROWS_MOST = PARTS == 1 ? (int)AMX_ROWS : (int)SPLIT_ROWS,
    COLS_MOST = PARTS == 1 ? (int)AMX_COLS : (int)SPLIT_COLS,
    PANEL_FACTORS = PARTS * STEP_FACTORS,          /* in a step of a panel */
    BLOCK_FACTORS = K_MOST / STEP * PANEL_FACTORS, /* in a block of K of a panel */
    SUM_LD = COLS_MOST + 16                        /* an odd number of cache lines: rows of a tile fall into different cache sets */
};

typedef struct scratch {
    _Alignas(64) factor a[BLOCK_FACTORS];
    _Alignas(64) float sum[ROWS_MOST * SUM_LD];
    _Alignas(64) factor b[COLS_MOST / PANEL * BLOCK_FACTORS]; /* unused if b is already packed */
    _Alignas(64) char side_by_side[COLS_MOST * K_MOST * (PARTS == 1 ? sizeof(bf16) : sizeof(float))]; /* lines that are gathered */
} scratch;
_Static_assert(sizeof(scratch) <= POOL_SCRATCH_BYTES, "a rectangle must fit a thread's scratch space");
_Static_assert(PARTS == 1 || sizeof(scratch) <= NARROW_SCRATCH_BYTES, "its part of the scratch space, where the op is narrow");
_Static_assert(offsetof(scratch, b) <= PACKED_AT, "packed columns lie behind the rest");
_Static_assert(ROWS_MOST % PANEL == 0 && (int)AMX_ROW_STEP == PANEL && COL_GROUP % PANEL == 0 && COLS_MOST % PANEL == 0, "whole panels");
_Static_assert((int)AMX_PARTS == 1 && (int)SPLIT_PARTS == 3, "as panels have them");

/* Packs 32 rows from i on as a left factor; rows past `count` are 0. */
static void pack_rows(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    if (m->k_inside)
        rows_straight(m, i, count, k, kc, to);
    else
        rows_transposed(m, i, count, k, kc, to);
}

/* Packs columns from i on as a right factor, in panels of 32; columns past `count` are 0. */
static void pack_columns(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc, factor *to)
{
    int64_t panel_factors = steps_of(kc) * PANEL_FACTORS;
    if (!m->k_inside)
        columns_straight(m, i, count, k, kc, panel_factors, to);
    else
        for (int64_t j = 0; j < count; j += PANEL)
            columns_transposed(m, i + j, count - j, k, kc, to + j / PANEL * panel_factors);
}

/* ---- prefetching ---------------------------------------------------------------------------- */

/* The next panel of a comes from beyond the L2 cache, far more slowly than tiles need it. So it is prefetched line by line while this one
 * is multiplied. */
typedef struct ahead {
    const char *row;
    int64_t at, bytes, step; /* `bytes` of each row, `step` from one to the next */
    int64_t rows;            /* rows left */
} ahead;


INLINE void fetch_line(ahead *a)
{
    if (a->rows <= 0)
        return;
    _mm_prefetch(a->row + a->at, _MM_HINT_T1);
    a->at += CACHE_LINE;
    if (a->at >= a->bytes) {
        a->at = 0;
        a->row += a->step;
        a->rows--;
    }
}

/* The lines that pack_rows will read. */
static ahead ahead_of_rows(const operand *m, int64_t i, int64_t count, int64_t k, int64_t kc)
{
    int64_t rows = least(count, PANEL), size = (int64_t)sizeof *element(m, i, k);
    return (ahead){(const char *)element(m, i, k), 0, (m->k_inside ? kc : rows) * size, m->ld * size, m->k_inside ? rows : kc};
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* Prefetches a quarter of one part of a step of b. */
INLINE void fetch_quarter(const factor *b)
{
#pragma GCC unroll 8
    for (int i = 0; i < STEP_FACTORS / 4; i += LINE)
        _mm_prefetch((const char *)(b + i), _MM_HINT_T0);
}

enum { SUM_STRIDE = SUM_LD * 4, A_STRIDE = LINE * 4, B_STRIDE = PANEL * 4 }; /* bytes from row to row of a tile */

#ifdef PT_SPLIT

INLINE void load_rows(bool half, const factor *a)
{
    _tile_loadd(4, a, A_STRIDE);
    if (!half)
        _tile_loadd(5, a + TILE, A_STRIDE);
}

INLINE void load_columns(const factor *b)
{
    _tile_loadd(6, b, B_STRIDE);
    _tile_loadd(7, b + LINE, B_STRIDE);
}

INLINE void multiply(bool half, const factor *ahead_of_b)
{
    _tile_dpbf16ps(0, 4, 6);
    fetch_quarter(ahead_of_b);
    _tile_dpbf16ps(1, 4, 7);
    if (!half)
        _tile_dpbf16ps(2, 5, 6);
    fetch_quarter(ahead_of_b + STEP_FACTORS / 4);
    if (!half)
        _tile_dpbf16ps(3, 5, 7);
}

/* A step: each product shares a factor with the previous one, and the largest comes last. */
INLINE void step_matmul(bool half, const factor *a, const factor *b, ahead *next_rows)
{
    enum { HIGH = 0, MIDDLE = STEP_FACTORS, LOW = 2 * STEP_FACTORS, HALF = STEP_FACTORS / 2 };
    const factor *next = b + PANEL_FACTORS;
    load_columns(b + LOW);
    load_rows(half, a + HIGH);
    fetch_line(next_rows);
    multiply(half, next);
    load_columns(b + MIDDLE);
    fetch_line(next_rows);
    multiply(half, next + HALF);
    load_rows(half, a + MIDDLE);
    fetch_line(next_rows);
    multiply(half, next + 2 * HALF);
    load_columns(b + HIGH);
    fetch_line(next_rows);
    multiply(half, next + 3 * HALF);
    load_rows(half, a + LOW);
    multiply(half, next + 4 * HALF);
    load_rows(half, a + HIGH);
    multiply(half, next + 5 * HALF);
}

#else

INLINE void step_matmul(bool half, const factor *a, const factor *b, ahead *next_rows)
{
    const factor *next = b + PANEL_FACTORS;
    _tile_loadd(6, b, B_STRIDE);
    _tile_loadd(4, a, A_STRIDE);
    fetch_line(next_rows);
    fetch_line(next_rows);
    fetch_quarter(next);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + LINE, B_STRIDE);
    fetch_quarter(next + STEP_FACTORS / 4);
    _tile_dpbf16ps(1, 4, 7);
    if (!half)
        _tile_loadd(5, a + TILE, A_STRIDE);
    fetch_quarter(next + STEP_FACTORS / 2);
    if (!half)
        _tile_dpbf16ps(2, 5, 6);
    fetch_quarter(next + STEP_FACTORS / 4 * 3);
    if (!half)
        _tile_dpbf16ps(3, 5, 7);
}

#endif

/* sum (32, 32) = or += a (32, steps) . b (steps, 32); `half`: only the first 16 rows. */
INLINE void tiles_matmul(bool half, int64_t steps, const factor *a, const factor *b, float *sum, bool fresh, ahead *next_rows)
{
    TILES_SEE_MEMORY();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!fresh) {
        _tile_loadd(0, sum, SUM_STRIDE);
        _tile_loadd(1, sum + 16, SUM_STRIDE);
        if (!half) {
            _tile_loadd(2, sum + 16 * SUM_LD, SUM_STRIDE);
            _tile_loadd(3, sum + 16 * SUM_LD + 16, SUM_STRIDE);
        }
    }
    for (; steps > 0; steps--, a += PANEL_FACTORS, b += PANEL_FACTORS)
        step_matmul(half, a, b, next_rows);
    _tile_stored(0, sum, SUM_STRIDE);
    _tile_stored(1, sum + 16, SUM_STRIDE);
    if (!half) {
        _tile_stored(2, sum + 16 * SUM_LD, SUM_STRIDE);
        _tile_stored(3, sum + 16 * SUM_LD + 16, SUM_STRIDE);
    }
    TILES_SEE_MEMORY();
}

/* ---- rectangles ----------------------------------------------------------------------------- */

/* Blocks of K of about equal length, in whole steps; K may be 0. */
static int64_t block_of(int64_t k)
{
    int64_t blocks = k > 0 ? (k + K_MOST - 1) / K_MOST : 1;
    return steps_of((k + blocks - 1) / blocks) * STEP;
}

/* A rectangle of c and where it is computed. */
typedef struct rectangle {
    const op_matmul *o;
    operand a, b;
    gathered from;
    int64_t m0, rows, n0, cols;
    const packed *packed; /* NULL: the columns of b are packed into the scratch space, a block of K at a time */
    int64_t j;            /* where its columns begin in `packed` */
    int64_t block;        /* of K */
    bool first, last;     /* whether this is the first, the last part of the sum */
    scratch *s;
} rectangle;

static int64_t k_left(const rectangle *r, int64_t k) { return least(r->block, r->o->k - k); }

static const factor *panel_of(const rectangle *r, int64_t k, int64_t column)
{
    int64_t panel_factors = steps_of(k_left(r, k)) * PANEL_FACTORS;
    if (!r->packed)
        return r->s->b + column / PANEL * panel_factors;
    int64_t at = r->j + column;
    const factor *group = packed_group(r->packed, at / COL_GROUP);
    return group + k / 2 * COL_GROUP * PARTS + at % COL_GROUP / PANEL * panel_factors;
}

/* The panel of rows after the one from i on. */
static ahead rows_after(const rectangle *r, int64_t k, int64_t i)
{
    if (r->from.a)
        return (ahead){NULL, 0, 0, 0, 0};
    if (i + PANEL < r->rows)
        return ahead_of_rows(&r->a, r->m0 + i + PANEL, r->rows - i - PANEL, k, k_left(r, k));
    if (k + r->block < r->o->k)
        return ahead_of_rows(&r->a, r->m0, r->rows, k + r->block, k_left(r, k + r->block));
    return (ahead){NULL, 0, 0, 0, 0};
}

/* Adds a block of K to the sums of a panel of rows. */
static void panel_sums(const rectangle *r, int64_t k, int64_t i)
{
    int64_t kc = k_left(r, k), steps = steps_of(kc);
    ahead next = rows_after(r, k, i);
    float *sum = r->s->sum + i * SUM_LD;
    if (r->from.a) {
        const int64_t count = least(r->rows - i, PANEL);
        const operand near = gather(&r->a, r->from.a, r->m0 + i, count, k, kc, r->s->side_by_side);
        pack_rows(&near, 0, count, 0, kc, r->s->a);
    } else {
        pack_rows(&r->a, r->m0 + i, r->rows - i, k, kc, r->s->a);
    }
    for (int64_t j = 0; j < r->cols; j += PANEL)
        if (r->rows - i <= 16)
            tiles_matmul(true, steps, r->s->a, panel_of(r, k, j), sum + j, r->first && k == 0, &next);
        else
            tiles_matmul(false, steps, r->s->a, panel_of(r, k, j), sum + j, r->first && k == 0, &next);
}

/* Packs a block of K of the rectangle's columns. */
static void pack_block(const rectangle *r, int64_t k)
{
    const int64_t kc = k_left(r, k);
    if (r->from.b) {
        const operand near = gather(&r->b, r->from.b, r->n0, r->cols, k, kc, r->s->side_by_side);
        pack_columns(&near, 0, r->cols, 0, kc, r->s->b);
    } else {
        pack_columns(&r->b, r->n0, r->cols, k, kc, r->s->b);
    }
}

static void rectangle_run(const rectangle *r)
{
    const op_matmul *o = r->o;
    tiles_open();
    for (int64_t k = 0; k < o->k; k += r->block) {
        if (!r->packed)
            pack_block(r, k);
        for (int64_t i = 0; i < r->rows; i += PANEL) {
            panel_sums(r, k, i);
            for (int64_t row = i; row < least(i + PANEL, r->rows) && r->last && k + r->block >= o->k; row++)
                epilogue_row(o, r->s->sum + row * SUM_LD, r->m0 + row, r->n0, r->cols);
        }
    }
    tiles_close();
}

/* For one part of the sum. */
static rectangle rectangle_of(const op_matmul *o, bool first, bool last, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *memory)
{
    return (rectangle){.o = o, .a = {o->a, o->type, o->layout != MATMUL_TN, o->lda}, .b = {o->b, o->type, o->layout == MATMUL_NT, o->ldb},
                       .m0 = m0, .rows = rows, .n0 = n0, .cols = cols, .block = block_of(o->k), .first = first, .last = last, .s = memory};
}

void KERNEL(matmul_tile)(const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *memory)
{
    KERNEL(matmul_gathered)(o, (gathered){NULL, NULL}, m0, rows, n0, cols, memory);
}

void KERNEL(matmul_gathered)(const op_matmul *o, gathered from, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *memory)
{
    const op_matmul more = matmul_more(o);
    rectangle first = rectangle_of(o, true, !more.k, m0, rows, n0, cols, memory);
    first.from = from;
    const rectangle second = rectangle_of(&more, false, true, m0, rows, n0, cols, memory);
    rectangle_run(&first);
    if (more.k)
        rectangle_run(&second);
}

static void pack_part(const op_matmul *o, const packed *b, int64_t j, int64_t cols)
{
    operand from = {o->b, o->type, o->layout == MATMUL_NT, o->ldb};
    factor *group = packed_group(b, j / COL_GROUP);
    int64_t length = block_of(o->k);
    for (int64_t k = 0; k < o->k; k += length) {
        int64_t kc = least(length, o->k - k);
        factor *to = group + k / 2 * COL_GROUP * PARTS + j % COL_GROUP / PANEL * steps_of(kc) * PANEL_FACTORS;
        pack_columns(&from, b->n0 + j, cols, k, kc, to);
    }
}

void KERNEL(matmul_pack)(const op_matmul *o, const packed *b, int64_t j, int64_t cols)
{
    const op_matmul more = matmul_more(o);
    const packed behind = packed_more(o, b, PARTS);
    pack_part(o, b, j, cols);
    pack_part(&more, &behind, j, cols);
}

void KERNEL(matmul_packed)(const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t j, int64_t cols, void *memory)
{
    const op_matmul more = matmul_more(o);
    const packed behind = packed_more(o, b, PARTS);
    int64_t parts = 1 + (cols - 1) / COLS_MOST, width = ((cols + parts - 1) / parts + PANEL - 1) / PANEL * PANEL;
    for (int64_t done = 0; done < cols; done += width) {
        rectangle first = rectangle_of(o, true, !more.k, m0, rows, b->n0 + j + done, least(width, cols - done), memory);
        rectangle second = rectangle_of(&more, false, true, m0, rows, b->n0 + j + done, least(width, cols - done), memory);
        first.packed = b;
        second.packed = &behind;
        first.j = second.j = j + done;
        rectangle_run(&first);
        if (more.k)
            rectangle_run(&second);
    }
}
