/* vmath.h - exp, the logistic function, tanh and the normal distribution on vectors.
 *
 * Polynomials fitted for these intervals (Chebyshev interpolation, 40 digits). Errors, in units in
 * the last place: exp below 2, logistic 3, normal distribution 5 (2 from x = 1 on). NaN gives NaN.
 */
#ifndef PT_VMATH_H
#define PT_VMATH_H

#include "device/cpu/kernels/tanh.h"
#include "device/cpu/kernels/vec.h"

/* 2^k for k from vec_exp_steps(). */
static INLINE vf vec_exp_power(vf shifted) { return (vf)((vi)shifted << 23); }

/* e^r, |r| <= ln2 / 2 */
static INLINE vf vec_exp_rest(vf r)
{
    vf y = vec_fma(vec_set(0.0013926184037700295f), r, vec_set(0.008363178931176662f));
    y = vec_fma(y, r, vec_set(0.041666556149721146f));
    y = vec_fma(y, r, vec_set(0.16666576266288757f));
    y = vec_fma(y, r, vec_set(0.5f));
    y = vec_fma(y, r, vec_set(1.0f));
    return vec_fma(y, r, vec_set(1.0f));
}

/* x = k ln2 + r: adding `shift` to x / ln2 rounds it to an integer and leaves k + 127, the biased exponent of 2^k, in the low bits. */
static const float exp_shift = 0x1.8p23f + 127, exp_steps = 0x1.715476p+0f;
static const float exp_step = 0x1.62e400p-1f, exp_step_rest = 0x1.7f7d1cp-20f; /* ln2 */

/* e^x for -87 <= x <= 89, as 2^k e^r; e^89 and k = 128 give infinity. Undefined outside of the interval, except for NaN. */
static INLINE vf vec_exp_inside(vf x)
{
    vf shifted = vec_fma(x, vec_set(exp_steps), vec_set(exp_shift)), k = shifted - exp_shift;
    vf r = vec_fma(k, vec_set(-exp_step), x);
    r = vec_fma(k, vec_set(-exp_step_rest), r);
    return vec_exp_rest(r) * vec_exp_power(shifted);
}

/* e^x for x <= 0, including -infinity; 0 if it would not be a normal number (x < -87). */
static INLINE vf vec_exp_negative(vf x)
{
    return vec_keep(~(x < -87.0f), vec_exp_inside(x));
}

/* s = 1 / (1 + e^-x), the logistic function, and slope = s (1 - s). e^-x = 2^k e^r is not computed before 1 is added: scaling by 2^k is
 * exact, or 1 + e^-x is 1. */
static INLINE vf vec_logistic(vf x, vf *slope)
{
    x = vec_max(vec_set(-89.0f), x); /* NaN stays: min and max return x if it is NaN */
    x = vec_min(vec_set(87.0f), x);
    vf shifted = vec_fma(x, vec_set(-exp_steps), vec_set(exp_shift)), k = shifted - exp_shift;
    vf r = vec_fms(k, vec_set(-exp_step), x);
    r = vec_fma(k, vec_set(-exp_step_rest), r);
    vf s = 1.0f / vec_fma(vec_exp_rest(r), vec_exp_power(shifted), vec_set(1.0f));
    *slope = vec_fma(-s, s, s);
    return s;
}

/* scale * 2^-r, |r| <= 1/2, with a relative error below 4e-6. */
static INLINE vf vec_exp2_rest_of(float scale, vf r)
{
    vf y = vec_fma(vec_set(scale * 0.0096718783f), r, vec_set(scale * -0.0559220395f));
    y = vec_fma(y, r, vec_set(scale * 0.240222343f));
    y = vec_fma(y, r, vec_set(scale * -0.6931210331f));
    return vec_fma(y, r, vec_set(scale));
}

static INLINE vf vec_exp2_rest(vf r) { return vec_exp2_rest_of(1.0f, r); }

/* 1 + 2^-t with a relative error below 3.9e-6, for results rounded to bf16: the logistic function of t ln2 is its reciprocal. Exactly 1
 * from t = 127 on, infinite below -127.5. NaN stays. */
static INLINE vf vec_logistic_divisor(vf t)
{
    t = vec_max(vec_set(-128.0f), t);
    t = vec_min(vec_set(127.0f), t);
    vf shifted = exp_shift - t, k = shifted - exp_shift, r = t + k; /* both exact: -t = k - r */
    return vec_fma(vec_exp2_rest(r), vec_exp_power(shifted), vec_set(1.0f));
}

/* log(1 + e^x) = max(x, 0) + log(1 + y), y = e^-|x|. With z = y / (2 + y) <= 1/3, log(1 + y) = 2 (z + z^3 / 3 + z^5 / 5 + ...). */
static INLINE vf vec_softplus(vf x)
{
    const vf y = vec_exp_negative(-vec_abs(x)), z = y / (2.0f + y), square = z * z;
    vf sum = vec_set(1.0f / 15);
#pragma GCC unroll 8
    for (int k = 13; k > 0; k -= 2)
        sum = vec_fma(sum, square, vec_set(1.0f / (float)k));
    return vec_fma(z + z, sum, vec_max(vec_set(0), x));
}

static INLINE vf vec_tanh(vf x)
{
    vf a = vec_abs(x), e = vec_exp_negative(-2.0f * a), s = a * a, p = vec_set(tanh_terms[0]);
#pragma GCC unroll 4
    for (int i = 1; i < 5; i++)
        p = vec_fma(p, s, vec_set(tanh_terms[i]));
    vf y = vec_select(a < TANH_NEAR, vec_fma(a * s, p, a), (1.0f - e) / (1.0f + e));
    return (vf)((vu)y | ((vu)x & 0x80000000u));
}

/* P(X <= x) of the standard normal distribution, and its density at x. With a = |x|, the tail is
 * e^(-a^2/2) t p(t), t = 1 / (1 + a/4). The rounding error of a^2 is compensated, because it
 * would be amplified by a^2. */
static INLINE vf vec_normal_cdf(vf x, vf *density)
{
    vf a = vec_min(vec_set(15.0f), vec_abs(x)); /* the tail is 0 from 15 on */
    vf square = a * a, lost = vec_fma(a, a, -square);
    vf e = vec_exp_negative(-0.5f * square);
    e = vec_fma(e, -0.5f * lost, e);
    vf t = 1.0f / vec_fma(a, vec_set(0.25f), vec_set(1.0f));
    vf p = vec_fma(vec_set(0.01607147417962551f), t, vec_set(-0.06022585183382034f));
    p = vec_fma(p, t, vec_set(0.04611993581056595f));
    p = vec_fma(p, t, vec_set(0.03507515415549278f));
    p = vec_fma(p, t, vec_set(0.007866203784942627f));
    p = vec_fma(p, t, vec_set(0.08885935693979263f));
    p = vec_fma(p, t, vec_set(0.07138857245445251f));
    p = vec_fma(p, t, vec_set(0.095611572265625f));
    p = vec_fma(p, t, vec_set(0.09948556870222092f));
    p = vec_fma(p, t, vec_set(0.09974801540374756f));
    vf tail = e * t * p;
    *density = e * 0x1.988454p-2f; /* 1 / sqrt(2 pi) */
    return vec_select(x < 0.0f, tail, 1.0f - tail);
}

/* Only the tail, P(X > |x|), for a bf16 x and a result rounded to bf16; the relative error is below 5e-6. The square of such an x is exact.
 * With a = |x| the tail is the density at a times p(a) / q(a), two polynomials with a leading coefficient of 1. */
static INLINE vf vec_normal_tail_short(vf x, vf *density)
{
    const float last = 13.25f; /* e^(-a^2/2) is below the normal numbers: 2^k is 0 */
    vf a = vec_min(vec_set(last), vec_abs(x)), steps = a * a * (0.5f * exp_steps);
    vf shifted = exp_shift - steps, k = shifted - exp_shift;
    vf p = vec_fma(a + 6.596153532538115f, a, vec_set(19.189132127087166f));
    vf q = vec_fma(a + 6.595153111969462f, a, vec_set(20.220937577997006f));
    p = vec_fma(p, a, vec_set(25.100103538617283f));
    q = vec_fma(q, a, vec_set(31.28907395115959f));
    q = vec_fma(q, a, vec_set(20.027004109628155f));
    vf rest = vec_exp2_rest_of(0x1.988454p-2f, steps + k), power = vec_exp_power(shifted); /* 1 / sqrt(2 pi) */
    *density = rest * power;
    return rest * (power * (p * (1.0f / q))); /* the division overlaps with computing `rest` */
}

#endif
