/* op_table.h - the table of all ops, one row each.
 *
 *     ROW(KIND, name, member, doing)      doing: the activity, for messages
 *
 * A row stands for OP_KIND, an element of op_kind whose arguments are the op_MEMBER in op.member (device.h), and for the functions
 *
 *     cpu_NAME     on the CPU                        device/cpu/ops.h, queue.c
 *     cuda_NAME    its launch on a GPU               device/cuda/kernels.h, queue.c
 *     cost_NAME    its FLOPs and bytes               predict/op_costs.c
 *
 * The program does not build without any of these. KERNEL_OPS have this project's own kernels everywhere. A GPU copies and clears with
 * CUDA's runtime, multiplies matrices with cuBLASLt, and has no disks, other ranks or calls.
 */
#ifndef PT_OP_TABLE_H
#define PT_OP_TABLE_H

#define MEMORY_OPS(ROW)                                  \
    ROW(COPY, copy, copy, "copying")                     \
    ROW(COPY_ROWS, copy_rows, copy_rows, "copying rows") \
    ROW(ZERO, zero, copy, "clearing memory")

#define DISK_OPS(ROW)                                              \
    ROW(DISK_READ, disk_read, disk, "reading a disk")              \
    ROW(DISK_ROWS, disk_rows, disk_rows, "reading rows of a disk") \
    ROW(DISK_WRITE, disk_write, disk, "writing to a disk")

#define RANKS_OPS(ROW) ROW(EXCHANGE, exchange, exchange, "exchanging with other ranks")

#define CALL_OPS(ROW) ROW(CALL, call, call, "making inputs")

#define LIBRARY_OPS(ROW) ROW(MATMUL, matmul, matmul, "multiplying matrices")

#define KERNEL_OPS(ROW)                                                                                                          \
    ROW(BIAS_BACKWARD, bias_backward, bias_backward, "summing a bias's gradient")                                                \
    ROW(NORM, norm, norm, "normalizing")                                                                                         \
    ROW(NORM_BACKWARD, norm_backward, norm_backward, "normalizing backward")                                                     \
    ROW(ROPE, rope, rope, "rotating positions")                                                                                  \
    ROW(ATTENTION, attention, attention, "computing attention")                                                                  \
    ROW(ATTENTION_BACKWARD, attention_backward, attention_backward, "computing attention backward")                              \
    ROW(SINK, sink, sink, "computing attention's sinks")                                                                         \
    ROW(SINK_BACKWARD, sink_backward, sink_backward, "computing sinks backward")                                                 \
    ROW(ACTIVATION, activation, activation, "computing activations")                                                             \
    ROW(ACTIVATION_BACKWARD, activation_backward, activation_backward, "computing activations backward")                         \
    ROW(SCALE, scale, scale, "scaling")                                                                                            \
    ROW(HEADS, heads, heads, "moving heads")                                                                                     \
    ROW(ROUTE, route, route, "choosing experts")                                                                                 \
    ROW(ROUTE_BACKWARD, route_backward, route_backward, "choosing experts backward")                                             \
    ROW(DISPATCH, dispatch, dispatch, "sorting tokens by expert")                                                                \
    ROW(GROUPED_MATMUL, grouped_matmul, grouped_matmul, "multiplying experts' matrices")                                         \
    ROW(GROUPED_BIAS_BACKWARD, grouped_bias_backward, grouped_bias_backward, "summing biases' gradients")                        \
    ROW(GROUPED_ACTIVATION, grouped_activation, grouped_activation, "computing activations")                                     \
    ROW(GROUPED_ACTIVATION_BACKWARD, grouped_activation_backward, grouped_activation_backward, "computing activations backward") \
    ROW(COMBINE, combine, combine, "adding experts' outputs")                                                                    \
    ROW(CONV, conv, conv, "convolving")                                                                                          \
    ROW(CONV_BACKWARD, conv_backward, conv_backward, "convolving backward")                                                      \
    ROW(GATES, gates, gates, "computing gates")                                                                                  \
    ROW(GATES_BACKWARD, gates_backward, gates_backward, "computing gates backward")                                              \
    ROW(GATED_NORM, gated_norm, gated_norm, "normalizing and gating")                                                            \
    ROW(GATED_NORM_BACKWARD, gated_norm_backward, gated_norm_backward, "normalizing and gating backward")                        \
    ROW(SCAN, scan, scan, "scanning sequences")                                                                                  \
    ROW(SCAN_BACKWARD, scan_backward, scan_backward, "scanning sequences backward")                                              \
    ROW(DEQUANTIZE, dequantize, dequantize, "decoding weights")                                                                  \
    ROW(ENCODE, encode, encode, "encoding activations")                                                                          \
    ROW(DECODE, decode, decode, "decoding activations")                                                                          \
    ROW(EMBEDDING, embedding, embedding, "embedding tokens")                                                                     \
    ROW(EMBEDDING_BACKWARD, embedding_backward, embedding_backward, "embedding tokens backward")                                 \
    ROW(CROSS_ENTROPY, cross_entropy, cross_entropy, "computing the loss")                                                       \
    ROW(PREFERENCE, preference, preference, "comparing pairs of examples")                                                       \
    ROW(GRADIENT_FINISH, gradient_finish, gradient_finish, "rounding gradients")                                                 \
    ROW(GAIN, gain, gain, "measuring rows of weights")                                                                           \
    ROW(GAIN_BACKWARD, gain_backward, gain_backward, "scaling gradients")                                                        \
    ROW(ADAMW, adamw, adamw, "updating weights")                                                                                 \
    ROW(ADAMW8BIT, adamw8bit, adamw8bit, "updating weights")                                                                     \
    ROW(MOMENT_CODES, moment_codes, moment_codes, "updating weights")                                                            \
    ROW(MUON_MOMENTUM, muon_momentum, muon_momentum, "updating weights")                                                         \
    ROW(MUON_SCALE, muon_scale, muon_scale, "updating weights")                                                                  \
    ROW(MUON_COMBINE, muon_combine, muon_combine, "updating weights")                                                            \
    ROW(MUON_APPLY, muon_apply, muon_apply, "updating weights")                                                                  \
    ROW(FACTOR_SUMS, factor_sums, factor_sums, "updating weights")                                                               \
    ROW(FACTOR_FOLD, factor_fold, factor_fold, "updating weights")                                                               \
    ROW(SCALED_SQUARES, scaled_squares, scaled_squares, "updating weights")                                                      \
    ROW(MASTER_SQUARES, master_squares, master_squares, "updating weights")                                                      \
    ROW(UPDATE_LIMIT, update_limit, update_limit, "updating weights")                                                            \
    ROW(SCALED_APPLY, scaled_apply, scaled_apply, "updating weights")                                                            \
    ROW(RANDOM_MATRIX, random_matrix, random_matrix, "updating weights")                                                         \
    ROW(LOW_MOMENTS, low_moments, low_moments, "updating weights")                                                               \
    ROW(CHANNEL_SCALE, channel_scale, channel_scale, "updating weights")                                                         \
    ROW(ORTHONORMAL, orthonormal, orthonormal, "updating weights")                                                               \
    ROW(ROW_ADAM, row_adam, row_adam, "updating weights")                                                                        \
    ROW(JET, jet, jet, "computing activations and their derivatives")                                                            \
    ROW(QUADRATIC, quadratic, quadratic, "computing an energy")                                                                  \
    ROW(ROWS, rows, rows, "computing")                                                                                           \
    ROW(DROPOUT, dropout, dropout, "dropping values")

#define ALL_OPS(ROW) MEMORY_OPS(ROW) DISK_OPS(ROW) RANKS_OPS(ROW) CALL_OPS(ROW) LIBRARY_OPS(ROW) KERNEL_OPS(ROW)

#endif
