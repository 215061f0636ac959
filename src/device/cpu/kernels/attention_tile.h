/* attention_tile.h - matmuls of small tiles, and the query side of a tile.
 *
 * Attention's five matmuls (S = K Q^T, O^T += V^T P, dV += P dO ...) are all
 *
 *     c[row][lane] (+)= sum over k of a(row, k) * b[k][lane]
 *
 * with a's operands (attention_operand.h) broadcast one by one and b read as whole vectors. Scores are transposed, keys by queries, so that
 * a softmax is vertical: a vector has one key's scores of 16, 8 or 4 queries. K and V are then used as they are in memory (widened to fp32,
 * or V's rows paired); Q, and dO in backward, are transposed once per tile.
 *
 * A block of VECTOR_ROWS x 3 vectors stays in registers: 12 of 16, or 24 of 32 with AVX-512 or NEON (for BFMMLA as 2 x 2 blocks of sums).
 * Each element of c is one chain of fma over ascending k, whatever the blocks: a result does not depend on how a matmul was divided, and a
 * later matmul can continue a sum. AMX adds up to 32 elements to c in an order of its own; there, boundaries are on the grid of keys and
 * panels, 32 apart.
 */
#ifndef PT_ATTENTION_TILE_H
#define PT_ATTENTION_TILE_H

#include "device/cpu/kernels/attention_ahead.h"
#include "device/cpu/kernels/attention_keys.h"

#define ATT_INLINE static inline __attribute__((always_inline))
#define ATT_APART __attribute__((noinline)) /* a function of its own has all registers */

#if defined(__AVX512F__) || defined(__aarch64__)
enum { VECTOR_ROWS = 8 };
#else
enum { VECTOR_ROWS = 4 };
#endif

/* Granularity of matmuls: rows of a block; lanes of a full block, of which ATT_QUERIES is a multiple; lanes computed together; operands of
 * the depth. */
#ifdef PT_TILES
enum { BLOCK_ROWS = 32, PANEL = 32, LANE_GRID = PANEL, DEPTH_GRID = 16, ATT_QUERIES = ATT_AMX_QUERIES };
#else
enum { BLOCK_ROWS = VECTOR_ROWS, PANEL = 3 * VEC, LANE_GRID = VEC, DEPTH_GRID = TOGETHER, ATT_QUERIES = ATT_VECTOR_QUERIES };
#endif

enum { COLUMN_ROWS = OPERAND_ELEMENTS * TOGETHER }; /* rows that become columns of operands at once */
enum { DEPTH_PER_LINE = 4 }; /* depth of a block per prefetched line */

/* How many of the remaining vectors are computed next. A single one would not keep the fma units busy, so 4 are 2 and 2. */
static inline int64_t block_vecs(int64_t left) { return left == 4 ? 2 : least(left, 3); }

typedef enum matmul_mode {
    MATMUL_SET,   /* c = sum */
    MATMUL_ADD,   /* c += sum, as one chain */
    MATMUL_SCALED /* c = c * scale[lane], then as ADD */
} matmul_mode;

/* The number of operands for n elements; and as the depth of a matmul, padded with zeros. */
static inline int64_t operands(int64_t n) { return round_up(n, OPERAND_ELEMENTS) / OPERAND_ELEMENTS; }
static inline int64_t depth_of(int64_t n) { return round_up(operands(n), DEPTH_GRID); }

/* Where operand k of a row is, in a left factor. */
static inline int64_t row_offset(int64_t k) { return k * TOGETHER; }

/* One block: VECTOR_ROWS x `vecs` vectors; mode and vecs are constants. a(row, k) is a[row * row_stride + k * k_stride]; depth is in
 * operands. For BFMMLA, where sums are in blocks of two rows and two lanes, the constant k_stride tells the form of a. */
#ifdef PT_QUADS

/* Vectors of rows i and i + 1 of c, as two blocks of sums. */
ATT_INLINE void blocks_load(matmul_mode mode, const float *c, int64_t ldc, const float *scale, float32x4_t s[2])
{
    vec a = {0}, b = {0};
    if (mode != MATMUL_SET)
        a = vec_load(c), b = vec_load(c + ldc);
    if (mode == MATMUL_SCALED)
        a *= vec_load(scale), b *= vec_load(scale);
    s[0] = (float32x4_t)vzip1q_f64((float64x2_t)a, (float64x2_t)b);
    s[1] = (float32x4_t)vzip2q_f64((float64x2_t)a, (float64x2_t)b);
}

ATT_INLINE void blocks_store(float *c, int64_t ldc, const float32x4_t s[2])
{
    vec_store(c, (vec)vzip1q_f64((float64x2_t)s[0], (float64x2_t)s[1]));
    vec_store(c + ldc, (vec)vzip2q_f64((float64x2_t)s[0], (float64x2_t)s[1]));
}

ATT_INLINE void matmul_block(matmul_mode mode, int vecs, const operand *a, int64_t row_stride,
                              int64_t k_stride, const operand *b, int64_t ldb, float *c, int64_t ldc,
                              int64_t depth, const float *scale)
{
    enum { ROW_PAIRS = VECTOR_ROWS / 2 };
    float32x4_t sum[ROW_PAIRS][6];
#pragma GCC unroll 4
    for (int r = 0; r < ROW_PAIRS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++)
            blocks_load(mode, c + 2 * r * ldc + v * VEC, ldc, scale + v * VEC, &sum[r][2 * v]);
    for (int64_t k = 0; k < depth; k += 2) {
        bfloat16x8_t row[ROW_PAIRS];
#pragma GCC unroll 4
        for (int r = 0; r < ROW_PAIRS; r++)
            row[r] = (bfloat16x8_t)operand_load(k_stride == 1 ? a + 2 * r * row_stride : a + r % 2 * k_stride + r / 2 * VEC);
#pragma GCC unroll 6
        for (int v = 0; v < 2 * vecs; v++) {
            const bfloat16x8_t lanes = (bfloat16x8_t)operand_load(b + v % 2 * ldb + v / 2 * VEC);
#pragma GCC unroll 4
            for (int r = 0; r < ROW_PAIRS; r++)
                sum[r][v] = vbfmmlaq_f32(sum[r][v], row[r], lanes);
        }
        a += k_stride == 1 ? row_offset(2) : 2 * k_stride;
        b += 2 * ldb;
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROW_PAIRS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++)
            blocks_store(c + 2 * r * ldc + v * VEC, ldc, &sum[r][2 * v]);
}

#else

ATT_INLINE void matmul_block(matmul_mode mode, int vecs, const operand *a, int64_t row_stride,
                              int64_t k_stride, const operand *b, int64_t ldb, float *c, int64_t ldc,
                              int64_t depth, const float *scale)
{
    vec sum[VECTOR_ROWS][3];
#pragma GCC unroll 8
    for (int r = 0; r < VECTOR_ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++) {
            if (mode == MATMUL_SET)
                sum[r][v] = (vec){0};
            else if (mode == MATMUL_ADD)
                sum[r][v] = vec_load(c + r * ldc + v * VEC);
            else
                sum[r][v] = vec_load(c + r * ldc + v * VEC) * vec_load(scale + v * VEC);
        }
    for (int64_t k = 0; k < depth; k++) {
        operand_vec row[3];
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++)
            row[v] = operand_load(b + v * VEC);
#pragma GCC unroll 8
        for (int r = 0; r < VECTOR_ROWS; r++) {
            const operand_one x = operand_load_one(a + r * row_stride);
#pragma GCC unroll 3
            for (int v = 0; v < vecs; v++)
                sum[r][v] = operand_fma_one(x, row[v], sum[r][v]);
        }
        a += k_stride;
        b += ldb;
    }
#pragma GCC unroll 8
    for (int r = 0; r < VECTOR_ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++)
            vec_store(c + r * ldc + v * VEC, sum[r][v]);
}

#endif

ATT_INLINE void matmul_column(matmul_mode mode, int vecs, const operand *a, int64_t row_stride,
                               int64_t k_stride, const operand *b, int64_t ldb, float *c, int64_t ldc,
                               int64_t rows, int64_t depth, const float *scale, rows_ahead *ahead)
{
    for (int64_t r = 0; r < rows; r += VECTOR_ROWS) {
        matmul_block(mode, vecs, a + r * row_stride, row_stride, k_stride, b, ldb, c + r * ldc, ldc,
                      depth, scale);
        rows_prefetch(ahead, depth / DEPTH_PER_LINE);
    }
}

/* matmul: computes c (rows, vecs * VEC) by blocks. Rows are rounded up to whole blocks, for which a and c must have room. depth is a
 * multiple of DEPTH_GRID. With PT_TILES, k_stride is 1. */
#ifdef __AMX_BF16__

#include "device/cpu/kernels/attention_amx.h"

ATT_INLINE void matmul(matmul_mode mode, const operand *a, int64_t row_stride, int64_t k_stride, const operand *b, int64_t ldb,
                        float *c, int64_t ldc, int64_t rows, int64_t vecs, int64_t depth, const float *scale, rows_ahead *ahead)
{
    for (int64_t lane = 0; lane < vecs * VEC; lane += 32)
        for (int64_t r = 0; r < rows; r += 32) {
            tiles_matmul(mode, a + r * row_stride, row_stride, b + lane, ldb, c + r * ldc + lane, ldc, depth,
                          mode == MATMUL_SCALED ? scale + lane : NULL);
            rows_prefetch(ahead, depth / DEPTH_PER_LINE);
        }
}

#else

static inline void tiles_open(void) {}
static inline void tiles_close(void) {}

ATT_INLINE void matmul(matmul_mode mode, const operand *a, int64_t row_stride, int64_t k_stride,
                        const operand *b, int64_t ldb, float *c, int64_t ldc, int64_t rows,
                        int64_t vecs, int64_t depth, const float *scale, rows_ahead *ahead)
{
    rows = round_up(rows, BLOCK_ROWS);
    while (vecs > 0) {
        int n = (int)block_vecs(vecs);
        if (n == 3)
            matmul_column(mode, 3, a, row_stride, k_stride, b, ldb, c, ldc, rows, depth, scale, ahead);
        else if (n == 2)
            matmul_column(mode, 2, a, row_stride, k_stride, b, ldb, c, ldc, rows, depth, scale, ahead);
        else
            matmul_column(mode, 1, a, row_stride, k_stride, b, ldb, c, ldc, rows, depth, scale, ahead);
        b += n * VEC;
        c += n * VEC;
        scale += mode == MATMUL_SCALED ? n * VEC : 0;
        vecs -= n;
    }
}

#endif

/* Loads columns as a matmul's left factor. For AMX tiles they are transposed to (dim, whole / n), along the depth, with rows up to `whole`
 * 0. `room`: scratch of the same size. */
static inline void load_factor(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t whole, int64_t dim, operand *dst,
                               operand *room, int64_t padded)
{
#ifdef PT_TILES
    load_columns(type, src, ld, rows, dim, room, padded, whole);
    transpose(room, padded, operands(whole), padded, dst, operands(whole));
#else
    load_columns(type, src, ld, rows, dim, dst, padded, round_up(rows, BLOCK_ROWS));
#endif
}

#ifdef PT_TILES
static inline int64_t factor_row_stride(int64_t padded, int64_t whole) { return operands(whole); }
static inline int64_t factor_depth_stride(int64_t padded) { return 1; }
#else
static inline int64_t factor_row_stride(int64_t padded, int64_t whole) { return 1; }
static inline int64_t factor_depth_stride(int64_t padded) { return padded; }
#endif

static inline void store_row(pt_dtype type, const float *restrict src, int64_t dim, void *dst)
{
    int64_t d = 0;
#ifdef __AVX512BF16__
    for (; type == PT_BF16 && d + VEC <= dim; d += VEC)
        _mm256_storeu_si256((__m256i *)((bf16 *)dst + d), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(src + d)));
#endif
    if (type == PT_BF16)
        for (; d < dim; d++)
            ((bf16 *)dst)[d] = bf16_from_f32(src[d]);
    else
        memcpy(dst, src, (size_t)dim * sizeof(float));
}

/* ---- capped scores ---------------------------------------------------------------------------- */

/* Scores become cap * tanh(times * score), which includes the scale. cap 0: no cap. */
typedef struct score_cap { float cap, times; } score_cap;

static inline score_cap score_cap_of(const op_attention *o)
{
    return o->softcap != 0 ? (score_cap){o->softcap, matmul_scale(o->scale) / o->softcap} : (score_cap){0, 0};
}

/* The factor for scores if the scale is not in the operands. */
static inline float score_scale(const op_attention *o) { return o->softcap != 0 ? 1 : o->scale; }

static inline vec capped(const score_cap *c, vec score) { return vec_tanh(score * c->times) * c->cap; }

/* ---- the query side of a tile ---------------------------------------------------------------- */

/* The keys that some lanes see: minimum and maximum of the first key and of the last key. */
typedef struct lane_bounds { int32_t lo_min, lo_max, hi_min, hi_max; } lane_bounds;

/* Queries [start, start + count) of (seq, head), and the keys that each sees. Lanes past `count` repeat the last query, so that they never
 * make a panel masked. */
typedef struct tile_queries {
    int64_t seq, head, start, count, vecs;  /* vecs: vectors for `count` lanes */
    int32_t lo[ATT_QUERIES], hi[ATT_QUERIES];
    lane_bounds of_vec[ATT_QUERIES / VEC];
    int32_t lo_min, hi_max;
} tile_queries;

/* Lanes [lane, lane + vecs * VEC) and a tile of keys. keys: how many of the keys, counted from the first, some lane sees (0: none). masked:
 * a mask is needed. Last keys ascend with the lanes, so that the first vectors may see fewer keys: rows[v] of them, in whole blocks, are
 * computed for vector v and those after it. */
typedef struct panel_view { int64_t lane, vecs, keys, rows[PANEL / VEC]; bool masked; } panel_view;

static inline lane_bounds bounds_join(lane_bounds a, lane_bounds b)
{
    return (lane_bounds){b.lo_min < a.lo_min ? b.lo_min : a.lo_min, b.lo_max > a.lo_max ? b.lo_max : a.lo_max,
                         b.hi_min < a.hi_min ? b.hi_min : a.hi_min, b.hi_max > a.hi_max ? b.hi_max : a.hi_max};
}

static inline lane_bounds vec_bounds(const int32_t lo[VEC], const int32_t hi[VEC])
{
    lane_bounds b = {lo[0], lo[0], hi[0], hi[0]};
    for (int i = 1; i < VEC; i++) {
        b.lo_min = lo[i] < b.lo_min ? lo[i] : b.lo_min;
        b.lo_max = lo[i] > b.lo_max ? lo[i] : b.lo_max;
    }
    for (int i = 1; i < VEC; i++) {
        b.hi_min = hi[i] < b.hi_min ? hi[i] : b.hi_min;
        b.hi_max = hi[i] > b.hi_max ? hi[i] : b.hi_max;
    }
    return b;
}

static inline void tile_queries_set(tile_queries *t, const op_attention *o, int64_t seq, int64_t head,
                                    int64_t tile)
{
    const lane_bounds none = {INT32_MAX, 0, INT32_MAX, 0};
    lane_bounds all = none;
    t->seq = seq, t->head = head, t->start = tile * ATT_QUERIES;
    t->count = least(ATT_QUERIES, o->q_len - t->start);
    t->vecs = round_up(t->count, LANE_GRID) / VEC;
    for (int64_t v = 0; v < ATT_QUERIES / VEC; v++) {
        for (int64_t i = v * VEC; i < (v + 1) * VEC; i++)
            attention_range(o, seq, t->start + least(i, t->count - 1), &t->lo[i], &t->hi[i]);
        t->of_vec[v] = vec_bounds(t->lo + v * VEC, t->hi + v * VEC);
        all = bounds_join(all, t->of_vec[v]);
    }
    t->lo_min = all.lo_min, t->hi_max = all.hi_max;
}

/* The query tile after q; new_keys: it has other keys; head < 0: not known. */
typedef struct next_tile { int64_t seq, head, tile; bool new_keys; } next_tile;

static inline next_tile task_next(const attention_task *a, const tile_queries *q)
{
    int64_t tile = q->start / ATT_QUERIES + 1;
    if (tile < a->end)
        return (next_tile){q->seq, q->head, tile, false};
    if (q->head + 1 < a->head + a->heads)
        return (next_tile){q->seq, q->head + 1, a->from, false};
    return (next_tile){a->next_seq, a->next_head, 0, true};
}

static inline lane_bounds panel_bounds(const tile_queries *t, const panel_view *v)
{
    lane_bounds b = t->of_vec[v->lane / VEC];
    for (int64_t i = 1; i < v->vecs; i++)
        b = bounds_join(b, t->of_vec[v->lane / VEC + i]);
    return b;
}

static inline panel_view panel_see(const tile_queries *t, int64_t lane, int64_t key, int64_t keys)
{
    panel_view v = {.lane = lane, .vecs = LANE_GRID == PANEL ? PANEL / VEC : block_vecs(t->vecs - lane / VEC)};
    lane_bounds b = panel_bounds(t, &v);
    if (b.lo_min >= key + keys || b.hi_max < key)
        return v;
    v.keys = least(keys, b.hi_max - key + 1);
    v.masked = b.lo_max > key || b.hi_min < key + round_up(v.keys, BLOCK_ROWS) - 1;
    for (int64_t i = 0; i < v.vecs; i++) {
        int64_t last = LANE_GRID == PANEL ? b.hi_max : t->of_vec[lane / VEC + i].hi_max;
        v.rows[i] = round_up(least(keys, most(0, last - key + 1)), BLOCK_ROWS);
    }
    return v;
}

#endif
