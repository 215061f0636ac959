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

/* c[m0 .. m0+rows)[n0 .. n0+cols) of the op. scratch: POOL_SCRATCH_BYTES, aligned to 64. */
KERNELS(void, matmul_tile, (const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

#endif
