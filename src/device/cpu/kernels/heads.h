/* heads.h - OP_HEADS. */
#ifndef PT_KERNEL_HEADS_H
#define PT_KERNEL_HEADS_H

#include "device/cpu/isa.h"
#include "device/device.h"

KERNELS(void, heads_rows, (const op_heads *o, int64_t begin, int64_t end))

#endif
