#include "device/cpu/kernels/gated.h"

#include "device/cpu/kernels/activation_function.h"
#include "device/cpu/kernels/isa.h"

#include <math.h>
#include <string.h>

static INLINE int64_t lanes_of(int64_t n, int64_t i) { return n - i < VEC_LANES ? n - i : VEC_LANES; }

/* ---- the gates of a scan ---- */

/* A row's heads i .. i + lanes. */
typedef struct gate_values { vf rate /* -exp(a_log) */, step, open /* the derivative of step by a */; } gate_values;

static INLINE gate_values gate_values_of(const op_gates *o, vf a, int64_t i, int64_t lanes)
{
    gate_values v;
    v.rate = -vec_exp_inside(vec_max(vec_set(-87), vec_min(vec_set(87), f32_load(o->a_log + i, lanes))));
    a = a + f32_load(o->step_bias + i, lanes);
    v.step = vec_softplus(a);
    vf slope;
    v.open = vec_logistic(a, &slope);
    if (o->kind != SCAN_SSD)
        return v;
    const vi low = v.step < o->least, high = o->most > 0 ? (vi)(v.step > o->most) : (vi){0};
    v.open = vec_keep(~(low | high), v.open);
    v.step = vec_select(low, vec_set(o->least), vec_select(high, vec_set(o->most), v.step));
    return v;
}

static INLINE void gates(pt_dtype type, const op_gates *o, int64_t row)
{
    for (int64_t i = 0; i < o->heads; i += VEC_LANES) {
        const int64_t lanes = lanes_of(o->heads, i), at = row * o->ld + i;
        const gate_values v = gate_values_of(o, load(type, o->a, at, lanes), i, lanes);
        vf slope, beta = o->kind == SCAN_SSD ? v.step : vec_logistic(load(type, o->b, at, lanes), &slope);
        f32_store(o->g + row * o->heads + i, v.rate * v.step, lanes);
        f32_store(o->beta + row * o->heads + i, beta, lanes);
    }
}

void KERNEL(gates_rows)(const op_gates *o, int64_t row0, int64_t row1)
{
    for (int64_t row = row0; row < row1; row++)
        if (o->type == PT_BF16)
            gates(PT_BF16, o, row);
        else
            gates(PT_F32, o, row);
}

static INLINE void gates_backward(pt_dtype type, const op_gates_backward *b, int64_t row, float *sums)
{
    const op_gates *o = &b->forward;
    for (int64_t i = 0; i < o->heads; i += VEC_LANES) {
        const int64_t lanes = lanes_of(o->heads, i), at = row * o->ld + i;
        const gate_values v = gate_values_of(o, load(type, o->a, at, lanes), i, lanes);
        const vf dg = f32_load(b->dg + row * o->heads + i, lanes), dbeta = f32_load(b->dbeta + row * o->heads + i, lanes);
        const vf da = (o->kind == SCAN_SSD ? vec_fma(dg, v.rate, dbeta) : dg * v.rate) * v.open;
        store(type, b->da, row * b->ldd + i, da, lanes);
        if (o->kind == SCAN_DELTA) {
            vf slope;
            vec_logistic(load(type, o->b, at, lanes), &slope);
            store(type, b->db, row * b->ldd + i, dbeta * slope, lanes);
        }
        f32_store(sums + i, vec_fma(dg, v.rate * v.step, f32_load(sums + i, lanes)), lanes);
        f32_store(sums + o->heads + i, f32_load(sums + o->heads + i, lanes) + da, lanes);
    }
}

void KERNEL(gates_backward_rows)(const op_gates_backward *b, int64_t row0, int64_t row1, float *sums)
{
    memset(sums, 0, (size_t)(2 * b->forward.heads) * sizeof *sums);
    for (int64_t row = row0; row < row1; row++)
        if (b->forward.type == PT_BF16)
            gates_backward(PT_BF16, b, row, sums);
        else
            gates_backward(PT_F32, b, row, sums);
}

/* ---- norms with a gate ---- */

/* A head of a row. */
typedef struct gated_head {
    const void *x, *z, *dy;
    void *y, *dx, *dz;
    const float *weight;
    float *wide, *dweight, rstd;
} gated_head;

static INLINE vf gate(pt_dtype type, bool sigmoid, vf z, vf *derivative)
{
    if (sigmoid)
        return logistic(ACT_SILU, type, z, derivative);
    return activation(ACT_SILU, type, z, derivative);
}

/* What is normalized: x, or x * act. */
static INLINE vf normalized(pt_dtype type, const op_gated_norm *o, const gated_head *h, int64_t i, int64_t lanes)
{
    vf derivative, x = load(type, h->x, i, lanes);
    return o->kind == GATED_GATE_FIRST ? x * gate(type, o->sigmoid, load(type, h->z, i, lanes), &derivative) : x;
}

/* A term of the sum of squares, which is kept in `wide`. */
typedef struct head_of { const op_gated_norm *o; const gated_head *h; float mean; } head_of;

static INLINE vf square_term(pt_dtype type, const head_of *c, int64_t i, int64_t lanes)
{
    const vf p = normalized(type, c->o, c->h, i, lanes);
    if (c->h->wide)
        f32_store(c->h->wide + i, p, lanes);
    return p * p;
}

static INLINE vf square_f32(const void *ctx, int64_t i, int64_t lanes) { return square_term(PT_F32, ctx, i, lanes); }
static INLINE vf square_bf16(const void *ctx, int64_t i, int64_t lanes) { return square_term(PT_BF16, ctx, i, lanes); }

static INLINE float rstd_of(pt_dtype type, const op_gated_norm *o, const gated_head *h)
{
    const head_of c = {o, h, 0};
    const float sum = row_sum(type == PT_BF16 ? square_bf16 : square_f32, &c, o->dim);
    return 1.0f / sqrtf(sum / (float)o->dim + o->eps);
}

static INLINE vf output(const op_gated_norm *o, vf n, vf weight, vf act)
{
    n = n * weight;
    return o->kind == GATED_NORM_FIRST ? n * act : n;
}

static INLINE void gated_norm(pt_dtype type, const op_gated_norm *o, gated_head *h)
{
    vf derivative;
    const bool norm = o->kind != GATED_ONLY;
    if (norm)
        h->rstd = rstd_of(type, o, h);
    for (int64_t i = 0; i < o->dim; i += VEC_LANES) {
        const int64_t lanes = lanes_of(o->dim, i);
        const vf act = o->kind == GATED_GATE_FIRST ? (vf){0} : gate(type, o->sigmoid, load(type, h->z, i, lanes), &derivative);
        vf y;
        if (norm)
            y = output(o, f32_load(h->wide + i, lanes) * h->rstd, f32_load(h->weight + i, lanes), act);
        else
            y = load(type, h->x, i, lanes) * act;
        store(type, h->y, i, y, lanes);
    }
}

static INLINE gated_head head_at(const op_gated_norm *o, int64_t row, int64_t head)
{
    const int64_t step = o->z_step ? o->z_step : o->dim;
    return (gated_head){.x = at(o->type, o->x, row * o->ldx + head * o->dim), .z = at(o->type, o->z, row * o->ldz + head * step),
                        .weight = o->weight ? o->weight + head * o->weight_step : NULL};
}

void KERNEL(gated_norm_rows)(const op_gated_norm *o, int64_t row0, int64_t row1, float *wide)
{
    for (int64_t row = row0; row < row1; row++)
        for (int64_t head = 0; head < o->heads; head++) {
            gated_head h = head_at(o, row, head);
            h.y = at_mutable(o->type, o->y, row * o->ldy + head * o->dim), h.wide = wide;
            if (o->type == PT_BF16)
                gated_norm(PT_BF16, o, &h);
            else
                gated_norm(PT_F32, o, &h);
        }
}

/* The gradient of n = p * rstd. */
static INLINE vf norm_gradient(pt_dtype type, const op_gated_norm *o, const gated_head *h, vf act, int64_t i, int64_t lanes)
{
    const vf d = load(type, h->dy, i, lanes) * f32_load(h->weight + i, lanes);
    return o->kind == GATED_NORM_FIRST ? d * act : d;
}

static INLINE vf product_term(pt_dtype type, const head_of *c, int64_t i, int64_t lanes)
{
    vf derivative, act = gate(type, c->o->sigmoid, load(type, c->h->z, i, lanes), &derivative), x = load(type, c->h->x, i, lanes);
    const vf p = c->o->kind == GATED_GATE_FIRST ? x * act : x;
    return norm_gradient(type, c->o, c->h, act, i, lanes) * (p * c->h->rstd);
}

static INLINE vf product_f32(const void *ctx, int64_t i, int64_t lanes) { return product_term(PT_F32, ctx, i, lanes); }
static INLINE vf product_bf16(const void *ctx, int64_t i, int64_t lanes) { return product_term(PT_BF16, ctx, i, lanes); }

static INLINE void backward_step(pt_dtype type, const head_of *c, int64_t i, int64_t lanes)
{
    const op_gated_norm *o = c->o;
    const gated_head *h = c->h;
    vf derivative, act = gate(type, o->sigmoid, load(type, h->z, i, lanes), &derivative);
    const vf x = load(type, h->x, i, lanes), dy = load(type, h->dy, i, lanes);
    vf y, dx, dz;
    if (o->kind == GATED_ONLY) {
        y = x * act, dx = dy * act, dz = dy * x * derivative;
    } else {
        const vf weight = f32_load(h->weight + i, lanes), n = (o->kind == GATED_GATE_FIRST ? x * act : x) * h->rstd;
        const vf dp = vec_fma(-n, vec_set(c->mean), norm_gradient(type, o, h, act, i, lanes)) * h->rstd;
        y = output(o, n, weight, act);
        dx = o->kind == GATED_GATE_FIRST ? dp * act : dp;
        dz = (o->kind == GATED_GATE_FIRST ? dp * x : dy * weight * n) * derivative;
        if (h->dweight)
            f32_store(h->dweight + i, vec_fma(dy, o->kind == GATED_NORM_FIRST ? n * act : n, f32_load(h->dweight + i, lanes)), lanes);
    }
    store(type, h->dx, i, dx, lanes);
    store(type, h->dz, i, dz, lanes);
    if (h->y)
        store(type, h->y, i, y, lanes);
}

static INLINE void gated_norm_backward(pt_dtype type, const op_gated_norm *o, gated_head *h)
{
    head_of c = {o, h, 0};
    if (o->kind != GATED_ONLY) {
        h->rstd = rstd_of(type, o, h);
        c.mean = row_sum(type == PT_BF16 ? product_bf16 : product_f32, &c, o->dim) / (float)o->dim;
    }
    for (int64_t i = 0; i < o->dim; i += VEC_LANES)
        backward_step(type, &c, i, lanes_of(o->dim, i));
}

void KERNEL(gated_norm_backward_rows)(const op_gated_norm_backward *b, int64_t row0, int64_t row1, float *dweight)
{
    const op_gated_norm *o = &b->forward;
    if (dweight)
        memset(dweight, 0, (size_t)(o->weight_step ? o->heads * o->dim : o->dim) * sizeof *dweight);
    for (int64_t row = row0; row < row1; row++)
        for (int64_t head = 0; head < o->heads; head++) {
            const int64_t column = head * o->dim, step = o->z_step ? o->z_step : o->dim;
            gated_head h = head_at(o, row, head);
            h.dy = at(o->type, b->dy, row * b->lddy + column);
            h.dx = at_mutable(o->type, b->dx, row * b->lddx + column), h.dz = at_mutable(o->type, b->dz, row * b->lddz + head * step);
            h.y = b->y ? at_mutable(o->type, b->y, row * b->lddy + column) : NULL;
            h.dweight = dweight ? dweight + head * o->weight_step : NULL;
            if (o->type == PT_BF16)
                gated_norm_backward(PT_BF16, o, &h);
            else
                gated_norm_backward(PT_F32, o, &h);
        }
}
