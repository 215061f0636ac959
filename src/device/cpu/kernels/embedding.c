#include "device/cpu/kernels/embedding.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#include <string.h>

static INLINE void pair_add(pt_dtype type, const void *a, const void *b, void *out, int64_t cols)
{
    int64_t i = 0;
    for (; i + VEC_LANES <= cols; i += VEC_LANES)
        store(type, out, i, load(type, a, i, VEC_LANES) + load(type, b, i, VEC_LANES), VEC_LANES);
    if (i < cols)
        store(type, out, i, load(type, a, i, cols - i) + load(type, b, i, cols - i), cols - i);
}

void KERNEL(embedding_rows)(const op_embedding *o, int64_t row0, int64_t row1)
{
    for (int64_t r = row0; r < row1; r++) {
        int64_t id = o->ids[r] - o->row0;
        if (id < 0 || id >= o->table_rows)
            continue;
        const void *token = at(o->type, o->table, id * o->cols);
        void *out = at_mutable(o->type, o->out, r * o->cols);
        if (!o->position_table) {
            memcpy(out, token, (size_t)o->cols * dtype_bytes(o->type));
            continue;
        }
        const void *position = at(o->type, o->position_table, o->positions[r] * o->cols);
        if (o->type == PT_BF16)
            pair_add(PT_BF16, token, position, out, o->cols);
        else
            pair_add(PT_F32, token, position, out, o->cols);
    }
}

static INLINE void row_add_of(pt_dtype type, const void *row, float *sum, int64_t cols)
{
    int64_t i = 0;
    for (; i + VEC_LANES <= cols; i += VEC_LANES)
        f32_store(sum + i, f32_load(sum + i, VEC_LANES) + load(type, row, i, VEC_LANES), VEC_LANES);
    if (i < cols)
        f32_store(sum + i, f32_load(sum + i, cols - i) + load(type, row, i, cols - i), cols - i);
}

void KERNEL(row_add)(pt_dtype type, const void *row, float *sum, int64_t cols)
{
    if (type == PT_BF16)
        row_add_of(PT_BF16, row, sum, cols);
    else
        row_add_of(PT_F32, row, sum, cols);
}
