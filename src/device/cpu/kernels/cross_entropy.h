/* cross_entropy.h - the loss of one row of logits, and its gradient. */
#ifndef PT_KERNEL_CROSS_ENTROPY_H
#define PT_KERNEL_CROSS_ENTROPY_H

#include "device/cpu/isa.h"
#include "device/device.h"

KERNELS(void, cross_entropy_row, (const op_cross_entropy *o, int64_t row))

#endif
