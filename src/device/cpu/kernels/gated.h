/* gated.h - the gates of a scan, and norms with a gate. */
#ifndef PT_KERNEL_GATED_H
#define PT_KERNEL_GATED_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Rows row0 .. row1. sums (2, heads): those of da_log and dstep_bias, overwritten. */
KERNELS(void, gates_rows, (const op_gates *o, int64_t row0, int64_t row1))
KERNELS(void, gates_backward_rows, (const op_gates_backward *o, int64_t row0, int64_t row1, float *sums))

/* wide: room for `dim` elements. dweight (or NULL): overwritten by the rows' sum. */
KERNELS(void, gated_norm_rows, (const op_gated_norm *o, int64_t row0, int64_t row1, float *wide))
KERNELS(void, gated_norm_backward_rows, (const op_gated_norm_backward *o, int64_t row0, int64_t row1, float *dweight))

#endif
