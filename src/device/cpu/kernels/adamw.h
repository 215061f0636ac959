/* adamw.h - loads and stores master weights as vectors; AdamW's step on a vector, for any format of the moments. */
#ifndef PT_KERNEL_ADAMW_H
#define PT_KERNEL_ADAMW_H

#include "device/cpu/kernels/vec.h"
#include "device/device.h"

/* From hi and lo to the fp32 weight, and back; base/dtype.h says why this is exact. fp32: hi is the weight. */
static INLINE vf master_load(pt_dtype type, const void *hi, const uint16_t *lo, int64_t i, int64_t lanes)
{
    if (type != PT_BF16)
        return load(PT_F32, hi, i, lanes);
    vu high = u16_load_lanes((const uint16_t *)hi + i, lanes), low = u16_load_lanes(lo + i, lanes);
    return (vf)(((high - (low >> 15)) << 16) | low);
}

static INLINE void master_store(pt_dtype type, void *hi, uint16_t *lo, int64_t i, vf w, int64_t lanes)
{
    if (type != PT_BF16) {
        store(PT_F32, hi, i, w, lanes);
        return;
    }
    vu u = (vu)w, nan = (vu)(w != w); /* every NaN becomes the same one (base/dtype.h) */
    u = (u & ~nan) | (0x7fc00000u & nan);
    u16_store_lanes((uint16_t *)hi + i, (u + 0x8000u) >> 16, lanes);
    u16_store_lanes(lo + i, u & 0xffffu, lanes);
}

/* Flushes x to zero where it is below a bound, compared by bits. Otherwise the moments of a row without gradients would become denormal and
 * stay so, and multiplying denormals is many times slower. */
static INLINE vf moment_tidy(vf x, uint32_t bound) { return vec_keep(((vu)x & 0x7fffffffu) >= bound, x); }

/* Updates weights i .. i + lanes, with moments m and v instead of those of o. */
static INLINE void adamw_values(pt_dtype type, const op_adamw *o, int64_t i, int64_t lanes, vf *m, vf *v)
{
    float one_minus_beta1 = 1.0f - o->beta1, one_minus_beta2 = 1.0f - o->beta2;
    vf g = load(type, o->g, i, lanes) * o->grad_scale;
    vf w = master_load(type, o->hi, o->lo, i, lanes);
    w = w * o->decay;
    *m = moment_tidy(vec_fma(vec_set(one_minus_beta1), g - *m, *m), MOMENT_LEAST);
    *v = moment_tidy(vec_fma(vec_set(one_minus_beta2), g * g, o->beta2 * *v), adamw_second_least(o));
    vf update = *m / (vec_sqrt(*v) / o->sqrt_correction2 + o->eps);
    w = vec_fma(vec_set(-o->step_size), update, w);
    master_store(type, o->hi, o->lo, i, w, lanes);
}

#endif
