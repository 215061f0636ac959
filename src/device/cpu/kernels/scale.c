#include "device/cpu/kernels/scale.h"

#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

static INLINE void scale(pt_dtype type, const op_scale *o, int64_t row, int64_t begin, int64_t end)
{
    const vf factor = vec_set(o->factor ? *o->factor : o->times);
    void *to = (char *)o->x + row * o->ld * (int64_t)dtype_bytes(type);
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        const int64_t lanes = end - i < VEC_LANES ? end - i : VEC_LANES;
        const vf x = factor * (o->stream ? f32_load(o->stream + i, lanes) : load(type, to, i, lanes));
        if (o->stream)
            f32_store(o->stream + i, x, lanes);
        store(type, to, i, x, lanes);
    }
}

void KERNEL(scale_part)(const op_scale *o, int64_t row, int64_t begin, int64_t end)
{
    if (o->type == PT_BF16)
        scale(PT_BF16, o, row, begin, end);
    else
        scale(PT_F32, o, row, begin, end);
}
