#include "device/cpu/kernels/norm.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#include <math.h>

/* One or two vectors of a row. n = 2: 2 * VEC_LANES elements in the order of load_pair(). n = 1: the first `lanes`, in natural order. */
typedef struct span { int64_t i, lanes; int n; } span;

static INLINE void span_load(pt_dtype type, const void *base, span s, vf out[2])
{
    if (s.n == 2)
        load_pair(type, base, s.i, out);
    else
        out[0] = load(type, base, s.i, s.lanes);
}

static INLINE void span_load_f32(pt_dtype type, const float *base, span s, vf out[2])
{
    span_load(PT_F32, base, s, out);
    if (s.n == 2 && type == PT_BF16)
        order_split(out);
}

static INLINE void span_store_f32(pt_dtype type, float *base, span s, const vf x[2])
{
    if (s.n == 1) {
        f32_store(base + s.i, x[0], s.lanes);
        return;
    }
    vf pair[2] = {x[0], x[1]};
    if (type == PT_BF16)
        order_join(pair);
    store_pair(PT_F32, base, s.i, pair);
}

static INLINE void span_store(pt_dtype type, void *base, span s, const vf x[2])
{
    if (s.n == 2)
        store_pair(type, base, s.i, x);
    else
        store(type, base, s.i, x[0], s.lanes);
}

/* ---- forward ----
 *
 * Several rows are computed together, so that their sums do not wait for each other, in three passes:
 *
 *     x (type)  ->  wide: x in fp32, and its sum (layernorm only)
 *               ->  wide: x - mean, and the sum of its squares
 *               ->  y (type)
 *
 * wide, weight and bias are in the thread's scratch, in the order of load_pair() for all complete SUM_LANES of a row. If the result is
 * added to a residual or a stream, another function does the third pass (group_add).
 */
enum { NORM_ROWS = VEC_LANES / 4 }; /* limited by registers for their sums */

typedef struct norm_group {
    const void *x[NORM_ROWS], *next[NORM_ROWS]; /* next: the next group's, to prefetch */
    void *y[NORM_ROWS];
    const void *residual[NORM_ROWS]; /* residual and stream: all NULL or none */
    float *stream[NORM_ROWS];
    float *wide; /* NORM_ROWS rows */
    const float *weight, *bias;
    float mean[NORM_ROWS], rstd[NORM_ROWS];
    bool past; /* write y past the caches */
} norm_group;

static INLINE void wide_load(const float *wide, int64_t i, vf out[2])
{
    load_pair(PT_F32, wide, i, out);
}

static INLINE void wide_store(float *wide, int64_t i, const vf x[2])
{
    store_pair(PT_F32, wide, i, x);
}

/* One pass over elements i .. i + 2 * VEC_LANES of a row, or over the first lanes of a vector. */
static INLINE void sum_pair(pt_dtype type, const norm_group *g, int row, int64_t dim, int64_t i, vf sum[2])
{
    vf x[2];
    load_pair(type, g->x[row], i, x);
    wide_store(g->wide + row * dim, i, x);
    sum[0] += x[0], sum[1] += x[1];
}

static inline void sum_lanes(pt_dtype type, const norm_group *g, int row, int64_t dim, int64_t i, int64_t lanes, vf *sum)
{
    vf x = load(type, g->x[row], i, lanes);
    f32_store(g->wide + row * dim + i, x, lanes);
    *sum += x;
}

static INLINE void deviate_pair(pt_dtype type, norm_kind kind, const norm_group *g, int row, int64_t dim, int64_t i, vf sum[2])
{
    vf d[2];
    if (kind == NORM_LAYER) {
        wide_load(g->wide + row * dim, i, d);
        d[0] = d[0] - g->mean[row], d[1] = d[1] - g->mean[row];
    } else {
        load_pair(type, g->x[row], i, d);
    }
    wide_store(g->wide + row * dim, i, d);
    if (!g->past)
        __builtin_prefetch(at(type, g->y[row], i));
    sum[0] += d[0] * d[0], sum[1] += d[1] * d[1];
}

static inline void deviate_lanes(pt_dtype type, norm_kind kind, const norm_group *g, int row, int64_t dim, int64_t i, int64_t lanes,
                                 vf *sum)
{
    float *wide = g->wide + row * dim + i;
    vf d = kind == NORM_LAYER ? f32_load(wide, lanes) - g->mean[row] : load(type, g->x[row], i, lanes);
    f32_store(wide, d, lanes);
    *sum += lanes < VEC_LANES ? vec_keep(first_lanes(lanes), d * d) : d * d;
}

/* s + the row's elements from i on, fewer than SUM_LANES, usually none. */
ONE_COPY sums sums_rest(pt_dtype type, norm_kind kind, bool deviation, norm_group g, int row, int64_t dim, int64_t i, sums s)
{
    for (int j = 0; i < dim; j++, i += VEC_LANES) {
        int64_t lanes = dim - i < VEC_LANES ? dim - i : VEC_LANES;
        if (deviation)
            deviate_lanes(type, kind, &g, row, dim, i, lanes, &s.part[j]);
        else
            sum_lanes(type, &g, row, dim, i, lanes, &s.part[j]);
    }
    return s;
}

/* Totals of `rows` rows together, in the order of row_sum(): of x, or if `deviation` of the squares. */
static INLINE void group_sums(pt_dtype type, norm_kind kind, bool deviation, const norm_group *g, int rows, int64_t dim, float *out)
{
    sums s[NORM_ROWS] = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= dim; i += SUM_LANES)
#pragma GCC unroll 8
        for (int j = 0; j < SUM_VECS; j += 2)
#pragma GCC unroll 4
            for (int row = 0; row < rows; row++)
                if (deviation)
                    deviate_pair(type, kind, g, row, dim, i + j * VEC_LANES, &s[row].part[j]);
                else
                    sum_pair(type, g, row, dim, i + j * VEC_LANES, &s[row].part[j]);
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        if (type == PT_BF16)
            sums_join(&s[row]);
        if (i < dim)
            s[row] = sums_rest(type, kind, deviation, *g, row, dim, i, s[row]);
        out[row] = sums_total(s[row]);
    }
}

static INLINE void group_apply(pt_dtype type, const norm_group *g, int rows, int64_t dim)
{
    int64_t i = 0;
    for (; i + 2 * VEC_LANES <= dim / SUM_LANES * SUM_LANES; i += 2 * VEC_LANES) {
        vf w[2], b[2];
        wide_load(g->weight, i, w);
        wide_load(g->bias, i, b);
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++) {
            vf d[2];
            __builtin_prefetch(at(type, g->next[row], i));
            wide_load(g->wide + row * dim, i, d);
            d[0] = vec_fma(d[0] * g->rstd[row], w[0], b[0]);
            d[1] = vec_fma(d[1] * g->rstd[row], w[1], b[1]);
            put_pair_tame(type, g->y[row], i, d, g->past);
        }
    }
    for (; i < dim; i += VEC_LANES) {
        int64_t lanes = dim - i < VEC_LANES ? dim - i : VEC_LANES;
        vf w = f32_load(g->weight + i, lanes), b = f32_load(g->bias + i, lanes);
        for (int row = 0; row < rows; row++)
            store(type, g->y[row], i, vec_fma(f32_load(g->wide + row * dim + i, lanes) * g->rstd[row], w, b), lanes);
    }
}

/* y from the norm's result d, with stream and residual added in the order of op_matmul. */
static INLINE void span_add(pt_dtype type, const norm_group *g, int row, span s, vf d[2])
{
    vf sum[2] = {0};
    if (g->stream[row]) {
        span_load_f32(type, g->stream[row], s, sum);
        for (int v = 0; v < s.n; v++)
            sum[v] = sum[v] + d[v];
        span_store_f32(type, g->stream[row], s, sum);
    }
    if (g->residual[row]) {
        span_load(type, g->residual[row], s, sum);
        for (int v = 0; v < s.n; v++)
            sum[v] = d[v] + sum[v];
    }
    span_store(type, g->y[row], s, sum);
}

/* Like group_apply(), with stream or residual. */
static INLINE void group_add(pt_dtype type, const norm_group *g, int rows, int64_t dim)
{
    const int64_t paired = dim / SUM_LANES * SUM_LANES;
    for (int row = 0; row < rows; row++)
        for (int64_t i = 0; i < dim;) {
            const span s = i < paired ? (span){i, VEC_LANES, 2} : (span){i, dim - i < VEC_LANES ? dim - i : VEC_LANES, 1};
            vf d[2];
            for (int v = 0; v < s.n; v++) {
                const int64_t at = i + v * VEC_LANES;
                vf w = f32_load(g->weight + at, s.lanes), b = f32_load(g->bias + at, s.lanes);
                d[v] = vec_fma(f32_load(g->wide + row * dim + at, s.lanes) * g->rstd[row], w, b);
            }
            span_add(type, g, row, s, d);
            i += s.n * VEC_LANES;
        }
}

ONE_COPY void group_add_any(pt_dtype type, norm_group g, int rows, int64_t dim)
{
    if (type == PT_BF16)
        group_add(PT_BF16, &g, rows, dim);
    else
        group_add(PT_F32, &g, rows, dim);
}

static INLINE void norm_group_of(pt_dtype type, norm_kind kind, norm_group *g, int rows, int64_t dim, float eps)
{
    float total[NORM_ROWS];
    if (kind == NORM_LAYER) {
        group_sums(type, kind, false, g, rows, dim, total);
        for (int row = 0; row < rows; row++)
            g->mean[row] = total[row] / (float)dim;
    }
    group_sums(type, kind, true, g, rows, dim, total);
    for (int row = 0; row < rows; row++)
        g->rstd[row] = 1.0f / sqrtf(total[row] / (float)dim + eps);
    if (g->residual[0] || g->stream[0])
        group_add_any(type, *g, rows, dim);
    else
        group_apply(type, g, rows, dim);
}

/* out = offset + x (0 if x is NULL), in the order of `wide`. */
static INLINE void norm_parameter(pt_dtype type, const float *x, float offset, int64_t dim, float *out)
{
    for (int64_t i = 0; !x && i < dim; i++)
        out[i] = offset;
    if (!x)
        return;
    memcpy(out, x, (size_t)dim * sizeof *out);
    for (int64_t i = 0; offset != 0 && i < dim; i++)
        out[i] = offset + x[i];
    if (type != PT_BF16)
        return;
    for (int64_t i = 0; i + 2 * VEC_LANES <= dim / SUM_LANES * SUM_LANES; i += 2 * VEC_LANES) {
        vf pair[2];
        load_pair(PT_F32, out, i, pair);
        pair[0] = vec_tame(pair[0]), pair[1] = vec_tame(pair[1]);
        order_split(pair);
        store_pair(PT_F32, out, i, pair);
    }
}

/* The offset of a vector; row r has the vectors r * heads .. (r + 1) * heads. */
static INLINE int64_t vector_at(int64_t heads, int64_t dim, int64_t ld, int64_t vector)
{
    return vector / heads * ld + vector % heads * dim;
}

/* Whether all vectors of y are aligned for writing past the caches. */
static bool norm_past_fits(const op_norm *o)
{
    return past_fits((uintptr_t)o->y | (uintptr_t)((o->dim | o->ldy) * (int64_t)dtype_bytes(o->type)));
}

/* Computes vectors [first, end). */
static INLINE void norm_vectors_of(pt_dtype type, norm_kind kind, const op_norm *o, int64_t first, int64_t end, bool past, float *scratch)
{
    norm_group g = {.weight = scratch, .bias = scratch + o->dim, .wide = scratch + 2 * o->dim, .past = past};
    norm_parameter(type, o->weight, o->offset, o->dim, scratch);
    norm_parameter(type, o->bias, 0, o->dim, scratch + o->dim);
    while (first < end) {
        int rows = end - first < NORM_ROWS ? 1 : NORM_ROWS;
        for (int row = 0; row < rows; row++) {
            int64_t next = first + row + rows < end ? first + row + rows : first + row;
            g.x[row] = at(type, o->x, vector_at(o->heads, o->dim, o->ldx, first + row));
            g.next[row] = at(type, o->x, vector_at(o->heads, o->dim, o->ldx, next));
            g.y[row] = at_mutable(type, o->y, vector_at(o->heads, o->dim, o->ldy, first + row));
            g.residual[row] = o->residual ? at(type, o->residual, (first + row) * o->ldy) : NULL;
            g.stream[row] = o->stream ? o->stream + (first + row) * o->ldy : NULL;
        }
        if (rows == 1)
            norm_group_of(type, kind, &g, 1, o->dim, o->eps);
        else
            norm_group_of(type, kind, &g, NORM_ROWS, o->dim, o->eps);
        first += rows;
    }
}

void KERNEL(norm_rows)(const op_norm *o, int64_t row0, int64_t row1, bool past, float *scratch)
{
    past = past && norm_past_fits(o);
    int64_t first = row0 * o->heads, end = row1 * o->heads;
    if (o->type == PT_BF16 && o->kind == NORM_LAYER)
        norm_vectors_of(PT_BF16, NORM_LAYER, o, first, end, past, scratch);
    else if (o->type == PT_BF16)
        norm_vectors_of(PT_BF16, NORM_RMS, o, first, end, past, scratch);
    else if (o->kind == NORM_LAYER)
        norm_vectors_of(PT_F32, NORM_LAYER, o, first, end, past, scratch);
    else
        norm_vectors_of(PT_F32, NORM_RMS, o, first, end, past, scratch);
    if (past)
        past_end();
}

/* ---- backward ----
 *
 * With u = (x - mean) rstd and d = dy * weight:
 *     layernorm   dx = rstd (d - mean(d) - u mean(d u))
 *     rmsnorm     dx = rstd (d - u mean(d u))
 *     dweight = sum of dy u, dbias = sum of dy
 *
 * Several rows together as in the forward pass, with one pass for each of the sums and one for dx. Parameters shared by the rows are put
 * into the order of load_pair() once; dweight and dbias are put back.
 */
typedef struct backward_group {
    pt_dtype type;
    norm_kind kind;
    const void *x[NORM_ROWS], *dy[NORM_ROWS], *dx_add[NORM_ROWS];
    const void *next_x[NORM_ROWS], *next_dy[NORM_ROWS]; /* the next group's, to prefetch */
    const float *stream_add[NORM_ROWS], *weight, *bias;
    void *dx[NORM_ROWS], *y[NORM_ROWS]; /* y[0] NULL: not wanted */
    float *stream[NORM_ROWS], *dweight, *dbias;
    float mean[NORM_ROWS], rstd[NORM_ROWS], mean_d[NORM_ROWS], mean_du[NORM_ROWS]; /* mean and mean_d: 0 for rmsnorm */
} backward_group;

/* x - mean; not 0 past `lanes`. */
static INLINE void deviation(const backward_group *g, int row, span s, vf out[2])
{
    span_load(g->type, g->x[row], s, out);
    for (int v = 0; v < s.n && g->kind == NORM_LAYER; v++)
        out[v] = out[v] - g->mean[row];
}

static INLINE void gradient(const backward_group *g, int row, span s, const vf weight[2], vf dy[2], vf d[2])
{
    span_load(g->type, g->dy[row], s, dy);
    for (int v = 0; v < s.n; v++)
        d[v] = dy[v] * weight[v];
}

/* A term of a sum. */
typedef void (*span_term)(const backward_group *g, int row, span s, vf out[2]);

static INLINE void term_value(const backward_group *g, int row, span s, vf out[2]) { span_load(g->type, g->x[row], s, out); }

static INLINE void term_square(const backward_group *g, int row, span s, vf out[2])
{
    deviation(g, row, s, out);
    for (int v = 0; v < s.n; v++)
        out[v] = out[v] * out[v];
}

static INLINE void term_gradient(const backward_group *g, int row, span s, vf out[2])
{
    vf weight[2], dy[2];
    span_load_f32(g->type, g->weight, s, weight);
    gradient(g, row, s, weight, dy, out);
}

static INLINE void term_product(const backward_group *g, int row, span s, vf out[2])
{
    vf u[2];
    term_gradient(g, row, s, out);
    deviation(g, row, s, u);
    for (int v = 0; v < s.n; v++)
        out[v] = out[v] * (u[v] * g->rstd[row]);
}

/* s + a row's terms from i on. */
ONE_COPY sums means_rest(span_term term, backward_group g, int row, int64_t dim, int64_t i, sums s)
{
    vf x[2];
    for (int j = 0; i < dim; j++, i += VEC_LANES) {
        int64_t lanes = dim - i < VEC_LANES ? dim - i : VEC_LANES;
        term(&g, row, (span){i, lanes, 1}, x);
        s.part[j] += lanes < VEC_LANES ? vec_keep(first_lanes(lanes), x[0]) : x[0];
    }
    return s;
}

/* Means of a term, for `rows` rows together, in the order of row_sum(). */
static INLINE void group_means(span_term term, const backward_group *g, int rows, int64_t dim, float *out)
{
    sums s[NORM_ROWS] = {0};
    vf x[2];
    int64_t i = 0;
    for (; i + SUM_LANES <= dim; i += SUM_LANES)
#pragma GCC unroll 8
        for (int j = 0; j < SUM_VECS; j += 2)
#pragma GCC unroll 4
            for (int row = 0; row < rows; row++) {
                term(g, row, (span){i + j * VEC_LANES, VEC_LANES, 2}, x);
                s[row].part[j] += x[0], s[row].part[j + 1] += x[1];
            }
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        if (g->type == PT_BF16)
            sums_join(&s[row]);
        if (i < dim)
            s[row] = means_rest(term, *g, row, dim, i, s[row]);
        out[row] = sums_total(s[row]) / (float)dim;
    }
}

/* Recomputes y from u like the forward pass, after dy, which it may replace, was read. */
static INLINE void span_y(const backward_group *g, int row, span s, const vf u[2], const vf weight[2])
{
    vf y[2], bias[2] = {0};
    if (g->bias)
        span_load_f32(g->type, g->bias, s, bias);
    for (int v = 0; v < s.n; v++)
        y[v] = vec_fma(u[v], weight[v], bias[v]);
    span_store(g->type, g->y[row], s, y);
}

/* dx of one row; adds to dweight and dbias. */
static INLINE void span_dx(const backward_group *g, int row, span s, const vf weight[2], vf dweight[2], vf dbias[2])
{
    vf dy[2], d[2], u[2], add[2] = {0}, stream_add[2] = {0};
    gradient(g, row, s, weight, dy, d);
    deviation(g, row, s, u);
    if (g->dx_add[row])
        span_load(g->type, g->dx_add[row], s, add);
    if (g->stream_add[row])
        span_load_f32(g->type, g->stream_add[row], s, stream_add);
    for (int v = 0; v < s.n; v++) {
        u[v] = u[v] * g->rstd[row];
        d[v] = vec_fma(-u[v], vec_set(g->mean_du[row]), d[v] - g->mean_d[row]) * g->rstd[row];
        if (g->dx_add[row])
            d[v] = d[v] + add[v];
        if (g->stream_add[row])
            d[v] = d[v] + stream_add[v];
        dweight[v] = vec_fma(dy[v], u[v], dweight[v]);
        dbias[v] = dbias[v] + dy[v];
    }
    if (g->stream[row])
        span_store_f32(g->type, g->stream[row], s, d);
    span_store(g->type, g->dx[row], s, d);
    if (g->y[0])
        span_y(g, row, s, u, weight);
}

static INLINE void group_dx(const backward_group *g, int rows, span s)
{
    vf weight[2], dweight[2] = {0}, dbias[2] = {0};
    span_load_f32(g->type, g->weight, s, weight);
    if (g->dweight)
        span_load_f32(g->type, g->dweight, s, dweight);
    if (g->dbias)
        span_load_f32(g->type, g->dbias, s, dbias);
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        __builtin_prefetch(at(g->type, g->next_x[row], s.i));
        __builtin_prefetch(at(g->type, g->next_dy[row], s.i));
        span_dx(g, row, s, weight, dweight, dbias);
    }
    if (g->dweight)
        span_store_f32(g->type, g->dweight, s, dweight);
    if (g->dbias)
        span_store_f32(g->type, g->dbias, s, dbias);
}

ONE_COPY void group_dx_rest(backward_group g, int rows, int64_t i, int64_t dim)
{
    for (; i < dim; i += VEC_LANES)
        group_dx(&g, rows, (span){i, dim - i < VEC_LANES ? dim - i : VEC_LANES, 1});
}

static INLINE void backward_group_of(backward_group *g, int rows, int64_t dim, float eps)
{
    int64_t i = 0;
    if (g->kind == NORM_LAYER) {
        group_means(term_value, g, rows, dim, g->mean);
        group_means(term_gradient, g, rows, dim, g->mean_d);
    }
    group_means(term_square, g, rows, dim, g->rstd);
    for (int row = 0; row < rows; row++)
        g->rstd[row] = 1.0f / sqrtf(g->rstd[row] + eps);
    group_means(term_product, g, rows, dim, g->mean_du);
    for (; i + 2 * VEC_LANES <= dim; i += 2 * VEC_LANES)
        group_dx(g, rows, (span){i, VEC_LANES, 2});
    if (i < dim)
        group_dx_rest(*g, rows, i, dim);
}

static INLINE void backward_vectors_of(pt_dtype type, norm_kind kind, const op_norm_backward *o, int64_t first, int64_t end,
                                       float *dweight, float *dbias)
{
    backward_group g = {.type = type, .kind = kind, .weight = o->weight, .bias = o->bias, .dweight = dweight, .dbias = dbias};
    while (first < end) {
        int rows = end - first < NORM_ROWS ? 1 : NORM_ROWS;
        for (int row = 0; row < rows; row++) {
            int64_t vector = first + row, next = vector + rows < end ? vector + rows : vector;
            int64_t dx_at = vector_at(o->heads, o->dim, o->lddx, vector), dy_at = vector_at(o->heads, o->dim, o->lddy, vector);
            g.x[row] = at(type, o->x, vector_at(o->heads, o->dim, o->ldx, vector));
            g.dy[row] = at(type, o->dy, dy_at);
            g.y[row] = o->y ? at_mutable(type, o->y, dy_at) : NULL;
            g.next_x[row] = at(type, o->x, vector_at(o->heads, o->dim, o->ldx, next));
            g.next_dy[row] = at(type, o->dy, vector_at(o->heads, o->dim, o->lddy, next));
            g.dx_add[row] = o->dx_add ? at(type, o->dx_add, dx_at) : NULL;
            g.dx[row] = at_mutable(type, o->dx, dx_at);
            g.stream_add[row] = o->stream_add ? o->stream_add + dx_at : NULL;
            g.stream[row] = o->stream ? o->stream + dx_at : NULL;
        }
        if (rows == 1)
            backward_group_of(&g, 1, o->dim, o->eps);
        else
            backward_group_of(&g, NORM_ROWS, o->dim, o->eps);
        first += rows;
    }
}

void KERNEL(norm_backward_rows)(const op_norm_backward *o, int64_t row0, int64_t row1, float *dweight, float *dbias)
{
    int64_t first = row0 * o->heads, end = row1 * o->heads;
    if (dweight)
        memset(dweight, 0, (size_t)o->dim * sizeof *dweight);
    if (dbias)
        memset(dbias, 0, (size_t)o->dim * sizeof *dbias);
    if (o->type == PT_BF16 && o->kind == NORM_LAYER)
        backward_vectors_of(PT_BF16, NORM_LAYER, o, first, end, dweight, dbias);
    else if (o->type == PT_BF16)
        backward_vectors_of(PT_BF16, NORM_RMS, o, first, end, dweight, dbias);
    else if (o->kind == NORM_LAYER)
        backward_vectors_of(PT_F32, NORM_LAYER, o, first, end, dweight, dbias);
    else
        backward_vectors_of(PT_F32, NORM_RMS, o, first, end, dweight, dbias);
}
