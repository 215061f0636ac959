/* rope.h - rotary embedding over a range of rows. */
#ifndef PT_KERNEL_ROPE_H
#define PT_KERNEL_ROPE_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* scratch: dim floats, for the cosines and sines of one position. */
KERNELS(void, rope_rows, (const op_rope *o, int64_t row0, int64_t row1, float *scratch))

#endif
