#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/kernels/adamw.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/squares.h"

/* ---- rounding a gradient ---- */

static INLINE vf finish_sum(const op_gradient_finish *o, int64_t i, int64_t lanes)
{
    vf g = f32_load(o->acc + i, lanes);
    return o->acc2 ? g + f32_load(o->acc2 + i, lanes) : g;
}

static INLINE void finish_step(pt_dtype type, const op_gradient_finish *o, int64_t i, int64_t lanes, vd *sum)
{
    vf g = vec_round(type, finish_sum(o, i, lanes));
    store(type, o->g, i, g, lanes);
    squares_add(sum, g);
}

enum { FINISH_AHEAD = 512 }; /* elements; the hardware prefetcher is too late */

/* Two vectors at a time, rounded once for both the store and the squares. */
static INLINE void finish_two(pt_dtype type, const op_gradient_finish *o, int64_t i, vd first_sum[2], vd second_sum[2])
{
    __builtin_prefetch(o->acc + i + FINISH_AHEAD);
    __builtin_prefetch(o->acc + i + VEC_LANES + FINISH_AHEAD);
    vf first = finish_sum(o, i, VEC_LANES), second = finish_sum(o, i + VEC_LANES, VEC_LANES);
    if (type == PT_BF16) {
        vu upper[2] = {bf16_upper(first), bf16_upper(second)};
        upper_store_two((uint16_t *)o->g + i, upper[0], upper[1]);
        first = (vf)(upper[0] & 0xffff0000u), second = (vf)(upper[1] & 0xffff0000u);
    } else {
        f32_store((float *)o->g + i, first, VEC_LANES);
        f32_store((float *)o->g + i + VEC_LANES, second, VEC_LANES);
    }
    squares_add(first_sum, first);
    squares_add(second_sum, second);
}

static INLINE double gradient_finish_of(pt_dtype type, op_gradient_finish o, int64_t i, int64_t n)
{
    squares s = {0};
    int64_t end = i + n;
    for (; i + SQUARES <= end; i += SQUARES)
#pragma GCC unroll 16
        for (int j = 0; j < SQUARE_VECS; j += 2)
            finish_two(type, &o, i + j * VEC_LANES, &s.part[2 * j], &s.part[2 * j + 2]);
#pragma GCC unroll 32
    for (int j = 0; j < SQUARE_VECS; j++) {
        int64_t left = end - i - j * VEC_LANES;
        if (left > 0)
            finish_step(type, &o, i + j * VEC_LANES, left < VEC_LANES ? left : VEC_LANES, &s.part[2 * j]);
    }
    return squares_total(s);
}

double KERNEL(gradient_finish_part)(const op_gradient_finish *o, int64_t i, int64_t n)
{
    return o->type == PT_BF16 ? gradient_finish_of(PT_BF16, *o, i, n) : gradient_finish_of(PT_F32, *o, i, n);
}

/* ---- AdamW ---- */

static INLINE void adamw_step(pt_dtype type, const op_adamw *o, int64_t i, int64_t lanes)
{
    vf m = f32_load(o->m + i, lanes), v = f32_load(o->v + i, lanes);
    adamw_values(type, o, i, lanes, &m, &v);
    f32_store(o->m + i, m, lanes);
    f32_store(o->v + i, v, lanes);
}

static INLINE void adamw_of(pt_dtype type, op_adamw o, int64_t i, int64_t n)
{
    int64_t end = i + n;
    for (; i + VEC_LANES <= end; i += VEC_LANES)
        adamw_step(type, &o, i, VEC_LANES);
    if (i < end)
        adamw_step(type, &o, i, end - i);
}

void KERNEL(adamw_part)(const op_adamw *o, int64_t i, int64_t n)
{
    if (o->type == PT_BF16)
        adamw_of(PT_BF16, *o, i, n);
    else
        adamw_of(PT_F32, *o, i, n);
}
