/* codes.h - OP_ENCODE and OP_DECODE. */
#ifndef PT_KERNEL_CODES_H
#define PT_KERNEL_CODES_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Rows begin .. end. */
KERNELS(void, encode_rows, (const op_encode *o, int64_t begin, int64_t end))
KERNELS(void, decode_rows, (const op_decode *o, int64_t begin, int64_t end))

#endif
