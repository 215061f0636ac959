/* kernels.h - the launchers of the CUDA kernels, cuda_NAME of op_table.h: one for each op that is a kernel of our own.
 *
 * A launcher puts its kernels on the stream and returns at once: 0, or the cudaError_t of the launch. It
 * allocates nothing, synchronizes nothing, and reads nothing through the pointers in the op, which are
 * device addresses. What the op means stands in device.h; the result depends on the op's arguments alone
 * (no float atomics, sums in fixed trees that know neither the grid nor the other rows).
 *
 * With PT_CUDA_SHIM the same sources are compiled by the C++ compiler against a stand-in for CUDA that runs
 * them on the CPU (tests/cuda/shim.h).
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

/* 0, or the cudaError_t where the module has no code that this thread's GPU can run. */
int cuda_check_kernels(void);

/* For matmul.c: any matmul, slowly; and what follows a matmul, times alpha, that lies in `sum` (M, N), dense: bias, stream,
 * residual, one rounding. */
int cuda_matmul_plain(const op_matmul *o, cudaStream_t s);
int cuda_matmul_finish(const op_matmul *o, const float *sum, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
