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

static INLINE void norm_apply(const norm_vector *r, const float *weight, const float *bias, float rstd, void *y,
                              int64_t i, int64_t lanes)
{
    vf unit = (load(r->type, r->x, i, lanes) - r->mean) * rstd;
    vf w = f32_load(weight + i, lanes);
    vf b = bias ? f32_load(bias + i, lanes) : vec_set(0.0f);
    store(r->type, y, i, vec_fma(unit, w, b), lanes);
}

static INLINE void norm_rows_of(pt_dtype type, const op_norm *o, int64_t row0, int64_t row1)
{
    for (int64_t row = row0; row < row1; row++)
        for (int64_t head = 0; head < o->heads; head++) {
            norm_vector r = {type, at(type, o->x, row * o->ldx + head * o->dim), 0};
            void *y = at_mutable(type, o->y, row * o->ldy + head * o->dim);
            float rstd = norm_statistics(&r, o->kind, o->dim, o->eps);
            int64_t i = 0;
            for (; i + VEC_LANES <= o->dim; i += VEC_LANES)
                norm_apply(&r, o->weight, o->bias, rstd, y, i, VEC_LANES);
            if (i < o->dim)
                norm_apply(&r, o->weight, o->bias, rstd, y, i, o->dim - i);
        }
}

void KERNEL(norm_rows)(const op_norm *o, int64_t row0, int64_t row1)
{
    if (o->type == PT_BF16)
        norm_rows_of(PT_BF16, o, row0, row1);
    else
        norm_rows_of(PT_F32, o, row0, row1);
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
