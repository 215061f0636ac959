/* norm.h - layernorm and rmsnorm, forward and backward, over a range of rows. */
#ifndef PT_KERNEL_NORM_H
#define PT_KERNEL_NORM_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* scratch: 6 * dim floats, aligned to 64 bytes; past: y is written past the caches (not beside a residual or a stream). */
KERNELS(void, norm_rows, (const op_norm *o, int64_t row0, int64_t row1, bool past, float *scratch))

/* dx of the rows; dweight and dbias (dim) are overwritten with these rows' sums, each may be NULL. */
KERNELS(void, norm_backward_rows,
        (const op_norm_backward *o, int64_t row0, int64_t row1, float *dweight, float *dbias))

#endif
