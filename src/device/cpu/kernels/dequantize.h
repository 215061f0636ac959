/* dequantize.h - decodes a row of OP_DEQUANTIZE. map: the values of the codes of NF4's magnitudes. */
#ifndef PT_KERNEL_DEQUANTIZE_H
#define PT_KERNEL_DEQUANTIZE_H

#include "device/cpu/isa.h"
#include "device/device.h"

KERNELS(void, dequantize_row, (const op_dequantize *o, const float *map, int64_t row))

#endif
