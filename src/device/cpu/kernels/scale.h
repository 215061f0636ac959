/* scale.h - OP_SCALE. */
#ifndef PT_KERNEL_SCALE_H
#define PT_KERNEL_SCALE_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Values begin .. end. */
KERNELS(void, scale_part, (const op_scale *o, int64_t row, int64_t begin, int64_t end))

#endif
