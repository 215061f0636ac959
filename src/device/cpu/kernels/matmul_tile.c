/* matmul_tile.c - a rectangle of c = a . b, from packed panels and a register tile.
 *
 *     for each block of K (the same blocks for every element of c, from K alone):
 *         for each group of rows:          pack a:  ROW_GROUP x kc, in panels of MR rows
 *             for each PACK_COLS columns:  pack b (once, in the first group of rows), in panels of NR columns
 *             for each NR columns:
 *                 for each MR rows:        sum (MR, NR) += a panel . b panel     in registers
 *     c = epilogue(sum)
 *
 * The second part of a sum (more_k) adds blocks of other operands.
 *
 * If b is already packed (matmul_packed), a group of rows goes through all columns and all blocks of K:
 *
 *     for each group of rows:
 *         for each KEPT_COLS columns (TILE_COLS if K is long):
 *             for each block of K:         pack a (once, if all of it fits), then as above
 *             c = epilogue(sum)
 *
 * Packed panels contain factors (matmul_simd.h): fp32 for either type of a and b (a bf16 becomes fp32 by a shift, exactly), or two or four
 * bf16, in the order in which the register tile reads them: k outermost, MR or NR factors innermost. The panel of b (kc x NR) stays in the
 * L1 cache, the group of a in the L2 cache. Rows of a whose pairs are neighbours in memory are not packed, but read where they are.
 *
 * Bits: an element of c is the sum, in order, over the blocks of K of sums, in order, over k, each a chain of fma or of sums of pairs. The
 * rectangle and the element's place in it do not matter: rows and columns past the edge are computed from zeros and dropped. So a row's
 * result does not depend on the other rows, nor a column's on the other columns.
 */
#if defined(PT_PAIRS) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define PT_QUADS
#endif

#include "device/cpu/kernels/matmul_tile.h"

#include "device/cpu/kernels/matmul_epilogue.h"
#include "device/cpu/kernels/matmul_pack.h"
#include "device/cpu/pool.h"

#include <stdbool.h>

enum {
    FACTORS = K_BLOCK / FACTOR_K, /* of a panel, along k */
    DIRECT_NOT = 4096,            /* bytes between rows, or a multiple: all rows of a register tile lie in one set of the L1 cache */
    PACK_COLS = 256,              /* of b at a time; if they are adjacent, long lines are read */
    SUM_LD = TILE_COLS + 16       /* not a power of two: rows of a register tile fall into different cache sets */
};

/* Eight elements past the end: packing writes whole vectors. */
typedef struct scratch {
    _Alignas(64) factor a[ROW_GROUP * FACTORS + 8];
    _Alignas(64) factor b[FACTORS * TILE_COLS + 8];
    _Alignas(64) float sum[TILE_ROWS * SUM_LD];
    _Alignas(64) factor side_by_side[PACK_COLS * FACTORS]; /* lines that are gathered, before they are packed */
} scratch;
_Static_assert((int)ROW_GROUP <= (int)PACK_COLS, "rows are gathered there, too");
_Static_assert(sizeof(scratch) <= POOL_SCRATCH_BYTES, "a tile must fit a thread's scratch space");
_Static_assert(ROW_GROUP % MR == 0 && TILE_ROW_STEP % MR == 0 && TILE_COL_STEP % NR == 0 && COL_GROUP % TILE_COL_STEP == 0,
               "whole panels");

/* ---- panels --------------------------------------------------------------------------------- */

/* Rows of a for register tiles: panels of MR rows, the first `direct` of which are read where they are. */
typedef struct lines {
    const factor_at *rows; /* row i begins at i * ld */
    int64_t ld, direct;
    factor *panels;        /* row i is in the panel at i * factors(kc) */
} lines;

/* Rows need no packing if their factors are neighbours in memory and do not displace each other in the cache. Pairs gain by that (2 to 5%
 * of a matmul on two Zen 5 cores). */
static bool is_direct(const operand *m, int64_t k)
{
    const int64_t bytes = m->ld * (int64_t)dtype_bytes(m->type);
    return FACTOR_K == 2 && m->k_inside && m->ld % FACTOR_K == 0 && k % FACTOR_K == 0 && bytes % DIRECT_NOT != 0;
}

/* k: length of all blocks together. */
static lines lines_of(const operand *m, int64_t i0, int64_t rows, int64_t k, int64_t k0, factor *panels)
{
    const char *at = (const char *)m->base + (i0 * m->ld + k0) * (int64_t)dtype_bytes(m->type);
    return (lines){(const factor_at *)at, m->ld / FACTOR_K, is_direct(m, k) ? rows / MR * MR : 0, panels};
}

static void pack_a(const operand *m, const lines *to, int64_t i0, int64_t rows, int64_t k0, int kc)
{
    if (to->direct < rows)
        pack(m, i0 + to->direct, rows - to->direct, MR, k0, kc, to->panels + to->direct * factors(kc));
}

/* Packs `count` rows of a or columns of b, whose lines may not be in place. */
static void pack_lines(const operand *m, const int32_t *from, int64_t i0, int64_t count, int width, int64_t k0, int kc,
                       factor *room, factor *to)
{
    const operand near = from ? gather(m, from, i0, count, k0, kc, room) : *m;
    pack(&near, from ? 0 : i0, count, width, from ? 0 : k0, kc, to);
}

/* ---- the register tile ---------------------------------------------------------------------- */

/* The part of c that the epilogue of a register tile will read and write, in cache lines. Waiting for it took a tenth of the time of a
 * weight gradient. A register tile prefetches a line now and then while it computes; all at once would delay its own loads. */
typedef struct place {
    const char *at;
    int64_t step;     /* bytes from row to row */
    int lines;        /* per row of a register tile */
    int stretch;      /* factors along k between two prefetches */
} place;

/* kc: of the block of K to be multiplied. Prefetches only if `last`: it is the last block. */
static place place_of(const op_matmul *o, int64_t m, int64_t n, int kc, bool last)
{
    if (!last)
        return (place){NULL, 0, 0, (int)factors(kc)};
    const void *base = o->stream ? o->stream : o->c;
    int64_t size = o->stream ? (int64_t)sizeof(float) : (int64_t)dtype_bytes(o->out_type);
    int lines = (int)((NR * size + CACHE_LINE - 1) / CACHE_LINE);
    return (place){(const char *)base + (m * o->ldc + n) * size, o->ldc * size, lines, (int)factors(kc) / (lines * MR + 1) + 1};
}

#ifdef PT_QUADS

enum { FEWEST_ROWS = 2 };

INLINE void tile_step(int rows, const factor_at *a, int64_t ld, const factor *b, vec s[MR][2])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i += 2)
        factor_fma_blocks(a + i * ld, b, s + i);
}

INLINE void tile_rows(int rows, vec s[MR][2])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i += 2)
        blocks_to_rows(s + i);
}

#else

enum { FEWEST_ROWS = 1 };

/* s += factors a[i * ld] of `rows` rows . b[0 .. NR) */
INLINE void tile_step(int rows, const factor_at *a, int64_t ld, const factor *b, vec s[MR][2])
{
#if defined(__aarch64__)
    if (ld == 1 && rows % 4 == 0) { /* four rows are the lanes of a register */
#pragma GCC unroll 4
        for (int i = 0; i < rows; i += 4)
            factor_fma_lanes(a + i, b, s + i);
        return;
    }
#endif
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        s[i][0] = factor_fma(a + i * ld, b, s[i][0]);
        s[i][1] = factor_fma(a + i * ld, b + VL, s[i][1]);
    }
}

INLINE void tile_rows(int rows, vec s[MR][2]) {}

#endif

/* sum (rows, NR) = or += a (kc, rows)^T . b (kc, NR). Factor k of row i of a is at k * step + i * ld. `rows`, and of packed lines also step
 * and ld, are constants where this is inlined. */
INLINE void register_tile(int rows, int kc, const factor_at *a, int64_t step, int64_t ld, const factor *b, float *sum, bool first,
                          const place *c)
{
    vec s[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        if (!first) /* needed at the end, perhaps not in the cache */
            __builtin_prefetch(sum + i * SUM_LD, 1);
        s[i][0] = s[i][1] = (vec){0};
    }
    int length = (int)factors(kc), lines = rows * c->lines;
    const char *row = c->at, *at = row;
    for (int k = 0, line = 0; k < length; line++) {
        if (line < lines) {
            __builtin_prefetch(at, 1);
            at += CACHE_LINE;
            if (at == row + c->lines * CACHE_LINE)
                at = row += c->step;
        }
        int end = k + c->stretch < length ? k + c->stretch : length;
        for (; k < end; k++, a += step, b += NR)
            tile_step(rows, a, ld, b, s);
    }
    tile_rows(rows, s);
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

/* Few rows are computed without padding, so that a matmul with one row takes as long as reading b. */
static void register_tile_rows(int64_t rows, int kc, const factor *a, const factor *b, float *sum, bool first, const place *c)
{
    if (rows <= FEWEST_ROWS)
        register_tile(FEWEST_ROWS, kc, a, MR, 1, b, sum, first, c);
    else if (rows == 2)
        register_tile(2, kc, a, MR, 1, b, sum, first, c);
    else if (rows <= 4)
        register_tile(4, kc, a, MR, 1, b, sum, first, c);
    else
        register_tile(MR, kc, a, MR, 1, b, sum, first, c);
}

static void register_tile_direct(int64_t ld, int kc, const factor_at *a, const factor *b, float *sum, bool first, const place *c)
{
    register_tile(MR, kc, a, 1, ld, b, sum, first, c);
}

/* ---- c from the sums ------------------------------------------------------------------------ */

static void epilogue(const op_matmul *o, float *sum, int64_t m0, int64_t rows, int64_t n0, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        epilogue_row(o, sum + i * SUM_LD, m0 + i, n0, cols);
}

/* ---- the rectangle -------------------------------------------------------------------------- */

/* A block of K: rows of a, and a panel of b. */
typedef struct k_lines { lines a; const factor *b; int kc; } k_lines;

static void add_block(const k_lines *k, int64_t rows, int64_t i, float *sum, bool first, const place *c)
{
    if (FACTOR_K == 2 && i < k->a.direct)
        register_tile_direct(k->a.ld, k->kc, k->a.rows + i * k->a.ld, k->b, sum, first, c);
    else
        register_tile_rows(rows - i, k->kc, k->a.panels + i * factors(k->kc), k->b, sum, first, c);
}

/* Adds a block to the sums of NR columns, and perhaps a short one, as long as a register tile's sums are in the L1 cache. */
static void panel_sums(const k_lines *k, const k_lines *more, int64_t rows, float *sum, bool first, place c)
{
    const place none = {NULL, 0, 0, more ? (int)factors(more->kc) : 0};
    for (int64_t i = 0; i < rows; i += MR, c.at += MR * c.step, sum += MR * SUM_LD) {
        add_block(k, rows, i, sum, first, &c);
        if (more)
            add_block(more, rows, i, sum, false, &none);
    }
}

/* A block of K, in either part of the sum. */
typedef struct k_part {
    const op_matmul *o;
    gathered from;
    int64_t k0;
    int kc;
    bool first, last; /* of all blocks */
} k_part;

static void row_group(const k_part *k, int64_t m0, int64_t rows, int64_t n0, int64_t cols, bool pack_columns, scratch *s, float *sum)
{
    const op_matmul *o = k->o;
    const operand a = {o->a, o->type, o->layout != MATMUL_TN, o->lda}, b = {o->b, o->type, o->layout == MATMUL_NT, o->ldb};
    k_lines block = {lines_of(&a, m0, rows, o->k, k->k0, s->a), NULL, k->kc};
    if (k->from.a) {
        block.a.direct = 0;
        pack_lines(&a, k->from.a, m0, rows, MR, k->k0, k->kc, s->side_by_side, s->a);
    } else {
        pack_a(&a, &block.a, m0, rows, k->k0, k->kc);
    }
    for (int64_t j = 0; j < cols; j += NR) {
        factor *panel = s->b + j * factors(k->kc);
        if (pack_columns && j % PACK_COLS == 0)
            pack_lines(&b, k->from.b, n0 + j, cols - j < PACK_COLS ? cols - j : PACK_COLS, NR, k->k0, k->kc,
                       s->side_by_side, panel);
        block.b = panel;
        panel_sums(&block, NULL, rows, sum + j, k->first, place_of(o, m0, n0 + j, k->kc, k->last));
    }
}

/* Adds a part of the sum; after the last part computes c. */
static void add_part(const op_matmul *o, gathered from, bool first, bool last, int64_t m0, int64_t rows, int64_t n0, int64_t cols,
                     scratch *s)
{
    int block = k_block(o->k);
    for (int64_t k0 = 0; k0 < o->k; k0 += block) {
        int kc = o->k - k0 < block ? (int)(o->k - k0) : block;
        const k_part k = {o, from, k0, kc, first && k0 == 0, last && k0 + kc == o->k};
        for (int64_t i = 0; i < rows; i += ROW_GROUP) {
            int64_t group = rows - i < ROW_GROUP ? rows - i : ROW_GROUP;
            row_group(&k, m0 + i, group, n0, cols, i == 0, s, s->sum + i * SUM_LD);
            if (k.last)
                epilogue(o, s->sum + i * SUM_LD, m0 + i, group, n0, cols);
        }
    }
}

void KERNEL(matmul_gathered)(const op_matmul *o, gathered from, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *memory)
{
    scratch *s = memory;
    const op_matmul more = matmul_more(o);
    add_part(o, from, true, !more.k, m0, rows, n0, cols, s);
    add_part(&more, (gathered){NULL, NULL}, !o->k, true, m0, rows, n0, cols, s);
    if (o->k || more.k)
        return;
    for (int64_t i = 0; i < rows; i++)
        memset(s->sum + i * SUM_LD, 0, (size_t)cols * sizeof(float));
    epilogue(o, s->sum, m0, rows, n0, cols);
}

void KERNEL(matmul_tile)(const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *memory)
{
    KERNEL(matmul_gathered)(o, (gathered){NULL, NULL}, m0, rows, n0, cols, memory);
}

/* ---- with b already packed ------------------------------------------------------------------ */

#ifdef PT_PAIRS

enum {
    KEPT_FACTORS = 4096 / FACTOR_K, /* along k: up to this, all blocks of a group of rows stay packed */
    KEPT_COLS = 256 /* columns at a time in that case: their sums and part of c stay in the L2 cache */
};

typedef struct group_scratch {
    _Alignas(64) factor a[ROW_GROUP * KEPT_FACTORS + 8];
    _Alignas(64) float sum[ROW_GROUP * SUM_LD];
} group_scratch;
_Static_assert(sizeof(group_scratch) <= PACKED_AT, "what is packed lies behind it");

/* The panel of the NR columns from j on. */
static factor *packed_panel(const packed *b, int64_t j, int64_t k0, int kc)
{
    return (factor *)packed_group(b, j / COL_GROUP) + factors(k0) * COL_GROUP + j % COL_GROUP * factors(kc);
}

static void pack_part(const op_matmul *o, const packed *b, int64_t j, int64_t cols)
{
    operand from = {o->b, o->type, o->layout == MATMUL_NT, o->ldb};
    int block = k_block(o->k);
    for (int64_t k0 = 0; k0 < o->k; k0 += block) {
        int kc = o->k - k0 < block ? (int)(o->k - k0) : block;
        pack(&from, b->n0 + j, cols, NR, k0, kc, packed_panel(b, j, k0, kc));
    }
}

void KERNEL(matmul_pack)(const op_matmul *o, const packed *b, int64_t j, int64_t cols)
{
    const op_matmul more = matmul_more(o);
    const packed behind = packed_more(o, b, 1);
    pack_part(o, b, j, cols);
    pack_part(&more, &behind, j, cols);
}

/* A group of rows, in one part of the sum. */
typedef struct row_part {
    const op_matmul *o;
    const packed *b;
    int64_t m0, rows;
    factor *panels;
    bool keeps, first, last;
} row_part;

/* A block of K, without the panel of b. pack: its rows are not packed yet. */
static k_lines block_of(const row_part *p, int64_t k0, int kc, bool pack)
{
    const op_matmul *o = p->o;
    const operand a = {o->a, o->type, o->layout != MATMUL_TN, o->lda};
    const k_lines k = {lines_of(&a, p->m0, p->rows, o->k, k0, p->panels + (p->keeps ? factors(k0) * ROW_GROUP : 0)), NULL, kc};
    if (pack)
        pack_a(&a, &k.a, p->m0, p->rows, k0, kc);
    return k;
}

/* Adds it for columns [j, j + width), and after the last block `more`, which is one block or NULL. */
static void add_packed(const row_part *p, const row_part *more, int64_t j, int64_t width, bool pack, float *sum)
{
    const op_matmul *o = p->o;
    int block = k_block(o->k);
    for (int64_t k0 = 0; k0 < o->k; k0 += block) {
        int kc = o->k - k0 < block ? (int)(o->k - k0) : block;
        const bool end = k0 + kc == o->k, adds = more && end;
        k_lines k = block_of(p, k0, kc, pack), short_k = adds ? block_of(more, 0, (int)more->o->k, pack) : k;
        for (int64_t i = 0; i < width; i += NR) {
            k.b = packed_panel(p->b, j + i, k0, kc);
            short_k.b = adds ? packed_panel(more->b, j + i, 0, short_k.kc) : NULL;
            panel_sums(&k, adds ? &short_k : NULL, p->rows, sum + i, p->first && k0 == 0,
                       place_of(o, p->m0, p->b->n0 + j + i, kc, (p->last || adds) && end));
        }
    }
}

void KERNEL(matmul_packed)(const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t j, int64_t cols, void *memory)
{
    group_scratch *s = memory;
    const op_matmul more = matmul_more(o);
    const packed behind = packed_more(o, b, 1);
    const bool keeps = factors(o->k) + factors(more.k) <= KEPT_FACTORS, together = keeps && more.k && more.k <= k_block(more.k);
    const row_part first = {o, b, m0, rows, s->a, keeps, true, !more.k};
    const row_part second = {&more, &behind, m0, rows, s->a + (keeps ? factors(o->k) * ROW_GROUP : 0), keeps, false, true};
    int64_t at_once = keeps ? KEPT_COLS : TILE_COLS;
    for (int64_t end = j + cols, from = j; from < end; from += at_once) {
        int64_t width = end - from < at_once ? end - from : at_once;
        bool pack = from == j || !keeps;
        add_packed(&first, together ? &second : NULL, from, width, pack, s->sum);
        if (!together)
            add_packed(&second, NULL, from, width, pack, s->sum);
        epilogue(o, s->sum, m0, rows, b->n0 + from, width);
    }
}

#endif
