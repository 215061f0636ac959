/* kernels.h - the launchers of the CUDA kernels, cuda_NAME of op_table.h: one for each op with our own kernel.
 *
 * A launcher puts its kernels on the stream and returns immediately: 0, or the cudaError_t of the launch. It does not allocate or
 * synchronize, and does not dereference the op's pointers, which are device addresses. For the meaning of ops see device.h. A result
 * depends only on the op's arguments: no float atomics, and sums in fixed trees that do not depend on the grid or on other rows.
 *
 * With PT_CUDA_SHIM the C++ compiler compiles the same sources against a stand-in for CUDA that runs them on the CPU (tests/cuda/shim.h).
 */
#ifndef PT_CUDA_KERNELS_H
#define PT_CUDA_KERNELS_H

#ifdef PT_CUDA_SHIM
#include "shim.h"
#else
#include <cuda_runtime_api.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#include "device/device.h"

#define LAUNCH(KIND, name, member, doing) int cuda_##name(const op_##member *o, cudaStream_t s);
KERNEL_OPS(LAUNCH)
#undef LAUNCH

/* 0, or a cudaError_t if the module has no code for this thread's GPU. */
int cuda_check_kernels(void);

/* For matmul.c. cuda_matmul_plain: any matmul, slowly. cuda_matmul_finish: the epilogue of a matmul whose dense result, times alpha, is in
 * `sum` (M, N): bias, stream, residual, one rounding. */
int cuda_matmul_plain(const op_matmul *o, cudaStream_t s);
int cuda_matmul_finish(const op_matmul *o, const float *sum, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
