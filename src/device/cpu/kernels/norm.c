#include "device/cpu/kernels/norm.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#include <math.h>

typedef struct norm_vector { /* one row of one head */
    pt_dtype type;
    const void *x;
    float mean; /* 0 for rmsnorm, whose variance is the mean square */
} norm_vector;

static INLINE vf value(const void *ctx, int64_t i, int64_t lanes)
{
    const norm_vector *r = ctx;
    return load(r->type, r->x, i, lanes);
}

static INLINE vf squared_deviation(const void *ctx, int64_t i, int64_t lanes)
{
    const norm_vector *r = ctx;
    vf d = load(r->type, r->x, i, lanes) - r->mean;
    return lanes < VEC_LANES ? vec_keep(first_lanes(lanes), d * d) : d * d;
}

/* Fills in the mean and returns the reciprocal of the deviation: two passes over x. */
static INLINE float norm_statistics(norm_vector *r, norm_kind kind, int64_t dim, float eps)
{
    r->mean = kind == NORM_LAYER ? row_sum(value, r, dim) / (float)dim : 0.0f;
    float variance = row_sum(squared_deviation, r, dim) / (float)dim;
    return 1.0f / sqrtf(variance + eps);
}

/* ---- forward ----
 *
 * A few rows side by side, so that the sums of one are added while those of the others wait, in three passes:
 *
 *     x (type)  ->  wide: x in fp32, and its sum (layernorm alone)
 *               ->  wide: x - mean, and the sum of its squares
 *               ->  y (type)
 *
 * wide, weight and bias are in the thread's scratch. All are in load_pair()'s order as far as a row holds whole SUM_LANES.
 */
enum { NORM_ROWS = VEC_LANES / 4 }; /* as many as there are registers for their sums */

typedef struct norm_group {
    const void *x[NORM_ROWS], *next[NORM_ROWS]; /* next: of the group after it, asked for early */
    void *y[NORM_ROWS];
    float *wide; /* of NORM_ROWS rows */
    const float *weight, *bias;
    float mean[NORM_ROWS], rstd[NORM_ROWS];
} norm_group;

static INLINE void wide_load(const float *wide, int64_t i, vf out[2])
{
    load_pair(PT_F32, wide, i, out);
}

static INLINE void wide_store(float *wide, int64_t i, const vf x[2])
{
    store_pair(PT_F32, wide, i, x);
}

/* What a pass does with one row's elements i .. i + 2 * VEC_LANES, or with the first lanes of a vector. */
static INLINE void sum_pair(pt_dtype type, const norm_group *g, int row, int64_t dim, int64_t i, vf sum[2])
{
    vf x[2];
    load_pair(type, g->x[row], i, x);
    wide_store(g->wide + row * dim, i, x);
    sum[0] += x[0], sum[1] += x[1];
}

static INLINE void sum_lanes(pt_dtype type, const norm_group *g, int row, int64_t dim, int64_t i, int64_t lanes, vf *sum)
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
    _mm_prefetch(at(type, g->y[row], i), _MM_HINT_T0);
    sum[0] += d[0] * d[0], sum[1] += d[1] * d[1];
}

static INLINE void deviate_lanes(pt_dtype type, norm_kind kind, const norm_group *g, int row, int64_t dim, int64_t i, int64_t lanes,
                                 vf *sum)
{
    float *wide = g->wide + row * dim + i;
    vf d = kind == NORM_LAYER ? f32_load(wide, lanes) - g->mean[row] : load(type, g->x[row], i, lanes);
    f32_store(wide, d, lanes);
    *sum += lanes < VEC_LANES ? vec_keep(first_lanes(lanes), d * d) : d * d;
}

/* Totals of `rows` rows side by side, in the order of row_sum(): of x if `deviation` is false, else of the squares. */
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
#pragma GCC unroll 8
        for (int j = 0; j < SUM_VECS; j++) {
            int64_t left = dim - i - j * VEC_LANES, lanes = left < VEC_LANES ? left : VEC_LANES;
            if (left > 0 && deviation)
                deviate_lanes(type, kind, g, row, dim, i + j * VEC_LANES, lanes, &s[row].part[j]);
            else if (left > 0)
                sum_lanes(type, g, row, dim, i + j * VEC_LANES, lanes, &s[row].part[j]);
        }
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
            _mm_prefetch(at(type, g->next[row], i), _MM_HINT_T0);
            wide_load(g->wide + row * dim, i, d);
            d[0] = vec_fma(d[0] * g->rstd[row], w[0], b[0]);
            d[1] = vec_fma(d[1] * g->rstd[row], w[1], b[1]);
            store_pair_tame(type, g->y[row], i, d);
        }
    }
    for (; i < dim; i += VEC_LANES) {
        int64_t lanes = dim - i < VEC_LANES ? dim - i : VEC_LANES;
        vf w = f32_load(g->weight + i, lanes), b = f32_load(g->bias + i, lanes);
        for (int row = 0; row < rows; row++)
            store(type, g->y[row], i, vec_fma(f32_load(g->wide + row * dim + i, lanes) * g->rstd[row], w, b), lanes);
    }
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
    group_apply(type, g, rows, dim);
}

/* out = x, or 0 for NULL, in the order of `wide`. */
static INLINE void norm_parameter(pt_dtype type, const float *x, int64_t dim, float *out)
{
    if (!x) {
        memset(out, 0, (size_t)dim * sizeof *out);
        return;
    }
    memcpy(out, x, (size_t)dim * sizeof *out);
    if (type != PT_BF16)
        return;
    for (int64_t i = 0; i + 2 * VEC_LANES <= dim / SUM_LANES * SUM_LANES; i += 2 * VEC_LANES) {
        vf pair[2];
        load_pair(PT_F32, x, i, pair);
        pair[0] = vec_tame(pair[0]), pair[1] = vec_tame(pair[1]);
        order_split(pair);
        store_pair(PT_F32, out, i, pair);
    }
}

/* Where a vector begins; row r has the vectors r * heads .. (r + 1) * heads. */
static INLINE int64_t vector_at(const op_norm *o, int64_t ld, int64_t vector)
{
    return vector / o->heads * ld + vector % o->heads * o->dim;
}

/* The vectors from `first` to `end`. */
static INLINE void norm_vectors_of(pt_dtype type, norm_kind kind, const op_norm *o, int64_t first, int64_t end, float *scratch)
{
    norm_group g = {.weight = scratch, .bias = scratch + o->dim, .wide = scratch + 2 * o->dim};
    norm_parameter(type, o->weight, o->dim, scratch);
    norm_parameter(type, o->bias, o->dim, scratch + o->dim);
    while (first < end) {
        int rows = end - first < NORM_ROWS ? 1 : NORM_ROWS;
        for (int row = 0; row < rows; row++) {
            int64_t next = first + row + rows < end ? first + row + rows : first + row;
            g.x[row] = at(type, o->x, vector_at(o, o->ldx, first + row));
            g.next[row] = at(type, o->x, vector_at(o, o->ldx, next));
            g.y[row] = at_mutable(type, o->y, vector_at(o, o->ldy, first + row));
        }
        if (rows == 1)
            norm_group_of(type, kind, &g, 1, o->dim, o->eps);
        else
            norm_group_of(type, kind, &g, NORM_ROWS, o->dim, o->eps);
        first += rows;
    }
}

void KERNEL(norm_rows)(const op_norm *o, int64_t row0, int64_t row1, float *scratch)
{
    int64_t first = row0 * o->heads, end = row1 * o->heads;
    if (o->type == PT_BF16 && o->kind == NORM_LAYER)
        norm_vectors_of(PT_BF16, NORM_LAYER, o, first, end, scratch);
    else if (o->type == PT_BF16)
        norm_vectors_of(PT_BF16, NORM_RMS, o, first, end, scratch);
    else if (o->kind == NORM_LAYER)
        norm_vectors_of(PT_F32, NORM_LAYER, o, first, end, scratch);
    else
        norm_vectors_of(PT_F32, NORM_RMS, o, first, end, scratch);
}

/* ---- backward ----
 *
 * With u = (x - mean) rstd and d = dy * weight:
 *     layernorm   dx = rstd (d - mean(d) - u mean(d u))
 *     rmsnorm     dx = rstd (d - u mean(d u))
 *     dweight = sum of dy u, dbias = sum of dy
 */
typedef struct backward_vector {
    norm_vector x;
    float rstd, mean_d, mean_du;
    const void *dy, *dx_add;
    const float *weight, *stream_add;
    void *dx;
    float *stream, *dweight, *dbias;
} backward_vector;

static INLINE vf unit_value(const backward_vector *r, int64_t i, int64_t lanes)
{
    return (load(r->x.type, r->x.x, i, lanes) - r->x.mean) * r->rstd;
}

static INLINE vf unit_gradient(const void *ctx, int64_t i, int64_t lanes) /* 0 beyond lanes, as dy is */
{
    const backward_vector *r = ctx;
    return load(r->x.type, r->dy, i, lanes) * f32_load(r->weight + i, lanes);
}

static INLINE vf unit_gradient_product(const void *ctx, int64_t i, int64_t lanes)
{
    vf product = unit_gradient(ctx, i, lanes) * unit_value(ctx, i, lanes);
    return lanes < VEC_LANES ? vec_keep(first_lanes(lanes), product) : product;
}

static INLINE void norm_backward_step(const backward_vector *r, int64_t i, int64_t lanes)
{
    pt_dtype type = r->x.type;
    vf u = unit_value(r, i, lanes), dy = load(type, r->dy, i, lanes);
    vf d = dy * f32_load(r->weight + i, lanes) - r->mean_d;
    vf dx = vec_fma(-u, vec_set(r->mean_du), d) * r->rstd;
    if (r->dx_add)
        dx = dx + load(type, r->dx_add, i, lanes);
    if (r->stream_add)
        dx = dx + f32_load(r->stream_add + i, lanes);
    if (r->stream)
        f32_store(r->stream + i, dx, lanes);
    if (r->dweight)
        f32_store(r->dweight + i, vec_fma(dy, u, f32_load(r->dweight + i, lanes)), lanes);
    if (r->dbias)
        f32_store(r->dbias + i, f32_load(r->dbias + i, lanes) + dy, lanes);
    store(type, r->dx, i, dx, lanes);
}

static INLINE void norm_backward_vector(backward_vector *r, norm_kind kind, int64_t dim, float eps)
{
    r->rstd = norm_statistics(&r->x, kind, dim, eps);
    r->mean_d = kind == NORM_LAYER ? row_sum(unit_gradient, r, dim) / (float)dim : 0.0f;
    r->mean_du = row_sum(unit_gradient_product, r, dim) / (float)dim;
    int64_t i = 0;
    for (; i + VEC_LANES <= dim; i += VEC_LANES)
        norm_backward_step(r, i, VEC_LANES);
    if (i < dim)
        norm_backward_step(r, i, dim - i);
}

static INLINE void norm_backward_rows_of(pt_dtype type, const op_norm_backward *o, int64_t row0, int64_t row1,
                                         float *dweight, float *dbias)
{
    for (int64_t row = row0; row < row1; row++)
        for (int64_t head = 0; head < o->heads; head++) {
            int64_t column = head * o->dim, dx_at = row * o->lddx + column;
            backward_vector r = {
                .x = {type, at(type, o->x, row * o->ldx + column), 0},
                .weight = o->weight,
                .dy = at(type, o->dy, row * o->lddy + column),
                .dx_add = o->dx_add ? at(type, o->dx_add, dx_at) : NULL,
                .dx = at_mutable(type, o->dx, dx_at),
                .stream_add = o->stream_add ? o->stream_add + dx_at : NULL,
                .stream = o->stream ? o->stream + dx_at : NULL,
                .dweight = dweight,
                .dbias = dbias,
            };
            norm_backward_vector(&r, o->kind, o->dim, o->eps);
        }
}

void KERNEL(norm_backward_rows)(const op_norm_backward *o, int64_t row0, int64_t row1, float *dweight, float *dbias)
{
    for (int64_t i = 0; i < o->dim; i++) {
        if (dweight)
            dweight[i] = 0.0f;
        if (dbias)
            dbias[i] = 0.0f;
    }
    if (o->type == PT_BF16)
        norm_backward_rows_of(PT_BF16, o, row0, row1, dweight, dbias);
    else
        norm_backward_rows_of(PT_F32, o, row0, row1, dweight, dbias);
}
