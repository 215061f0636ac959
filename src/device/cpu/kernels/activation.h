/* activation.h - activations over columns col0 .. col1 of one row of out (cols wide). An op that is not gated may be passed as one row of
 * rows * cols columns. past: writes go past the caches. */
#ifndef PT_KERNEL_ACTIVATION_H
#define PT_KERNEL_ACTIVATION_H

#include "device/cpu/isa.h"
#include "device/device.h"

KERNELS(void, activation_part, (const op_activation *o, int64_t row, int64_t col0, int64_t col1, bool past))
KERNELS(void, activation_backward_part,
        (const op_activation_backward *o, int64_t row, int64_t col0, int64_t col1, bool past))

#endif
