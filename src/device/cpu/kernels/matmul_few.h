/* matmul_few.h - columns of a matmul with few rows, as in generation, by one thread. */
#ifndef PT_MATMUL_FEW_H
#define PT_MATMUL_FEW_H

#include "device/cpu/kernels/matmul_tile.h"

enum { FEW_ROWS = 4 };

/* c[all m rows][n0 .. n0+cols) of the op; m <= FEW_ROWS, layout MATMUL_NT. */
MATMUL_KERNELS(void, matmul_few, (const op_matmul *o, int64_t n0, int64_t cols))

#endif
