/* scan.h - a linear recurrence over a sequence, for some value heads of one key head. */
#ifndef PT_KERNEL_SCAN_H
#define PT_KERNEL_SCAN_H

#include "device/cpu/isa.h"
#include "device/device.h"

/* Value heads head .. head + heads of a sequence, all of one key head; heads <= SCAN_HEADS. */
typedef struct scan_part { int64_t seq, head, heads; } scan_part;

/* scratch: POOL_SCRATCH_BYTES, aligned to 64. */
KERNELS(void, scan_heads, (const op_scan *o, scan_part part, void *scratch))

/* Sums over the part's heads, fp32: the gradients of q, normed and scaled, and of k, normed; row r at r * step. */
typedef struct scan_sums { float *q, *k; int64_t step; } scan_sums;

/* to.q NULL: dq and dk of the op are written instead. dskip (heads of the part, or NULL) is overwritten. */
KERNELS(void, scan_backward_heads, (const op_scan_backward *o, scan_part part, scan_sums to, float *dskip, void *scratch))

/* dq and dk of the op, of a row and key head, from `n` such sums of that row, `step` apart. */
KERNELS(void, scan_finish_row, (const op_scan_backward *o, int64_t row, int64_t key_head, scan_sums from, int64_t n, void *scratch))

#endif
