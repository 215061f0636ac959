/* attention_tile.h - products of small fp32 tiles, and the way in and out of them.
 *
 * Attention's five products (S = K Q^T, O^T += V^T P, dV += P dO ...) are all
 *
 *     c[row][lane] (+)= sum over k of a(row, k) * b[k][lane]
 *
 * with a's elements broadcast one by one and b read as whole vectors. Scores lie transposed, keys
 * by queries, so that a softmax is vertical: a vector holds one key's scores of 16, 8 or 4 queries.
 * K and V are then needed as they lie in memory (only widened to fp32); Q, and dO in backward, are
 * transposed once per tile.
 *
 * A block of BLOCK_ROWS x 3 vectors lives in registers: 12 of 16, or 24 of 32 with AVX-512. Each
 * element of c is one chain of fma over ascending k, whatever the blocks: a result does not depend
 * on how a product was cut, and a sum may be continued by a later product.
 */
#ifndef PT_ATTENTION_TILE_H
#define PT_ATTENTION_TILE_H

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/attention_vec.h"

#define ATT_INLINE static inline __attribute__((always_inline))
#define ATT_APART __attribute__((noinline)) /* a product of its own keeps its registers to itself */

#if defined(__AVX512F__)
enum { BLOCK_ROWS = 8 };
#else
enum { BLOCK_ROWS = 4 };
#endif

enum { ROWS_AHEAD = 16 }; /* how early a row of q, k, v ... is asked for */
enum { PANEL = 3 * VEC }; /* lanes of a full block; ATT_QUERIES is a multiple */

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* How many of the vectors that are left go next; a single one would leave the fma units waiting, so 4 are 2 and 2. */
static inline int64_t panel_vecs(int64_t left) { return left == 4 ? 2 : least(left, 3); }

typedef enum product_mode {
    PRODUCT_SET,   /* c = sum */
    PRODUCT_ADD,   /* c += sum, as one chain */
    PRODUCT_SCALED /* c = c * scale[lane], then as ADD */
} product_mode;

/* One block: BLOCK_ROWS x `vecs` vectors; mode and vecs are known when it is compiled. a(row, k) is
 * a[row * row_stride + k * k_stride]. */
ATT_INLINE void product_block(product_mode mode, int vecs, const float *a, int64_t row_stride,
                              int64_t k_stride, const float *b, int64_t ldb, float *c, int64_t ldc,
                              int64_t depth, const float *scale)
{
    vec sum[BLOCK_ROWS][3];
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK_ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++) {
            if (mode == PRODUCT_SET)
                sum[r][v] = (vec){0};
            else if (mode == PRODUCT_ADD)
                sum[r][v] = vec_load(c + r * ldc + v * VEC);
            else
                sum[r][v] = vec_load(c + r * ldc + v * VEC) * vec_load(scale + v * VEC);
        }
    for (int64_t k = 0; k < depth; k++) {
        vec row[3];
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++)
            row[v] = vec_load(b + v * VEC);
#pragma GCC unroll 8
        for (int r = 0; r < BLOCK_ROWS; r++) {
            vec x = vec_all(a[r * row_stride]);
#pragma GCC unroll 3
            for (int v = 0; v < vecs; v++)
                sum[r][v] = vec_fma(x, row[v], sum[r][v]);
        }
        a += k_stride;
        b += ldb;
    }
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK_ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vecs; v++)
            vec_store(c + r * ldc + v * VEC, sum[r][v]);
}

ATT_INLINE void product_column(product_mode mode, int vecs, const float *a, int64_t row_stride,
                               int64_t k_stride, const float *b, int64_t ldb, float *c, int64_t ldc,
                               int64_t rows, int64_t depth, const float *scale)
{
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS)
        product_block(mode, vecs, a + r * row_stride, row_stride, k_stride, b, ldb, c + r * ldc, ldc,
                      depth, scale);
}

/* c (rows, vecs * VEC): rows are taken in whole blocks (a and c must reach that far), vectors by
 * threes and twos. */
ATT_INLINE void product(product_mode mode, const float *a, int64_t row_stride, int64_t k_stride,
                        const float *b, int64_t ldb, float *c, int64_t ldc, int64_t rows,
                        int64_t vecs, int64_t depth, const float *scale)
{
    while (vecs > 0) {
        int n = (int)panel_vecs(vecs);
        if (n == 3)
            product_column(mode, 3, a, row_stride, k_stride, b, ldb, c, ldc, rows, depth, scale);
        else if (n == 2)
            product_column(mode, 2, a, row_stride, k_stride, b, ldb, c, ldc, rows, depth, scale);
        else
            product_column(mode, 1, a, row_stride, k_stride, b, ldb, c, ldc, rows, depth, scale);
        b += n * VEC;
        c += n * VEC;
        scale += mode == PRODUCT_SCALED ? n * VEC : 0;
        vecs -= n;
    }
}

/* The start of row `row` of a tensor whose element (0, 0) is `base + offset`. */
static inline const void *row_of(pt_dtype type, const void *base, int64_t offset)
{
    return type == PT_BF16 ? (const void *)((const bf16 *)base + offset)
                           : (const void *)((const float *)base + offset);
}

/* The rows of one head lie pages apart: without a hint each would be waited for. */
static inline void prefetch_row(pt_dtype type, const void *row, int64_t dim)
{
    for (int64_t at = 0; at < dim * (int64_t)dtype_bytes(type); at += 64)
        __builtin_prefetch((const char *)row + at);
}

static inline void load_row(pt_dtype type, const void *src, int64_t dim, float *restrict dst)
{
    if (type == PT_BF16)
        for (int64_t d = 0; d < dim; d++)
            dst[d] = bf16_to_f32(((const bf16 *)src)[d]);
    else
        memcpy(dst, src, (size_t)dim * sizeof(float));
}

/* rows x dim of src as fp32 at dst (stride padded); the rest of each row, and the rows up to
 * `padded_rows`, become 0. */
static inline void load_rows(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim,
                             float *dst, int64_t padded, int64_t padded_rows)
{
    for (int64_t r = 0; r < rows; r++) {
        if (r + ROWS_AHEAD < rows)
            prefetch_row(type, row_of(type, src, (r + ROWS_AHEAD) * ld), dim);
        load_row(type, row_of(type, src, r * ld), dim, dst + r * padded);
        for (int64_t d = dim; d < padded; d++)
            dst[r * padded + d] = 0;
    }
    if (padded_rows > rows)
        memset(dst + rows * padded, 0, (size_t)((padded_rows - rows) * padded) * sizeof(float));
}

static inline void store_row(pt_dtype type, const float *restrict src, int64_t dim, void *dst)
{
    if (type == PT_BF16)
        for (int64_t d = 0; d < dim; d++)
            ((bf16 *)dst)[d] = bf16_from_f32(src[d]);
    else
        memcpy(dst, src, (size_t)dim * sizeof(float));
}

/* dst[c][r] = src[r][c]; rows and cols are multiples of 4. */
static inline void transpose(const float *src, int64_t lds, int64_t rows, int64_t cols, float *dst,
                             int64_t ldd)
{
    typedef float quad __attribute__((vector_size(16), may_alias));
    typedef int32_t pick __attribute__((vector_size(16)));
    const pick low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, left = {0, 1, 4, 5}, right = {2, 3, 6, 7};
    for (int64_t r = 0; r < rows; r += 4)
        for (int64_t c = 0; c < cols; c += 4) {
            const float *s = src + r * lds + c;
            float *d = dst + c * ldd + r;
            quad a = *(const quad *)s, b = *(const quad *)(s + lds);
            quad e = *(const quad *)(s + 2 * lds), f = *(const quad *)(s + 3 * lds);
            quad ab = __builtin_shuffle(a, b, low), ef = __builtin_shuffle(e, f, low);
            *(quad *)d = __builtin_shuffle(ab, ef, left);
            *(quad *)(d + ldd) = __builtin_shuffle(ab, ef, right);
            ab = __builtin_shuffle(a, b, high), ef = __builtin_shuffle(e, f, high);
            *(quad *)(d + 2 * ldd) = __builtin_shuffle(ab, ef, left);
            *(quad *)(d + 3 * ldd) = __builtin_shuffle(ab, ef, right);
        }
}

/* ---- the query side of a tile ---------------------------------------------------------------- */

/* Queries [start, start + count) of (seq, head): which keys each sees. The lanes past `count`
 * repeat the last query, so that they never make a panel look masked. */
typedef struct tile_queries {
    int64_t seq, head, start, count, vecs;  /* vecs: vectors that hold `count` lanes */
    int32_t lo[ATT_QUERIES], hi[ATT_QUERIES];
    int32_t lo_min, hi_max;
} tile_queries;

/* Lanes [lane, lane + vecs * VEC) against the keys [key, key + keys): how many of the keys, from the
 * first, any of these lanes sees (0: none), and whether a mask is needed. */
typedef struct panel_view { int64_t lane, vecs, keys; bool masked; } panel_view;

static inline void tile_queries_set(tile_queries *t, const op_attention *o, int64_t seq, int64_t head,
                                    int64_t tile)
{
    t->seq = seq, t->head = head, t->start = tile * ATT_QUERIES;
    t->count = least(ATT_QUERIES, o->q_len - t->start);
    t->vecs = round_up(t->count, VEC) / VEC;
    t->lo_min = INT32_MAX, t->hi_max = 0;
    for (int64_t i = 0; i < ATT_QUERIES; i++) {
        attention_range(o, seq, t->start + least(i, t->count - 1), &t->lo[i], &t->hi[i]);
        t->lo_min = t->lo[i] < t->lo_min ? t->lo[i] : t->lo_min;
        t->hi_max = t->hi[i] > t->hi_max ? t->hi[i] : t->hi_max;
    }
}

static inline panel_view panel_see(const tile_queries *t, int64_t lane, int64_t key, int64_t keys)
{
    panel_view v = {.lane = lane, .vecs = panel_vecs(t->vecs - lane / VEC)};
    int32_t lo_min = INT32_MAX, lo_max = 0, hi_min = INT32_MAX, hi_max = 0;
    for (int64_t i = lane; i < lane + v.vecs * VEC; i++) {
        lo_min = t->lo[i] < lo_min ? t->lo[i] : lo_min;
        lo_max = t->lo[i] > lo_max ? t->lo[i] : lo_max;
        hi_min = t->hi[i] < hi_min ? t->hi[i] : hi_min;
        hi_max = t->hi[i] > hi_max ? t->hi[i] : hi_max;
    }
    if (lo_min >= key + keys || hi_max < key)
        return v;
    v.keys = least(keys, hi_max - key + 1);
    v.masked = lo_max > key || hi_min < key + round_up(v.keys, BLOCK_ROWS) - 1;
    return v;
}

#endif
