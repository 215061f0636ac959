#include "device/cpu/kernels/rope.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

static INLINE void rope_step(pt_dtype type, void *x, int64_t half, const float *cosine, const float *sine, int64_t i,
                             int64_t lanes)
{
    vf a = load(type, x, i, lanes), b = load(type, x, half + i, lanes);
    vf c = f32_load(cosine + i, lanes), s = f32_load(sine + i, lanes);
    store(type, x, i, a * c - b * s, lanes);
    store(type, x, half + i, b * c + a * s, lanes);
}

static INLINE void rope_rows_of(pt_dtype type, const op_rope *o, int64_t row0, int64_t row1, float *scratch)
{
    int64_t half = o->dim / 2;
    float *cosine = scratch, *sine = scratch + half;
    for (int64_t row = row0; row < row1; row++) {
        const float *table = o->table + (int64_t)o->positions[row] * o->dim;
        for (int64_t i = 0; i < half; i++) {
            cosine[i] = table[2 * i];
            sine[i] = o->inverse ? -table[2 * i + 1] : table[2 * i + 1];
        }
        for (int64_t head = 0; head < o->heads; head++) {
            void *x = at_mutable(type, o->x, row * o->ld + head * o->dim);
            int64_t i = 0;
            for (; i + VEC_LANES <= half; i += VEC_LANES)
                rope_step(type, x, half, cosine, sine, i, VEC_LANES);
            if (i < half)
                rope_step(type, x, half, cosine, sine, i, half - i);
        }
    }
}

void KERNEL(rope_rows)(const op_rope *o, int64_t row0, int64_t row1, float *scratch)
{
    if (o->type == PT_BF16)
        rope_rows_of(PT_BF16, o, row0, row1, scratch);
    else
        rope_rows_of(PT_F32, o, row0, row1, scratch);
}
