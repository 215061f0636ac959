/* matmul_tile.h - one rectangle of a matrix product, by one thread. */
#ifndef PT_MATMUL_TILE_H
#define PT_MATMUL_TILE_H

#include "device/cpu/isa.h"
#include "device/device.h"

enum {
    TILE_ROWS = 576,     /* the largest rectangle */
    TILE_COLS = 768,
    TILE_ROW_STEP = 12,  /* a rectangle starts at a multiple of these */
    TILE_COL_STEP = 32
};

/* The kernels also exist for pairs of bf16 (matmul_simd.h): by AVX512-BF16, and on AVX2 with the instruction spelled out, for tests
 * alone. */
#define MATMUL_KERNELS(type, name, parameters) \
    KERNELS(type, name, parameters)            \
    type name##_v4bf16 parameters;             \
    type name##_v3pairs parameters;

/* The copy to call for the op's types. */
#define MATMUL_BEST(o, name) ((o)->type == PT_BF16 && cpu_has_bf16() ? name##_v4bf16 : KERNEL_BEST(name))

/* c[m0 .. m0+rows)[n0 .. n0+cols) of the op. scratch: POOL_SCRATCH_BYTES, aligned to 64. */
MATMUL_KERNELS(void, matmul_tile, (const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

#endif
