/* scan_chunk.h - a chunk of a scan, for scan.c and scan_backward.c. Matrices are fp32 and dense; those of rows by rows have stride
 * SCAN_CHUNK. With a[i] = exp(g[i]), 0 where a document begins:
 *
 *     decay[i][j] = a[j + 1] ... a[i], j <= i              since[i] = a[0] ... a[i], of the state before the chunk
 *     p = decay * (q . k^T)                                 a document's rows see no others, nor the state before it
 *     less[i][j] = -beta[i] decay[i][j] (k . k^T)[i][j], j < i
 *
 *     u = beta v - (beta since k) . S                       then u += less . u, row by row: the solution of (1 - less) u = ...
 *     out = (since q) . S + p . u
 *     S = since[n - 1] S + (decay[n - 1] k)^T . u
 *
 * The second term of u and `less` are SCAN_DELTA's alone. Products instead of differences of sums of g keep decay exact after rows that
 * decay much. */
#ifndef PT_KERNEL_SCAN_CHUNK_H
#define PT_KERNEL_SCAN_CHUNK_H

#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/matmul_narrow.h"
#include "device/cpu/kernels/scan.h"
#include "device/cpu/kernels/vmath.h"
#include "device/cpu/pool.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CHUNK = SCAN_CHUNK, SQUARE = CHUNK * CHUNK, SOLVE_ROWS = 16 };

/* Rows of all heads, then what a head adds. */
typedef struct chunk {
    const op_scan *o;
    int64_t seq, row0, n;       /* its rows in the sequence */
    float *q, *k;               /* (n, key_dim): normed, q scaled */
    float *qk, *kk;             /* q . k^T, k . k^T */
    float *decay, *p, *less;
    float *a, *since, *beta;    /* (n) */
    void *narrow;               /* scratch of matmuls */
} chunk;

static INLINE int64_t lanes_of(int64_t n, int64_t i) { return n - i < VEC_LANES ? n - i : VEC_LANES; }
static INLINE int64_t row_of(const chunk *c, int64_t i) { return c->seq * c->o->len + c->row0 + i; }
/* Whether a document begins at row i, at which the state of another one ends. */
static INLINE bool starts(const chunk *c, int64_t i)
{
    return c->o->first && c->row0 + i > 0 && c->o->first[row_of(c, i)] == c->row0 + i;
}

static INLINE int64_t key_head_of(const op_scan *o, int64_t head) { return head / (o->heads / o->key_heads); }

/* The scratch behind that of matmuls. */
static inline float *scratch_begin(void *scratch) { return (float *)((char *)scratch + NARROW_OWN_BYTES); }

/* Takes n floats, by multiples of 64 bytes. */
static inline float *take(float **free, int64_t n)
{
    float *taken = *free;
    *free += (n + 15) / 16 * 16;
    return taken;
}

/* c (+)= a . b */
static inline void product(const chunk *ch, matmul_layout layout, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                           const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
    const op_matmul o = {.layout = layout, .type = PT_F32, .out_type = PT_F32, .accumulate = accumulate, .m = m, .n = n, .k = k, .lda = lda,
                         .ldb = ldb, .ldc = ldc, .a = a, .b = b, .c = c};
    for (int64_t n0 = 0; n0 < n; n0 += NARROW_COLS)
        KERNEL(matmul_narrow)(&o, 0, m, n0, n - n0 < NARROW_COLS ? n - n0 : NARROW_COLS, ch->narrow);
}

/* ---- rows ---- */

/* Partial sums, a lane each. NEON's copy has those of x86-64-v3. */
#if defined(__aarch64__)
enum { PART_VECS = 2 };
#else
enum { PART_VECS = 1 };
#endif
typedef struct parts { vf of[PART_VECS]; } parts;

static INLINE float parts_total(parts p)
{
    vf sum = p.of[0];
    for (int v = 1; v < PART_VECS; v++)
        sum = sum + p.of[v];
    FOLD_LANES(sum, vec_add);
    return sum[0];
}

static INLINE float dot(const float *a, const float *b, int64_t n)
{
    parts sum = {0};
    for (int64_t i = 0; i < n; i += PART_VECS * VEC_LANES)
#pragma GCC unroll 2
        for (int v = 0; v < PART_VECS; v++) {
            const int64_t at = i + v * VEC_LANES;
            sum.of[v] = vec_fma(f32_load(a + at, lanes_of(n, at)), f32_load(b + at, lanes_of(n, at)), sum.of[v]);
        }
    return parts_total(sum);
}

/* to = factor * from (+ to) */
static INLINE void scale_row(const float *from, float factor, bool add, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        const int64_t lanes = lanes_of(n, i);
        const vf x = f32_load(from + i, lanes);
        f32_store(to + i, add ? vec_fma(x, vec_set(factor), f32_load(to + i, lanes)) : x * factor, lanes);
    }
}

static INLINE void load_row(pt_dtype type, const void *from, int64_t at, float factor, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        const int64_t lanes = lanes_of(n, i);
        const vf x = type == PT_BF16 ? load(PT_BF16, from, at + i, lanes) : load(PT_F32, from, at + i, lanes);
        f32_store(to + i, x * factor, lanes);
    }
}

static INLINE void store_row(pt_dtype type, void *to, int64_t at, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        const int64_t lanes = lanes_of(n, i);
        if (type == PT_BF16)
            store(PT_BF16, to, at + i, f32_load(from + i, lanes), lanes);
        else
            store(PT_F32, to, at + i, f32_load(from + i, lanes), lanes);
    }
}

static INLINE float norm_factor(const op_scan *o, const float *x)
{
    return o->norm_eps > 0 ? 1.0f / sqrtf(dot(x, x, o->key_dim) + o->norm_eps) : 1.0f;
}

/* A row of q or k, normed and scaled. */
static INLINE void load_key(const op_scan *o, const void *from, int64_t row, int64_t key_head, float scale, float *to)
{
    load_row(o->type, from, row * o->ld + key_head * o->key_dim, 1, o->key_dim, to);
    scale_row(to, norm_factor(o, to) * scale, false, o->key_dim, to);
}

static inline void chunk_keys(const chunk *c, int64_t key_head)
{
    const op_scan *o = c->o;
    for (int64_t i = 0; i < c->n; i++) {
        load_key(o, o->q, row_of(c, i), key_head, op_factor(o->scale), c->q + i * o->key_dim);
        load_key(o, o->k, row_of(c, i), key_head, 1, c->k + i * o->key_dim);
    }
    product(c, MATMUL_NT, c->n, c->n, o->key_dim, c->q, o->key_dim, c->k, o->key_dim, c->qk, CHUNK, false);
    if (o->kind == SCAN_DELTA)
        product(c, MATMUL_NT, c->n, c->n, o->key_dim, c->k, o->key_dim, c->k, o->key_dim, c->kk, CHUNK, false);
}

/* ---- a head's gates ---- */

static inline void chunk_gates(const chunk *c, int64_t head)
{
    const op_scan *o = c->o;
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t at = row_of(c, i) * o->heads + head;
        c->beta[i] = o->beta[at];
        c->a[i] = starts(c, i) ? -INFINITY : o->g[at];
    }
    for (int64_t i = 0; i < c->n; i += VEC_LANES)
        f32_store(c->a + i, vec_exp_negative(f32_load(c->a + i, lanes_of(c->n, i))), lanes_of(c->n, i));
    float since = 1;
    for (int64_t i = 0; i < c->n; i++) {
        since = since * c->a[i];
        c->since[i] = since = since < FLT_MIN ? 0 : since;
    }
}

/* Denormal numbers become 0: they would take most of the time. */
static inline void chunk_squares(const chunk *c)
{
    const bool delta = c->o->kind == SCAN_DELTA;
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t j = 0; j < CHUNK; j += VEC_LANES) {
            const int64_t at = i * CHUNK + j;
            const vi column = (vi)VEC_INDEX + (int32_t)j;
            vf decay = i ? f32_load(c->decay + at - CHUNK, VEC_LANES) * c->a[i] : (vf){0};
            decay = vec_keep(~(decay < FLT_MIN), decay); /* NaN stays */
            if (delta)
                f32_store(c->less + at, vec_keep(column < (int32_t)i, decay * f32_load(c->kk + at, VEC_LANES) * -c->beta[i]),
                          VEC_LANES);
            decay = vec_select(column == (int32_t)i, vec_set(1), decay);
            f32_store(c->decay + at, decay, VEC_LANES);
            f32_store(c->p + at, vec_keep(column <= (int32_t)i, decay * f32_load(c->qk + at, VEC_LANES)), VEC_LANES);
        }
}

/* The decay from row i to the chunk's end. */
static INLINE float until_end(const chunk *c, int64_t i) { return c->decay[(c->n - 1) * CHUNK + i]; }

/* ---- u ---- */

/* Row i of x += the sum over j of factors[j * step] times row j, for rows first .. first + n. */
static INLINE void add_rows(float *x, int64_t dim, int64_t i, int64_t first, int64_t n, const float *factors, int64_t step)
{
    for (int64_t d = 0; d < dim; d += VEC_LANES) {
        const int64_t lanes = lanes_of(dim, d);
        vf sum = f32_load(x + i * dim + d, lanes);
        for (int64_t j = 0; j < n; j++)
            sum = vec_fma(vec_set(factors[j * step]), f32_load(x + (first + j) * dim + d, lanes), sum);
        f32_store(x + i * dim + d, sum, lanes);
    }
}

/* x = (1 - less)^-1 x, by rows. A doubling inverse overflows where keys are nearly equal. */
static inline void solve(const chunk *c, float *x)
{
    const int64_t dim = c->o->dim;
    for (int64_t b = 0; b < c->n; b += SOLVE_ROWS) {
        const int64_t rows = c->n - b < SOLVE_ROWS ? c->n - b : SOLVE_ROWS;
        if (b)
            product(c, MATMUL_NN, rows, dim, b, c->less + b * CHUNK, CHUNK, x, dim, x + b * dim, dim, true);
        for (int64_t i = b + 1; i < b + rows; i++)
            add_rows(x, dim, i, b, i - b, c->less + i * CHUNK + b, 1);
    }
}

/* x = (1 - less^T)^-1 x */
static inline void solve_transposed(const chunk *c, float *x)
{
    const int64_t dim = c->o->dim;
    for (int64_t b = (c->n - 1) / SOLVE_ROWS * SOLVE_ROWS; b >= 0; b -= SOLVE_ROWS) {
        const int64_t end = b + SOLVE_ROWS < c->n ? b + SOLVE_ROWS : c->n;
        for (int64_t i = end - 2; i >= b; i--)
            add_rows(x, dim, i, i + 1, end - i - 1, c->less + (i + 1) * CHUNK + i, CHUNK);
        if (b)
            product(c, MATMUL_TN, b, dim, end - b, c->less + b * CHUNK, CHUNK, x + b * dim, dim, x, dim, true);
    }
}

/* rows: room for (n, key_dim). state NULL: 0. */
static inline void chunk_u(const chunk *c, int64_t head, const float *state, float *rows, float *u)
{
    const op_scan *o = c->o;
    for (int64_t i = 0; i < c->n; i++)
        load_row(o->type, o->v, row_of(c, i) * o->ld + head * o->dim, c->beta[i], o->dim, u + i * o->dim);
    if (o->kind != SCAN_DELTA)
        return;
    if (state) {
        for (int64_t i = 0; i < c->n; i++)
            scale_row(c->k + i * o->key_dim, -c->beta[i] * c->since[i], false, o->key_dim, rows + i * o->key_dim);
        product(c, MATMUL_NN, c->n, o->dim, o->key_dim, rows, o->key_dim, state, o->dim, u, o->dim, true);
    }
    solve(c, u);
}

/* to = the state after the chunk; `state` is that before, NULL: 0. to may be state. */
static inline void chunk_state(const chunk *c, const float *state, const float *u, float *rows, float *to)
{
    const op_scan *o = c->o;
    for (int64_t i = 0; i < c->n; i++)
        scale_row(c->k + i * o->key_dim, until_end(c, i), false, o->key_dim, rows + i * o->key_dim);
    if (state)
        scale_row(state, c->since[c->n - 1], false, o->key_dim * o->dim, to);
    product(c, MATMUL_TN, o->key_dim, o->dim, c->n, rows, o->key_dim, u, o->dim, to, o->dim, state != NULL);
}

#endif
