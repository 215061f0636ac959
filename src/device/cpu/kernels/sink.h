/* sink.h - sinks of attention. */
#ifndef PT_KERNEL_SINK_H
#define PT_KERNEL_SINK_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Queries begin .. end of a sequence. */
KERNELS(void, sink_queries, (const op_sink *o, int64_t seq, int64_t begin, int64_t end))
/* Tokens row0 .. row1 of all sequences. sums (heads): overwritten. */
KERNELS(void, sink_backward_rows, (const op_sink_backward *b, int64_t row0, int64_t row1, float *sums))

#endif
