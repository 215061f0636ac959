#include "device/cpu/kernels/dropout.h"

#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"
#include "device/dropout.h"

/* The factors of the values of a row from an even column on. */
static INLINE vf factors(const op_dropout *o, uint32_t threshold, float kept, int64_t row, int64_t column)
{
    float of[VEC_LANES];
    for (int64_t i = 0; i < VEC_LANES; i += 2) {
        const uint64_t bits = dropout_bits(o->key, o->row0 + row, (column + i) / 2);
        of[i] = (uint32_t)bits >= threshold ? kept : 0;
        of[i + 1] = (uint32_t)(bits >> 32) >= threshold ? kept : 0;
    }
    return f32_load(of, VEC_LANES);
}

static INLINE void drop(pt_dtype type, const op_dropout *o, int64_t row0, int64_t row1)
{
    const uint32_t threshold = dropout_threshold(o->p);
    const float kept = dropout_factor(o->p);
    for (int64_t row = row0; row < row1; row++)
        for (int64_t i = 0; i < o->cols; i += VEC_LANES) {
            const int64_t lanes = o->cols - i < VEC_LANES ? o->cols - i : VEC_LANES, at = row * o->cols + i;
            const vf factor = factors(o, threshold, kept, row, i), x = load(type, o->x, at, lanes);
            if (!o->add) {
                store(type, o->out, at, x * factor, lanes);
                continue;
            }
            const vf sum = vec_fma(x, factor, o->stream ? f32_load(o->stream + at, lanes) : load(type, o->out, at, lanes));
            if (o->stream)
                f32_store(o->stream + at, sum, lanes);
            store(type, o->out, at, sum, lanes);
        }
}

void KERNEL(dropout_rows)(const op_dropout *o, int64_t row0, int64_t row1)
{
    if (o->type == PT_BF16)
        drop(PT_BF16, o, row0, row1);
    else
        drop(PT_F32, o, row0, row1);
}
