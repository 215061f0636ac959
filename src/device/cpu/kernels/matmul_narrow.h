/* matmul_narrow.h - fp32 matmuls for which packing panels costs more than it saves. */
#ifndef PT_MATMUL_NARROW_H
#define PT_MATMUL_NARROW_H

#include "device/cpu/isa.h"
#include "device/device.h"

enum {
    NARROW_COLS = 128,
    NARROW_K = 384,                /* one block of K (matmul_pack.h); TN may be longer */
    NARROW_OWN_BYTES = 512 << 10,  /* of a thread's scratch space, for matmul_narrow */
    NARROW_SCRATCH_BYTES = 2 << 20 /* for a rectangle of such a matmul by any kernel */
};

static inline bool matmul_is_narrow(const op_matmul *o)
{
    return o->type == PT_F32 && o->n <= NARROW_COLS && o->k > 0 && (o->k <= NARROW_K || o->layout == MATMUL_TN) && !o->more_k &&
           !o->scale && !o->stream && op_factor(o->alpha) == 1;
}

/* Like matmul_tile, with the same bits, for narrow matmuls. */
KERNELS(void, matmul_narrow, (const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

#endif
