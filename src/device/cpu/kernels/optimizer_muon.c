#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/kernels/adamw.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/squares.h"

static INLINE int64_t lanes_at(int64_t i, int64_t end) { return end - i < VEC_LANES ? end - i : (int64_t)VEC_LANES; }

static INLINE double momentum_of(pt_dtype type, op_muon_momentum o, int64_t i, int64_t n)
{
    const int64_t end = i + n;
    const vf less = vec_set(1.0f - o.keep);
    squares s = {0};
    for (int64_t j = 0; i < end; i += VEC_LANES, j = (j + 1) % SQUARE_VECS) {
        const int64_t lanes = lanes_at(i, end);
        vf g = load(type, o.g, i, lanes) * o.grad_scale, m = f32_load(o.m + i, lanes);
        m = vec_fma(less, g - m, m);
        const vf x = vec_round(PT_BF16, vec_fma(-less, m - g, m));
        f32_store(o.m + i, m, lanes);
        store(PT_BF16, o.x, i, x, lanes);
        squares_add(&s.part[2 * j], vec_keep(first_lanes(lanes), x));
    }
    return squares_total(s);
}

double KERNEL(muon_momentum_part)(const op_muon_momentum *o, int64_t i, int64_t n)
{
    return o->type == PT_BF16 ? momentum_of(PT_BF16, *o, i, n) : momentum_of(PT_F32, *o, i, n);
}

void KERNEL(muon_scale_part)(const op_muon_scale *o, float norm, int64_t i, int64_t n)
{
    for (const int64_t end = i + n; i < end; i += VEC_LANES)
        store(PT_BF16, o->x, i, load(PT_BF16, o->x, i, lanes_at(i, end)) / norm, lanes_at(i, end));
}

void KERNEL(muon_combine_row)(const op_muon_combine *o, int64_t row)
{
    const uint16_t *x = o->x + row * o->ldx;
    const float *s = o->s + row * o->lds;
    for (int64_t i = 0; i < o->cols; i += VEC_LANES) {
        const int64_t lanes = lanes_at(i, o->cols);
        const vf y = vec_fma(vec_set(o->b), f32_load(s + i, lanes), load(PT_BF16, x, i, lanes) * o->a);
        store(PT_BF16, o->out + row * o->ldo, i, y, lanes);
    }
}

static INLINE void apply_of(pt_dtype type, op_muon_apply o, int64_t i, int64_t n)
{
    for (const int64_t end = i + n; i < end; i += VEC_LANES) {
        const int64_t lanes = lanes_at(i, end);
        const vf w = master_load(type, o.hi, o.lo, i, lanes) * o.decay;
        master_store(type, o.hi, o.lo, i, vec_fma(vec_set(-o.step), load(PT_BF16, o.x, i, lanes), w), lanes);
    }
}

void KERNEL(muon_apply_part)(const op_muon_apply *o, int64_t i, int64_t n)
{
    if (o->type == PT_BF16)
        apply_of(PT_BF16, *o, i, n);
    else
        apply_of(PT_F32, *o, i, n);
}
