/* matmul_amx.h - rectangles of a product of bf16 by AMX tiles, each by one thread. Compiled for processors that have them alone. */
#ifndef PT_MATMUL_AMX_H
#define PT_MATMUL_AMX_H

#include "device/cpu/kernels/matmul_tile.h"

enum {
    AMX_ROWS = 256,      /* the largest rectangle */
    AMX_COLS = 768,
    AMX_ROW_STEP = 32,   /* a rectangle starts at a multiple of it */
    AMX_ROWS_LEAST = 16  /* products with fewer rows are left to other kernels: most of a tile would be empty */
};

/* As matmul_pack and matmul_packed (matmul_tile.h), at most AMX_ROWS rows. */
void matmul_pack_amx(const op_matmul *o, const packed *b, int64_t j, int64_t cols);
void matmul_packed_amx(const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t j, int64_t cols, void *scratch);

/* As matmul_tile, the same bits as from packed columns. K is not 0. */
void matmul_tile_amx(const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch);

#endif
