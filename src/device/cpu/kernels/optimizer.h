/* optimizer.h - what happens to a gradient and a weight once a step. */
#ifndef PT_KERNEL_OPTIMIZER_H
#define PT_KERNEL_OPTIMIZER_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Rounds elements i .. i + n of the gradient and returns the sum of their squares. */
KERNELS(double, gradient_finish_part, (const op_gradient_finish *o, int64_t i, int64_t n))

KERNELS(void, adamw_part, (const op_adamw *o, int64_t i, int64_t n))

#endif
