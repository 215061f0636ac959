/* double.h - kernels in fp64: matmuls, AdamW; and activations with derivatives, and energies, in fp32 and fp64. */
#ifndef PT_KERNEL_DOUBLE_H
#define PT_KERNEL_DOUBLE_H

#include "device/cpu/isa.h"
#include "device/device.h"

enum { DOUBLE_COLS = 16 }; /* of a panel */

/* Packs a panel: DOUBLE_COLS columns of b from column n0 on, k by k; columns past the end are 0. */
KERNELS(void, double_pack, (const op_matmul *o, int64_t n0, double *panel))
/* Computes c for rows m0 .. m1 and the panel's columns. */
KERNELS(void, double_tile, (const op_matmul *o, int64_t m0, int64_t m1, int64_t n0, const double *panel))

KERNELS(void, adamw_double_part, (const op_adamw *o, int64_t begin, int64_t end))
KERNELS(void, jet_part, (const op_jet *o, int64_t begin, int64_t end))
KERNELS(void, quadratic_rows, (const op_quadratic *o, int64_t begin, int64_t end))

#endif
