/* norm.h - layernorm and rmsnorm, forward and backward, over a range of rows. */
#ifndef PT_KERNEL_NORM_H
#define PT_KERNEL_NORM_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* scratch: 6 * dim floats, aligned to 64 bytes. past: writes y past the caches (not with a residual or a stream). */
KERNELS(void, norm_rows, (const op_norm *o, int64_t row0, int64_t row1, bool past, float *scratch))

/* Computes dx of the rows; sets dweight and dbias (dim, may be NULL) to these rows' sums. */
KERNELS(void, norm_backward_rows,
        (const op_norm_backward *o, int64_t row0, int64_t row1, float *dweight, float *dbias))

#endif
