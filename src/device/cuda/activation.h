/* activation.h - activation functions and their derivatives; kernels_activation.cu says how exact they are. */
#ifndef PT_CUDA_ACTIVATION_H
#define PT_CUDA_ACTIVATION_H

#include "device/cuda/primitives.h"

#define LOG2_E 1.4426950408889634f

/* e^(scale x); scale is a constant. */
template <pt_dtype T> DEVICE float exponential(float x, float scale)
{
    return T == PT_BF16 ? exp2_fast(x * (scale * LOG2_E)) : expf(x * scale);
}

template <pt_dtype T> DEVICE float reciprocal(float x) { return T == PT_BF16 ? reciprocal_fast(x) : __frcp_rn(x); }

/* 1 / (1 + e), the logistic function of -x for e = e^x; slope = s (1 - s) = e s^2. Not 1 - s: in bf16 the reciprocal of 1 need
 * not be exactly 1, and far from 0 the difference is multiplied by thousands. */
template <pt_dtype T> DEVICE float logistic(float e, float *slope)
{
    float s = reciprocal<T>(1.0f + e);
    *slope = T == PT_BF16 ? fminf(e, 0x1p126f) * s * s : fmaf(-s, s, s);
    return s;
}

/* P(X <= x) of the standard normal distribution, and its density at x. With a = |x|, the tail is
 * e^(-a^2/2) t p(t), t = 1 / (1 + a/4); in fp32 the rounding error of a^2 is compensated. NaN stays NaN. */
template <pt_dtype T> DEVICE float normal_cdf(float x, float *density)
{
    float a = fabsf(x) > 15.0f ? 15.0f : fabsf(x); /* the tail is 0 from 15 on */
    float square = a * a, e = exponential<T>(square, -0.5f);
    if (T == PT_F32)
        e = fmaf(e, -0.5f * fmaf(a, a, -square), e);
    float t = reciprocal<T>(fmaf(a, 0.25f, 1.0f));
    float p = fmaf(0.01607147417962551f, t, -0.06022585183382034f);
    p = fmaf(p, t, 0.04611993581056595f);
    p = fmaf(p, t, 0.03507515415549278f);
    p = fmaf(p, t, 0.007866203784942627f);
    p = fmaf(p, t, 0.08885935693979263f);
    p = fmaf(p, t, 0.07138857245445251f);
    p = fmaf(p, t, 0.095611572265625f);
    p = fmaf(p, t, 0.09948556870222092f);
    p = fmaf(p, t, 0.09974801540374756f);
    float tail = e * t * p;
    *density = e * 0.3989422804014327f; /* 1 / sqrt(2 pi) */
    return x < 0.0f ? tail : 1.0f - tail;
}

/* f(x) and its derivative. Comparisons with NaN are false, so relu tests for the values that it drops. */
template <activation_kind K, pt_dtype T> DEVICE float activation(float x, float *derivative)
{
    float s, slope;
    if (K == ACT_GELU_TANH) { /* (1 + tanh u) / 2 = logistic(2u) */
        const float scale = 1.5957691216057308f, cubic = scale * 0.044715f; /* 2 sqrt(2 / pi) */
        const float unit = T == PT_BF16 ? LOG2_E : 1.0f;
        float square = x * x, u = x * fmaf(-cubic * unit, square, -scale * unit);
        s = logistic<T>(T == PT_BF16 ? exp2_fast(u) : expf(u), &slope);
        *derivative = fmaf(x * slope, fmaf(3 * cubic, square, scale), s);
        return x * s;
    }
    if (K == ACT_GELU_ERF || K == ACT_SILU) {
        s = K == ACT_SILU ? logistic<T>(exponential<T>(x, -1.0f), &slope) : normal_cdf<T>(x, &slope);
        *derivative = fmaf(x, slope, s);
        return x * s;
    }
    if (K == ACT_RELU2) {
        s = x < 0.0f ? 0.0f : x;
        *derivative = s + s;
        return s * s;
    }
    *derivative = x <= 0.0f ? 0.0f : 1.0f;
    return x < 0.0f ? 0.0f : x;
}

#endif
