/* cross_entropy.h - the loss of one row of logits, and its gradient. */
#ifndef PT_KERNEL_CROSS_ENTROPY_H
#define PT_KERNEL_CROSS_ENTROPY_H

#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#include "device/device.h"

/* next: the thread's next row. scratch: POOL_SCRATCH_BYTES */
KERNELS(void, cross_entropy_row, (const op_cross_entropy *o, int64_t row, int64_t next, float *scratch))

#endif
