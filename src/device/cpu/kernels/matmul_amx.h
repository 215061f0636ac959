/* matmul_amx.h - rectangles of a matmul on AMX tiles, each by one thread: bf16 (v4amx), and fp32 in three parts of bf16 (v4amxsplit).
 * Compiled only for processors with AMX. */
#ifndef PT_MATMUL_AMX_H
#define PT_MATMUL_AMX_H

#include "device/cpu/kernels/matmul_tile.h"

enum {
    AMX_ROWS = 256,      /* the largest rectangle */
    AMX_COLS = 768,
    AMX_PARTS = 1,       /* bf16 per packed number */
    SPLIT_ROWS = 384,    /* the same for fp32 */
    SPLIT_COLS = 512,
    SPLIT_PARTS = 3,
    AMX_ROW_STEP = 32,   /* a rectangle starts at a multiple of it */
    AMX_ROWS_LEAST = 16  /* matmuls with fewer rows are left to other kernels: most of a tile would be empty */
};

#define AMX_KERNEL(type, name, parameters) \
    type name##_v4amx parameters;          \
    type name##_v4amxsplit parameters;

/* Like matmul_pack and matmul_packed of matmul_tile.h, for at most AMX_ROWS or SPLIT_ROWS rows. */
AMX_KERNEL(void, matmul_pack, (const op_matmul *o, const packed *b, int64_t j, int64_t cols))
AMX_KERNEL(void, matmul_packed, (const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t j, int64_t cols, void *scratch))

/* Like matmul_tile and matmul_gathered, with the same bits as from packed columns. K must not be 0. */
AMX_KERNEL(void, matmul_gathered,
           (const op_matmul *o, gathered from, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))
AMX_KERNEL(void, matmul_tile, (const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

#endif
