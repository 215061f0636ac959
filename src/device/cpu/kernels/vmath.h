/* vmath.h - exp, the logistic function and the normal distribution on vectors.
 *
 * Polynomials fitted for these intervals (Chebyshev interpolation, 40 digits). Errors, in units in
 * the last place of a normal result: exp below 2, logistic 3, normal distribution 5 (in its far
 * tail; 2 from x = 1 on). NaN gives NaN.
 */
#ifndef PT_VMATH_H
#define PT_VMATH_H

#include "device/cpu/kernels/vec.h"

/* e^x = 2^k e^r with |r| <= ln2 / 2 and e^r = 1 + r + r^2 q(r). 2^k is applied in two steps, so
 * that results below the normal range are rounded once and those above it become infinite. */
static INLINE vf vec_exp(vf x)
{
    const float to_nearest = 0x1.8p23f; /* adding it rounds to an integer */
    x = vec_min(vec_set(89.0f), x);     /* e^89 is infinite, */
    x = vec_max(vec_set(-104.0f), x);   /* e^-104 is 0; a NaN stays: min and max return x then */
    vf shifted = vec_fma(x, vec_set(0x1.715476p+0f), vec_set(to_nearest));
    vf k = shifted - to_nearest;
    vf r = vec_fma(k, vec_set(-0x1.62e400p-1f), x);
    r = vec_fma(k, vec_set(-0x1.7f7d1cp-20f), r);
    vf q = vec_fma(vec_set(0.0013926184037700295f), r, vec_set(0.008363178931176662f));
    q = vec_fma(q, r, vec_set(0.041666556149721146f));
    q = vec_fma(q, r, vec_set(0.16666576266288757f));
    q = vec_fma(q, r, vec_set(0.5f));
    vf y = vec_fma(r * r, q, r) + 1.0f;
    vi power = (vi)shifted - (vi)vec_set(to_nearest), half = power >> 1;
    return y * (vf)((half + 127) << 23) * (vf)((power - half + 127) << 23);
}

/* s = 1 / (1 + e^-z) and slope = ds/dz = s (1 - s), both without cancellation. */
static INLINE vf vec_logistic(vf z, vf *slope)
{
    vf e = vec_exp(-vec_abs(z)), t = 1.0f / (1.0f + e);
    *slope = e * t * t;
    return vec_select(z < 0.0f, e * t, t);
}

/* P(X <= x) of the standard normal distribution, and its density at x. With a = |x|, the tail is
 * e^(-a^2/2) t p(t), t = 1 / (1 + a/4). What is lost in rounding a^2 is put back: it would be
 * multiplied by a^2. */
static INLINE vf vec_normal_cdf(vf x, vf *density)
{
    vf a = vec_min(vec_set(15.0f), vec_abs(x)); /* the tail from 15 is 0 */
    vf square = a * a, lost = vec_fma(a, a, -square);
    vf e = vec_exp(-0.5f * square);
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

#endif
