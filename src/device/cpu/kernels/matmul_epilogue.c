/* matmul_epilogue.c - the last step of a product whose sums were computed elsewhere. */
#include "device/cpu/kernels/matmul_epilogue.h"

void KERNEL(matmul_epilogue)(const op_matmul *o, float *sum, int64_t sum_ld, int64_t m0, int64_t rows, int64_t n0,
                             int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        epilogue_row(o, sum + i * sum_ld, m0 + i, n0, cols);
}
