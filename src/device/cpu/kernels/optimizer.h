/* optimizer.h - rounding gradients and updating weights, once per step. */
#ifndef PT_KERNEL_OPTIMIZER_H
#define PT_KERNEL_OPTIMIZER_H

#include "device/cpu/isa.h"
#include "device/device.h"
#include "device/moment_map.h"

/* Rounds elements i .. i + n of the gradient and returns the sum of their squares. */
KERNELS(double, gradient_finish_part, (const op_gradient_finish *o, int64_t i, int64_t n))

KERNELS(void, adamw_part, (const op_adamw *o, int64_t i, int64_t n))
/* i is a multiple of ADAMW8BIT_BLOCK; first and second: the maps of the moments. */
KERNELS(void, adamw8bit_part, (const op_adamw8bit *o, const moment_map *first, const moment_map *second, int64_t i, int64_t n))
KERNELS(void, moment_codes_part, (const op_moment_codes *o, const moment_map *first, const moment_map *second, int64_t i, int64_t n))

/* Muon, values i .. i + n. muon_momentum_part returns the sum of their squares, one of the partial sums of the norm. */
KERNELS(double, muon_momentum_part, (const op_muon_momentum *o, int64_t i, int64_t n))
KERNELS(void, muon_scale_part, (const op_muon_scale *o, float norm, int64_t i, int64_t n))
KERNELS(void, muon_combine_row, (const op_muon_combine *o, int64_t row))
KERNELS(void, muon_apply_part, (const op_muon_apply *o, int64_t i, int64_t n))

/* Factored moments and scaled updates. */
KERNELS(double, factor_row_part, (const op_factor_sums *o, int64_t row))
KERNELS(void, factor_cols_part, (const op_factor_sums *o, int64_t block))
KERNELS(double, scaled_squares_row, (const op_scaled_squares *o, int64_t row))
KERNELS(double, master_squares_row, (const op_master_squares *o, int64_t row))
KERNELS(void, scaled_apply_row, (const op_scaled_apply *o, int64_t row))

/* Low-rank moments: columns i .. i + n, or a row; a row of Adam. */
KERNELS(void, low_columns_part, (const op_low_moments *o, int64_t i, int64_t n))
KERNELS(void, low_row_part, (const op_low_moments *o, int64_t row))
KERNELS(void, orthonormal_all, (const op_orthonormal *o))
KERNELS(void, row_adam_part, (const op_row_adam *o, int64_t row))

#endif
