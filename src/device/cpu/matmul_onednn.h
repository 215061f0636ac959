/* matmul_onednn.h - products by oneDNN, of bf16 on processors with AMX. */
#ifndef PT_MATMUL_ONEDNN_H
#define PT_MATMUL_ONEDNN_H

#include "device/cpu/pool.h"
#include "device/device.h"

/* Fewer rows are left to the kernels here: there is nothing to gain. */
enum { ONEDNN_ROWS_LEAST = 16 };

/* Computes the op: 1. Or 0, with nothing done, where oneDNN has no kernel for it (or k is 0 or
 * m < ONEDNN_ROWS_LEAST); which of the two depends on the op's shape and the processor only. PT_FAILED,
 * and c is undefined, where oneDNN fails (it found no memory). */
int onednn_matmul(pool *p, const op_matmul *o, pt_error *e);

/* "oneDNN 2.6.3": the library that was loaded, which may be newer than the one compiled against. */
void onednn_name(char *out, size_t size);

#endif
