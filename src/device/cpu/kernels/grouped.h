/* grouped.h - what experts need beside matmuls, on rows and columns of their operands. */
#ifndef PT_KERNEL_GROUPED_H
#define PT_KERNEL_GROUPED_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* One row. The activation's backward returns <out, dout>; out may be NULL. */
KERNELS(void, clamped_row, (const op_grouped_activation *o, const void *up, void *out))
KERNELS(float, weighted_row,
        (const op_grouped_activation_backward *o, const void *up, const void *dout, float weight, void *dup, void *out))

/* Tokens row0 .. row1; the range's rows are begin .. end, or all if end < 0. */
KERNELS(void, combine_rows, (const op_combine *o, int64_t row0, int64_t row1, int64_t begin, int64_t end))

/* sum[i] += weight * row[i], and the sum of a[i] * b[i]. */
KERNELS(void, add_weighted, (pt_dtype type, float weight, const void *row, int64_t n, float *sum))
KERNELS(float, dot_rows, (pt_dtype type, const void *a, const void *b, int64_t n))

#endif
