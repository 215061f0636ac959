/* gain.h - what DoRA does beside matmuls: norms of rows of weights, and gradients times a gain. */
#ifndef PT_KERNEL_GAIN_H
#define PT_KERNEL_GAIN_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Rows row0 .. row1. */
KERNELS(void, gain_rows, (const op_gain *o, int64_t row0, int64_t row1))

/* sum (cols) += dy * sums of each of these rows, ascending, and sums = round(gain * dy); column and row: where they begin. */
KERNELS(void, gain_back_rows, (const op_gain_backward *o, int64_t row0, int64_t row1, int64_t column, int64_t columns, float *sum))

#endif
