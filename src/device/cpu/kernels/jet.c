/* jet.c - activations with two derivatives, and energies that are quadratic in u and its gradient. Loops in fp64 are vectorized by the
 * compiler, without fused operations, so that every instruction set has the same bits. */
#include "device/cpu/kernels/double.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vmath.h"

#include <math.h>

/* ---- in fp32 ---- */

typedef struct jet_vec { vf value, slope, curve; } jet_vec;

/* Applies a function of the C library to each lane. */
static INLINE vf each_lane(float (*f)(float), vf x)
{
    for (int i = 0; i < VEC_LANES; i++)
        x[i] = f(x[i]);
    return x;
}

/* True if the passes after JET_VALUE read tanh z in place of z. */
static INLINE bool keeps_tanh(jet_kind kind) { return kind == JET_TANH || kind == JET_TANH3; }

/* z: as kept by JET_VALUE. */
static INLINE jet_vec jet_vector(jet_kind kind, jet_pass pass, vf z)
{
    jet_vec j = {vec_set(0), vec_set(0), vec_set(0)};
    switch (kind) {
    case JET_TANH: case JET_TANH3: {
        const vf t = z, d = vec_fma(-t, t, vec_set(1.0f));
        if (kind == JET_TANH)
            return (jet_vec){t, d, -2.0f * t * d};
        return (jet_vec){t * t * t, 3.0f * t * t * d, 6.0f * t * d * (d - t * t)};
    }
    case JET_RELU3: {
        const vf x = vec_keep(~(z < 0.0f), z);
        return (jet_vec){x * x * x, 3.0f * x * x, 6.0f * x};
    }
    case JET_SILU: {
        vf d, s = vec_logistic(z, &d);
        return (jet_vec){z * s, vec_fma(z, d, s), d * vec_fma(z, vec_fma(vec_set(-2.0f), s, vec_set(1.0f)), vec_set(2.0f))};
    }
    case JET_SOFTPLUS:
        j.slope = vec_logistic(z, &j.curve);
        if (pass == JET_VALUE)
            j.value = vec_max(vec_set(0), z) + each_lane(log1pf, vec_exp_negative(-vec_abs(z)));
        return j;
    default:
        if (pass != JET_SLOPE)
            j.value = each_lane(sinf, z);
        if (pass != JET_VALUE)
            j.slope = each_lane(cosf, z);
        j.curve = -j.value;
        return j;
    }
}

static INLINE void jet_step(jet_kind kind, jet_pass pass, const op_jet *o, int64_t i, int64_t lanes)
{
    vf z = f32_load((const float *)o->z + i, lanes);
    if (pass == JET_VALUE && keeps_tanh(kind)) {
        z = vec_tanh(z);
        f32_store((float *)o->z + i, z, lanes);
    }
    if (pass == JET_VALUE && !o->out)
        return;
    const jet_vec j = jet_vector(kind, pass, z);
    vf out = j.value;
    if (pass != JET_VALUE)
        out = j.slope * f32_load((const float *)o->a + i, lanes);
    if (pass == JET_REVERSE) {
        const vf c = f32_load((const float *)o->c + i, lanes);
        out = vec_fma(j.curve * f32_load((const float *)o->b + i, lanes), c, out);
        f32_store((float *)o->other + i, j.slope * c, lanes);
    } else if (o->residual)
        out += f32_load((const float *)o->residual + i, lanes);
    f32_store((float *)o->out + i, out, lanes);
}

static INLINE void jet_single(jet_kind kind, jet_pass pass, const op_jet *o, int64_t begin, int64_t end)
{
    int64_t i = begin;
    for (; i + VEC_LANES <= end; i += VEC_LANES)
        jet_step(kind, pass, o, i, VEC_LANES);
    if (i < end)
        jet_step(kind, pass, o, i, end - i);
}

/* ---- in fp64 ---- */

/* e^x - 1 for -700 <= x <= 0: x = k ln2 + r; e^r - 1 by its series, whose next term is below 2^-55 of it. */
static INLINE double expm1_negative(double x)
{
    const double shift = 0x1.8p52 + 1023;
    union { double d; uint64_t u; } k = {x * 0x1.71547652b82fep0 + shift}, power = {.u = k.u << 52};
    const double n = k.d - shift, r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    return power.d * (r + r * r * p) + (power.d - 1);
}

/* max(x, least); NaN stays. */
static INLINE double at_least(double x, double least) { return x < least ? least : x; }

static INLINE double tanh_double(double x)
{
    const double m = expm1_negative(at_least(-2 * fabs(x), -700));
    return copysign(-m / (2 + m), x);
}

/* s = 1 / (1 + e^-x) and s (1 - s). */
static INLINE double logistic_double(double x, double *slope)
{
    const double e = 1 + expm1_negative(at_least(-fabs(x), -700)), large = 1 / (1 + e), small = e * large;
    *slope = large * small;
    return x < 0 ? small : large;
}

typedef struct jet_number { double value, slope, curve; } jet_number;

static INLINE jet_number jet_double(jet_kind kind, jet_pass pass, double z)
{
    jet_number j = {0, 0, 0};
    switch (kind) {
    case JET_TANH: case JET_TANH3: {
        const double t = z, d = 1 - t * t;
        if (kind == JET_TANH)
            return (jet_number){t, d, -2 * t * d};
        return (jet_number){t * t * t, 3 * t * t * d, 6 * t * d * (d - t * t)};
    }
    case JET_RELU3: {
        const double x = z < 0 ? 0 : z;
        return (jet_number){x * x * x, 3 * x * x, 6 * x};
    }
    case JET_SILU: {
        double d, s = logistic_double(z, &d);
        return (jet_number){z * s, s + z * d, d * (2 + z * (1 - 2 * s))};
    }
    case JET_SOFTPLUS:
        j.slope = logistic_double(z, &j.curve);
        if (pass == JET_VALUE)
            j.value = (z < 0 ? 0 : z) + log1p(exp(-fabs(z)));
        return j;
    default:
        if (pass != JET_SLOPE)
            j.value = sin(z);
        if (pass != JET_VALUE)
            j.slope = cos(z);
        j.curve = -j.value;
        return j;
    }
}

static INLINE void jet_doubles(jet_kind kind, jet_pass pass, const op_jet *o, int64_t begin, int64_t end)
{
    const double *a = o->a, *b = o->b, *c = o->c, *residual = o->residual;
    double *z = o->z, *out = o->out, *other = o->other;
    if (pass == JET_VALUE && keeps_tanh(kind)) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; i++)
            z[i] = tanh_double(z[i]);
    }
    if (pass == JET_VALUE && !out)
        return;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        const jet_number j = jet_double(kind, pass, z[i]);
        double y = pass == JET_VALUE ? j.value : j.slope * a[i];
        if (pass == JET_REVERSE) {
            y += j.curve * b[i] * c[i];
            other[i] = j.slope * c[i];
        } else if (residual)
            y += residual[i];
        out[i] = y;
    }
}

/* ---- both ---- */

#define JET_RUN(kind, pass) (o->type == PT_F64 ? jet_doubles(kind, pass, o, begin, end) : jet_single(kind, pass, o, begin, end))
#define JET_CASE(kind)                                            \
    case kind:                                                    \
        if (o->pass == JET_VALUE)                                 \
            JET_RUN(kind, JET_VALUE);                             \
        else if (o->pass == JET_SLOPE)                            \
            JET_RUN(kind, JET_SLOPE);                             \
        else                                                      \
            JET_RUN(kind, JET_REVERSE);                           \
        break;

void KERNEL(jet_part)(const op_jet *o, int64_t begin, int64_t end)
{
    switch (o->kind) {
    JET_CASE(JET_TANH)
    JET_CASE(JET_TANH3)
    JET_CASE(JET_RELU3)
    JET_CASE(JET_SOFTPLUS)
    JET_CASE(JET_SIN)
    JET_CASE(JET_SILU)
    default: break;
    }
}

/* ---- energies ---- */

static INLINE double number(pt_dtype type, const void *base, int64_t i) {
    return type == PT_F64 ? ((const double *)base)[i] : ((const float *)base)[i]; }

static INLINE void put(pt_dtype type, void *base, int64_t i, double x)
{
    if (type == PT_F64)
        ((double *)base)[i] = x;
    else
        ((float *)base)[i] = (float)x;
}

static INLINE void quadratic_row(pt_dtype type, const op_quadratic *o, int64_t row)
{
    const double *t = o->terms + row * QUADRATIC_TERMS, u = number(type, o->u, row);
    double squares = 0;
    for (int64_t i = 0; i < o->ld && o->g; i++) {
        const double g = i < o->dim ? number(type, o->g, row * o->ld + i) : 0;
        squares += g * g;
        put(type, o->dg, row * o->ld + i, t[0] * g);
    }
    o->value[row] = 0.5 * t[0] * squares + 0.5 * t[1] * u * u - t[2] * u + t[3];
    put(type, o->du, row, t[1] * u - t[2] + t[4]);
}

void KERNEL(quadratic_rows)(const op_quadratic *o, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        if (o->type == PT_F64)
            quadratic_row(PT_F64, o, row);
        else
            quadratic_row(PT_F32, o, row);
    }
}
