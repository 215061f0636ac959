/* embedding.h - lookups and sums of rows, for embeddings and bias gradients. */
#ifndef PT_KERNEL_EMBEDDING_H
#define PT_KERNEL_EMBEDDING_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Looks up rows row0 .. row1. past: writes go past the caches. */
KERNELS(void, embedding_rows, (const op_embedding *o, int64_t row0, int64_t row1, bool past))

/* sum (cols) += each of the rows of dy (rows, cols; stride ld), ascending; the fp32 sum is rounded after each. */
KERNELS(void, rows_add, (pt_dtype type, const void *dy, int64_t ld, int64_t rows, float *sum, int64_t cols))

/* sum (cols) += scale * row, the product rounded before it is added. */
KERNELS(void, row_add_scaled, (pt_dtype type, float scale, const void *row, float *sum, int64_t cols))

#endif
