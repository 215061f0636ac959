/* kernels.h - the launchers of the CUDA kernels: one for each op that is a kernel of our own.
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

int cuda_bias_backward(const op_bias_backward *o, cudaStream_t s);
int cuda_norm(const op_norm *o, cudaStream_t s);
int cuda_norm_backward(const op_norm_backward *o, cudaStream_t s);
int cuda_rope(const op_rope *o, cudaStream_t s);
int cuda_attention(const op_attention *o, cudaStream_t s);
int cuda_attention_backward(const op_attention_backward *o, cudaStream_t s);
int cuda_activation(const op_activation *o, cudaStream_t s);
int cuda_activation_backward(const op_activation_backward *o, cudaStream_t s);
int cuda_embedding(const op_embedding *o, cudaStream_t s);
int cuda_embedding_backward(const op_embedding_backward *o, cudaStream_t s);
int cuda_cross_entropy(const op_cross_entropy *o, cudaStream_t s);
int cuda_gradient_finish(const op_gradient_finish *o, cudaStream_t s);
int cuda_adamw(const op_adamw *o, cudaStream_t s);
int cuda_adamw8bit(const op_adamw8bit *o, cudaStream_t s);
int cuda_muon_momentum(const op_muon_momentum *o, cudaStream_t s);
int cuda_muon_scale(const op_muon_scale *o, cudaStream_t s);
int cuda_muon_combine(const op_muon_combine *o, cudaStream_t s);
int cuda_muon_apply(const op_muon_apply *o, cudaStream_t s);

/* 0, or the cudaError_t where the module has no code that this thread's GPU can run. */
int cuda_check_kernels(void);

/* For matmul.c: any product, slowly; and what follows a product that lies in `sum` (M, N), dense: bias, stream, residual,
 * one rounding. */
int cuda_matmul_plain(const op_matmul *o, cudaStream_t s);
int cuda_matmul_finish(const op_matmul *o, const float *sum, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
