/* dropout.h - OP_DROPOUT. */
#ifndef PT_KERNEL_DROPOUT_H
#define PT_KERNEL_DROPOUT_H

#include "device/cpu/isa.h"
#include "device/device.h"

KERNELS(void, dropout_rows, (const op_dropout *o, int64_t row0, int64_t row1))

#endif
