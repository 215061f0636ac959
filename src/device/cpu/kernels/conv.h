/* conv.h - causal depthwise convolution of a part of a sequence, for some of its channels. */
#ifndef PT_KERNEL_CONV_H
#define PT_KERNEL_CONV_H

#include "device/cpu/isa.h"
#include "device/device.h"

enum { CONV_COLUMNS = 256 };

/* Rows row0 .. row1 of a sequence, channels column .. column + n; n <= CONV_COLUMNS. */
typedef struct conv_part { int64_t seq, row0, row1, column, n; } conv_part;

KERNELS(void, conv_rows, (const op_conv *o, conv_part part))
KERNELS(void, conv_last, (const op_conv *o, conv_part part))

/* sums: (taps + 1, channels) of the part's block, dweight of each tap and dbias, to which the part adds; NULL: not wanted. */
KERNELS(void, conv_backward_rows, (const op_conv_backward *o, conv_part part, float *sums))

#endif
