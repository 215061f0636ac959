#include "device/cpu/kernels/heads.h"

#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#include <string.h>

static INLINE void add_heads(pt_dtype type, const op_heads *o, const void *from, void *to)
{
    for (int64_t i = 0; i < o->cols; i += VEC_LANES) {
        const int64_t lanes = o->cols - i < VEC_LANES ? o->cols - i : VEC_LANES;
        vf sum = load(type, from, i, lanes);
        for (int64_t head = 1; head < o->heads; head++)
            sum += load(type, from, head * o->head_from + i, lanes);
        store(type, to, i, sum, lanes);
    }
}

static void move_heads(const op_heads *o, const char *from, char *to)
{
    const size_t each = dtype_bytes(o->type), given = (size_t)o->given * each, rest = (size_t)o->cols * each - given;
    for (int64_t head = 0; head < o->heads; head++) {
        char *out = to + (size_t)(head * o->head_to) * each;
        memcpy(out, from + (size_t)(head * o->head_from) * each, given);
        memset(out + given, 0, rest);
    }
}

void KERNEL(heads_rows)(const op_heads *o, int64_t begin, int64_t end)
{
    const size_t each = dtype_bytes(o->type);
    for (int64_t row = begin; row < end; row++) {
        const char *from = (const char *)o->from + (size_t)(row * o->ld_from) * each;
        char *to = (char *)o->to + (size_t)(row * o->ld_to) * each;
        if (o->head_to)
            move_heads(o, from, to);
        else if (o->type == PT_BF16)
            add_heads(PT_BF16, o, from, to);
        else
            add_heads(PT_F32, o, from, to);
    }
}
