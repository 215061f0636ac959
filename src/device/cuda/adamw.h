/* adamw.h - loads and stores packs of master weights; AdamW's step on a value, for any format of the moments. */
#ifndef PT_CUDA_ADAMW_H
#define PT_CUDA_ADAMW_H

#include "device/cuda/primitives.h"

/* From hi and lo to fp32 weights, and back; base/dtype.h says why this is exact. fp32: hi is the weight. */
template <pt_dtype T> DEVICE pack master_load(const void *high, const uint16_t *low, int64_t i, int64_t n, bool wide)
{
    if constexpr (T != PT_BF16) {
        return pack_load<PT_F32>(high, i, n, wide);
    } else {
        half_pack hi = half_load((const uint16_t *)high, i, n, wide), lo = half_load(low, i, n, wide);
        pack w;
        for (int j = 0; j < PACK; j++)
            w.x[j] = __uint_as_float((uint32_t)(hi.x[j] - (lo.x[j] >> 15)) << 16 | lo.x[j]);
        return w;
    }
}

template <pt_dtype T> DEVICE void master_store(void *high, uint16_t *low, int64_t i, int64_t n, bool wide, pack w)
{
    if constexpr (T != PT_BF16) {
        pack_store<PT_F32>(high, i, n, wide, w);
    } else {
        half_pack hi, lo;
        for (int j = 0; j < PACK; j++) {
            uint32_t u = __float_as_uint(w.x[j]);
            if ((u & 0x7fffffffu) > 0x7f800000u)
                u = 0x7fc00000u; /* a GPU's NaN, 0x7fffffff, would be rounded to -0 */
            hi.x[j] = (uint16_t)((u + 0x8000u) >> 16);
            lo.x[j] = (uint16_t)u;
        }
        half_store((uint16_t *)high, i, n, wide, hi);
        half_store(low, i, n, wide, lo);
    }
}

DEVICE float moment_tidy(float x, uint32_t bound) { return (__float_as_uint(x) & 0x7fffffffu) < bound ? 0.0f : x; }

/* The sequence of operations in op_adamw. */
DEVICE void adamw_element(const op_adamw &o, uint32_t second_least, float g, float *w, float *m, float *v)
{
    g = __fmul_rn(g, o.grad_scale);
    *w = __fmul_rn(*w, o.decay);
    *m = moment_tidy(__fmaf_rn(__fsub_rn(1.0f, o.beta1), __fsub_rn(g, *m), *m), MOMENT_LEAST);
    *v = moment_tidy(__fmaf_rn(__fsub_rn(1.0f, o.beta2), __fmul_rn(g, g), __fmul_rn(o.beta2, *v)), second_least);
    float root = __fadd_rn(__fdiv_rn(__fsqrt_rn(*v), o.sqrt_correction2), o.eps);
    *w = __fmaf_rn(-o.step_size, __fdiv_rn(*m, root), *w);
}

#endif
