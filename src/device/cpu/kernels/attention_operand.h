/* attention_operand.h - the operands of attention's matmuls.
 *
 * An operand is one float or, in the copies for AVX512-BF16, FEAT_BF16 and AMX (PT_PAIRS), two bf16 that are neighbours along the matmul's
 * depth, the index that is summed over. One instruction multiplies a vector of pairs and adds both products of each to an fp32 sum, so a
 * matmul takes half as many instructions; with tiles (attention_amx.h) far fewer. Q, K, V and dO are bf16 in memory and lose nothing. The
 * probabilities and the gradients of the scores are rounded to bf16 before they are multiplied; the sum of the probabilities is not. Scaled
 * queries would be rounded too, so the scores are scaled instead.
 *
 * A tile of a tensor has one of two forms, which are the same in fp32:
 *
 *     rows     (row, dim / n)      operands along a row, as in memory: for sums over the dim
 *     columns  (row / n, dim)      operands down a column, from n = OPERAND_ELEMENTS rows: for sums over the rows
 *
 * BFMMLA multiplies TOGETHER operands along the depth, of as many rows and lanes, at once; attention_quads.h has their places.
 *
 * The grid of tiles alone determines where a sum begins and which elements make a pair, so results do not depend on the division into
 * tasks.
 */
#ifndef PT_ATTENTION_OPERAND_H
#define PT_ATTENTION_OPERAND_H

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/attention_vec.h"

#ifdef __AVX512F__
#include "device/cpu/kernels/transpose.h"
#endif

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

enum { ROWS_AHEAD = 16 }; /* prefetch distance, in rows of q, k, v ... */

/* The address of element `offset` of a tensor. */
static inline const void *row_of(pt_dtype type, const void *base, int64_t offset)
{
    return type == PT_BF16 ? (const void *)((const bf16 *)base + offset)
                           : (const void *)((const float *)base + offset);
}

/* The rows of one head are pages apart, where the hardware prefetcher does not help. */
static inline void prefetch_row(pt_dtype type, const void *row, int64_t dim)
{
    for (int64_t at = 0; at < dim * (int64_t)dtype_bytes(type); at += 64)
        __builtin_prefetch((const char *)row + at);
}

#ifdef PT_PAIRS

enum { OPERAND_ELEMENTS = 2 };
typedef uint32_t operand; /* the first element in the lower half */
typedef bf16 half __attribute__((may_alias)); /* of an operand */
typedef ivec operand_vec;

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define PT_QUADS /* blocks of 2 x 2 sums, for BFMMLA */
enum { TOGETHER = 2 };
#else
enum { TOGETHER = 1 };
#endif

static inline operand_vec operand_load(const operand *p) { return ivec_load((const int32_t *)p); }
static inline operand_vec operand_all(operand x) { return ivec_all((int32_t)x); }

#ifdef __AVX512BF16__

/* c + a.low * b.low + a.high * b.high */
static inline vec operand_fma(operand_vec a, operand_vec b, vec c)
{
    return (vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
/* Two rows' vectors rounded to bf16: operands down the columns. With TOGETHER 2, four rows' vectors: two rows of operands, `ld` apart. */
static inline void store_column_operands(operand *dst, int64_t ld, const vec x[OPERAND_ELEMENTS])
{
    static const uint16_t order[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)x[1], (__m512)x[0]);
    _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(_mm512_loadu_si512(order), both));
}
/* TOGETHER rows' vectors rounded to bf16: VEC / 2 operands along each row. */
static inline void store_row_operands(operand *dst, const vec x[TOGETHER])
{
    _mm256_storeu_si256((__m256i *)dst, (__m256i)_mm512_cvtneps_pbh((__m512)x[0]));
}

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

static inline vec operand_fma(operand_vec a, operand_vec b, vec c)
{
    return (vec)vbfdotq_f32((float32x4_t)c, (bfloat16x8_t)a, (bfloat16x8_t)b);
}

#else /* the same without the instructions, so that tests can run this code, except vec_exp2, on any processor */

static inline vec operand_fma(operand_vec a, operand_vec b, vec c)
{
    c = vec_fma((vec)(a & -65536), (vec)(b & -65536), c);
    return vec_fma((vec)(a << 16), (vec)(b << 16), c);
}
static inline void store_row_operands(operand *dst, const vec x[TOGETHER])
{
    for (int i = 0; i < VEC; i += 2)
        dst[i / 2] = bf16_from_f32(x[0][i]) | (uint32_t)bf16_from_f32(x[0][i + 1]) << 16;
}
static inline void store_column_operands(operand *dst, int64_t ld, const vec x[OPERAND_ELEMENTS])
{
    for (int i = 0; i < VEC; i++)
        dst[i] = bf16_from_f32(x[0][i]) | (uint32_t)bf16_from_f32(x[1][i]) << 16;
}

#endif

static inline void scale_queries(operand *q, int64_t n, float scale) {}
static inline vec scale_scores(vec x, float scale) { return x * scale; }
static inline float matmul_scale(float scale) { return scale; } /* applied to matmuls that are scores */

static inline float power_scale(float scale) { return scale * 0x1.715476p+0f; /* 1 / ln 2 */ }
static inline vec power_of_two(vec x)
{
#ifdef __AVX512F__
    return vec_exp2(x);
#else
    return vec_exp(x * 0x1.62e430p-1f); /* ln 2 */
#endif
}

/* exp(scale * x), power: power_scale(scale); exactly 1 where x is 0. */
static inline vec power_of(vec x, float power) { return power_of_two(x * power); }

/* exp(scale * score - lse); power: power_scale(scale), shift: lse * power_scale(1). At most 1, because rounding of scores in the billions
 * could make it infinite. */
static inline vec probability_of(vec score, float power, vec shift)
{
    return power_of_two(vec_min((vec){0}, vec_fma(score, vec_all(power), -shift)));
}

/* Dims are usually multiples of 16, and too small for a call of memcpy. */
static inline void copy_row(const bf16 *src, int64_t dim, half *dst)
{
    typedef bf16 sixteen __attribute__((vector_size(32), aligned(2), may_alias));
    int64_t d = 0;
    for (; d + 16 <= dim; d += 16)
        *(sixteen *)(dst + d) = *(const sixteen *)(src + d);
    for (; d < dim; d++)
        dst[d] = src[d];
}

/* Loads rows x dim of src as rows of operands at dst (stride padded / 2). The rest of each row, and the rows up to `padded_rows`, become
 * 0. */
static inline void load_rows(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim, operand *dst, int64_t padded,
                             int64_t padded_rows)
{
    const bf16 *from = src;
    for (int64_t r = 0; r < rows; r++) {
        half *to = (half *)(dst + r * padded / OPERAND_ELEMENTS);
        if (r + ROWS_AHEAD < rows)
            prefetch_row(PT_BF16, from + (r + ROWS_AHEAD) * ld, dim);
        copy_row(from + r * ld, dim, to);
        for (int64_t d = dim; d < padded; d++)
            to[d] = 0;
    }
    if (padded_rows > rows)
        memset(dst + rows * padded / OPERAND_ELEMENTS, 0, (size_t)((padded_rows - rows) * padded) * sizeof(bf16));
}

#ifdef PT_QUADS

#include "device/cpu/kernels/attention_quads.h"

#else

/* dst[d] = low[d] in the lower half, high[d] in the upper; 0 there if `high` is NULL. */
static inline void pair_rows(const bf16 *low, const bf16 *high, int64_t dim, operand *dst)
{
    int64_t d = 0;
    for (; high && d + VEC <= dim; d += VEC)
        *(ivec_memory *)(dst + d) = (ivec)vec_load_bf16(high + d) | ((ivec)vec_load_bf16(low + d) >> 16 & 0xffff);
    for (; d < dim; d++)
        dst[d] = low[d] | (high ? (operand)high[d] << 16 : 0);
}

/* Loads the same as columns of operands (stride padded); padded_rows is even. */
static inline void load_columns(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim, operand *dst, int64_t padded,
                                int64_t padded_rows)
{
    const bf16 *from = src;
    for (int64_t r = 0; r < padded_rows; r += OPERAND_ELEMENTS, dst += padded) {
        int64_t filled = r < rows ? dim : 0;
        for (int64_t ahead = r + ROWS_AHEAD; ahead < least(r + ROWS_AHEAD + OPERAND_ELEMENTS, rows); ahead++)
            prefetch_row(PT_BF16, from + ahead * ld, dim);
        if (r < rows)
            pair_rows(from + r * ld, r + 1 < rows ? from + (r + 1) * ld : NULL, dim, dst);
        for (int64_t d = filled; d < padded; d++)
            dst[d] = 0;
    }
}

#endif

#else

enum { OPERAND_ELEMENTS = 1, TOGETHER = 1 };
typedef float operand;
typedef vec operand_vec;

static inline operand_vec operand_load(const operand *p) { return vec_load(p); }
static inline operand_vec operand_all(operand x) { return vec_all(x); }
static inline vec operand_fma(operand_vec a, operand_vec b, vec c) { return vec_fma(a, b, c); }
static inline void store_row_operands(operand *dst, const vec x[TOGETHER]) { vec_store(dst, x[0]); }
static inline void store_column_operands(operand *dst, int64_t ld, const vec x[OPERAND_ELEMENTS]) { vec_store(dst, x[0]); }

/* Queries are scaled, so scores and their gradients are not. */
static inline vec scale_scores(vec x, float scale) { return x; }
static inline float matmul_scale(float scale) { return 1; }
static inline float power_scale(float scale) { return 1; }
static inline vec power_of(vec x, float power) { return vec_exp(x); }
static inline vec probability_of(vec score, float power, vec shift) { return vec_exp(score - shift); }
static inline void scale_queries(operand *q, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        q[i] *= scale;
}

static inline void load_row(pt_dtype type, const void *src, int64_t dim, float *restrict dst)
{
    int64_t d = 0;
    if (type == PT_BF16) { /* dims are usually multiples of 16 */
        for (; d + VEC <= dim; d += VEC)
            vec_store(dst + d, vec_load_bf16((const bf16 *)src + d));
        for (; d < dim; d++)
            dst[d] = bf16_to_f32(((const bf16 *)src)[d]);
        return;
    }
    memcpy(dst, src, (size_t)dim * sizeof(float));
}

/* `type` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void load_rows_of(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim,
                                                               operand *dst, int64_t padded)
{
    for (int64_t r = 0; r < rows; r++) {
        if (r + ROWS_AHEAD < rows)
            prefetch_row(type, row_of(type, src, (r + ROWS_AHEAD) * ld), dim);
        load_row(type, row_of(type, src, r * ld), dim, dst + r * padded);
        for (int64_t d = dim; d < padded; d++)
            dst[r * padded + d] = 0;
    }
}

/* Loads rows x dim of src as fp32 at dst (stride padded). The rest of each row, and the rows up to `padded_rows`, become 0. */
static inline void load_rows(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim, operand *dst, int64_t padded,
                             int64_t padded_rows)
{
    if (type == PT_BF16)
        load_rows_of(PT_BF16, src, ld, rows, dim, dst, padded);
    else
        load_rows_of(PT_F32, src, ld, rows, dim, dst, padded);
    if (padded_rows > rows)
        memset(dst + rows * padded, 0, (size_t)((padded_rows - rows) * padded) * sizeof(float));
}

static inline void load_columns(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim, operand *dst, int64_t padded,
                                int64_t padded_rows)
{
    load_rows(type, src, ld, rows, dim, dst, padded, padded_rows);
}

#endif

/* The operand for all lanes. On ARM64 it stays in one: a load into all of them would take the place of a multiplication. */
#if defined(__aarch64__) && !defined(PT_PAIRS)
typedef float32x2_t operand_one;
typedef uint32_t operand_word __attribute__((may_alias));
static inline operand_one operand_load_one(const operand *p) { return vreinterpret_f32_u64(vcreate_u64(*(const operand_word *)p)); }
static inline vec operand_fma_one(operand_one a, operand_vec b, vec c)
{
    return (vec)vfmaq_lane_f32((float32x4_t)c, (float32x4_t)b, a, 0);
}
#else
typedef operand_vec operand_one;
static inline operand_one operand_load_one(const operand *p) { return operand_all(*p); }
static inline vec operand_fma_one(operand_one a, operand_vec b, vec c) { return operand_fma(a, b, c); }
#endif

#ifdef __AVX512F__

static inline void transpose_16(const int32_t *src, int64_t lds, int32_t *dst, int64_t ldd)
{
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_si512(src + i * lds);
    transpose_16x16(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(dst + i * ldd, r[i]);
}

#endif

/* dst[c][r] = src[r][c], 32-bit elements; rows and cols are multiples of 4. */
static inline void transpose(const void *src, int64_t lds, int64_t rows, int64_t cols, void *dst, int64_t ldd)
{
#ifdef __AVX512F__
    if (rows % 16 == 0 && cols % 16 == 0) {
        for (int64_t r = 0; r < rows; r += 16)
            for (int64_t c = 0; c < cols; c += 16)
                transpose_16((const int32_t *)src + r * lds + c, lds, (int32_t *)dst + c * ldd + r, ldd);
        return;
    }
#endif
    typedef int32_t quad __attribute__((vector_size(16), may_alias));
    typedef int32_t element __attribute__((may_alias));
    const quad low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, left = {0, 1, 4, 5}, right = {2, 3, 6, 7};
    for (int64_t r = 0; r < rows; r += 4)
        for (int64_t c = 0; c < cols; c += 4) {
            const element *s = (const element *)src + r * lds + c;
            element *d = (element *)dst + c * ldd + r;
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

#if !defined(__aarch64__) || !defined(PT_PAIRS)

/* Where TOGETHER is 1, a left factor's rows are as others, and columns are rows transposed. */
static inline void load_left_rows(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim, operand *dst, int64_t padded,
                                  int64_t padded_rows)
{
    load_rows(type, src, ld, rows, dim, dst, padded, padded_rows);
}
static inline void transpose_operands(const operand *src, int64_t lds, int64_t rows, int64_t cols, operand *dst, int64_t ldd)
{
    transpose(src, lds, rows, cols, dst, ldd);
}
static inline vec operands_fma(const operand *a, const operand *b, int64_t ld, vec c)
{
    return operand_fma(operand_load(a), operand_load(b), c);
}

#endif

#endif
