/* activation_function.h - activation functions and their derivatives on vectors. */
#ifndef PT_KERNEL_ACTIVATION_FUNCTION_H
#define PT_KERNEL_ACTIVATION_FUNCTION_H

#include "device/cpu/kernels/vmath.h"
#include "device/device.h"

#include <float.h>

/* SiLU and GELU by tanh are x * logistic(v): v = x for SiLU, v = 2u for GELU, since (1 + tanh u) / 2 = logistic(2u). If the result is
 * rounded to bf16, the logistic function is computed with fewer terms. */
static const float gelu_scale = 0x1.988454p0f, gelu_cubic = 0x1.988454p0f * 0.044715f; /* 2 sqrt(2 / pi) */

/* The argument of the logistic function, divided by ln 2. */
static INLINE vf logistic_steps(activation_kind kind, vf x)
{
    const float scale = 2.3022082f, cubic = scale * 0.044715f; /* gelu_scale / ln2 */
    return kind == ACT_SILU ? x * exp_steps : x * vec_fma(vec_set(cubic), x * x, vec_set(scale));
}

static INLINE vf logistic(activation_kind kind, pt_dtype type, vf x, vf *slope)
{
    if (type == PT_F32)
        return vec_logistic(kind == ACT_SILU ? x : x * vec_fma(vec_set(gelu_cubic), x * x, vec_set(gelu_scale)), slope);
    vf s = 1.0f / vec_logistic_divisor(logistic_steps(kind, x));
    *slope = vec_fma(-s, s, s);
    return s;
}

/* f(x) and its derivative. Comparisons with NaN are false, so relu tests for the values that it drops. */
static INLINE vf activation(activation_kind kind, pt_dtype type, vf x, vf *derivative)
{
    vf s, slope;
    switch (kind) {
    case ACT_GELU_TANH: {
        s = logistic(kind, type, x, &slope);
        vf inner = vec_fma(vec_set(3 * gelu_cubic), x * x, vec_set(gelu_scale));
        *derivative = vec_fma(x * slope, inner, s);
        return x * s;
    }
    case ACT_GELU_ERF: {
        if (type == PT_F32) {
            s = vec_normal_cdf(x, &slope);
            *derivative = vec_fma(x, slope, s);
            return x * s;
        }
        vf tail = vec_normal_tail_short(x, &slope), below = vec_min(vec_set(FLT_MAX), x); /* otherwise inf * 0 is NaN */
        *derivative = vec_fma(x, slope, vec_select(x < 0.0f, tail, 1.0f - tail));
        return vec_fma(-vec_abs(below), tail, vec_max(vec_set(0.0f), x));
    }
    case ACT_SILU:
        s = logistic(kind, type, x, &slope);
        *derivative = vec_fma(x, slope, s);
        return x * s;
    case ACT_RELU2:
        s = vec_keep(~(x < 0.0f), x);
        *derivative = s + s;
        return s * s;
    default:
        *derivative = vec_keep(~(x <= 0.0f), vec_set(1.0f));
        return vec_keep(~(x < 0.0f), x);
    }
}

/* run(kind, type, ...) with both as constants. */
#define FOR_KIND_AND_TYPE(run, kind, type, ...)                                                          \
    switch (kind) {                                                                                      \
    case ACT_GELU_TANH: FOR_TYPE(run, ACT_GELU_TANH, type, __VA_ARGS__); break;                          \
    case ACT_GELU_ERF: FOR_TYPE(run, ACT_GELU_ERF, type, __VA_ARGS__); break;                            \
    case ACT_SILU: FOR_TYPE(run, ACT_SILU, type, __VA_ARGS__); break;                                    \
    case ACT_RELU: FOR_TYPE(run, ACT_RELU, type, __VA_ARGS__); break;                                    \
    case ACT_RELU2: FOR_TYPE(run, ACT_RELU2, type, __VA_ARGS__); break;                                  \
    }
#define FOR_TYPE(run, kind, type, ...) \
    ((type) == PT_BF16 ? run(kind, PT_BF16, __VA_ARGS__) : run(kind, PT_F32, __VA_ARGS__))

#endif
