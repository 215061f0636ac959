/* route.h - rows row0 .. row1 of the choice of experts. */
#ifndef PT_KERNEL_ROUTE_H
#define PT_KERNEL_ROUTE_H

#include "device/cpu/isa.h"
#include "device/device.h"

KERNELS(void, route_rows, (const op_route *o, int64_t row0, int64_t row1))
KERNELS(void, route_backward_rows, (const op_route_backward *o, int64_t row0, int64_t row1))

#endif
