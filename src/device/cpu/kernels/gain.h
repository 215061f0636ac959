/* gain.h - DoRA besides its matmuls: norms of weight rows, and gradients times a gain. */
#ifndef PT_KERNEL_GAIN_H
#define PT_KERNEL_GAIN_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* The gains of rows row0 .. row1. */
KERNELS(void, gain_rows, (const op_gain *o, int64_t row0, int64_t row1))

/* For each of rows row0 .. row1, ascending: sum (columns) += dy * sums, then sums = round(gain * dy). column: the first one. */
KERNELS(void, gain_back_rows, (const op_gain_backward *o, int64_t row0, int64_t row1, int64_t column, int64_t columns, float *sum))

#endif
