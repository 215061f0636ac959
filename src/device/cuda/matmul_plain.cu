/* matmul_plain.cu - the products that the library does not take: tiles of 16 x 16 results, a thread each, K in order.
 * And what follows a product and the library's epilogue cannot do (matmul.c says when). */
#include "device/cuda/kernels.h"

#include <cuda_bf16.h>

#define TILE 16

static __device__ float load(const float *p) { return *p; }
static __device__ float load(const __nv_bfloat16 *p) { return __bfloat162float(*p); }
static __device__ void store(float *p, float x) { *p = x; }
static __device__ void store(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }

/* One element of c from its sum over K. */
template <typename T, typename Out> static __device__ void finish(const op_matmul &o, int64_t row, int64_t col, float sum)
{
    int64_t at = row * o.ldc + col;
    Out *c = (Out *)o.c + at;
    if (o.bias)
        sum += load((const T *)o.bias + col);
    if (o.stream) {
        o.stream[at] += sum;
        sum = o.residual ? sum : o.stream[at];
    }
    if (o.residual)
        sum += load((const T *)o.residual + at);
    store(c, o.accumulate ? load(c) + sum : sum);
}

/* Strides of a (M, K) and b (K, N) in elements, so that one kernel serves the three layouts. */
typedef struct strides { int64_t a_row, a_col, b_row, b_col; } strides;

template <typename T, typename Out> static __global__ void plain_kernel(op_matmul o, strides s)
{
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    int64_t row = (int64_t)blockIdx.y * TILE + threadIdx.y, col = (int64_t)blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int64_t k0 = 0; k0 < o.k; k0 += TILE) {
        int64_t ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < o.m && ka < o.k ? load((const T *)o.a + row * s.a_row + ka * s.a_col) : 0.0f;
        b[threadIdx.y][threadIdx.x] = kb < o.k && col < o.n ? load((const T *)o.b + kb * s.b_row + col * s.b_col) : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum = fmaf(a[threadIdx.y][i], b[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < o.m && col < o.n)
        finish<T, Out>(o, row, col, sum);
}

extern "C" int cuda_matmul_plain(const op_matmul *o, cudaStream_t s)
{
    strides t = {o->layout == MATMUL_TN ? 1 : o->lda, o->layout == MATMUL_TN ? o->lda : 1,
                 o->layout == MATMUL_NT ? 1 : o->ldb, o->layout == MATMUL_NT ? o->ldb : 1};
    dim3 grid((unsigned)((o->n + TILE - 1) / TILE), (unsigned)((o->m + TILE - 1) / TILE)), block(TILE, TILE);
    if (o->type == PT_F32)
        plain_kernel<float, float><<<grid, block, 0, s>>>(*o, t);
    else if (o->out_type == PT_F32)
        plain_kernel<__nv_bfloat16, float><<<grid, block, 0, s>>>(*o, t);
    else
        plain_kernel<__nv_bfloat16, __nv_bfloat16><<<grid, block, 0, s>>>(*o, t);
    return cudaGetLastError();
}

template <typename T, typename Out> static __global__ void finish_kernel(op_matmul o, const float *sum)
{
    int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t row = blockIdx.y; row < o.m && col < o.n; row += gridDim.y)
        finish<T, Out>(o, row, col, sum[row * o.n + col]);
}

extern "C" int cuda_matmul_finish(const op_matmul *o, const float *sum, cudaStream_t s)
{
    const unsigned threads = 256, most = 32768;
    dim3 grid((unsigned)((o->n + threads - 1) / threads), o->m < most ? (unsigned)o->m : most);
    if (o->type == PT_F32)
        finish_kernel<float, float><<<grid, threads, 0, s>>>(*o, sum);
    else if (o->out_type == PT_F32)
        finish_kernel<__nv_bfloat16, float><<<grid, threads, 0, s>>>(*o, sum);
    else
        finish_kernel<__nv_bfloat16, __nv_bfloat16><<<grid, threads, 0, s>>>(*o, sum);
    return cudaGetLastError();
}
