/* matmul_plain.cu - the products that the library does not take: tiles of 16 x 16 results, a thread each, K in order.
 * And what its epilogue cannot add: bias and residual in bf16 to a result in fp32. */
#include "device/cuda/kernels.h"

#include <cuda_bf16.h>

#define TILE 16

template <typename T> struct element;
template <> struct element<float> {
    static __device__ float load(const float *p) { return *p; }
    static __device__ void store(float *p, float x) { *p = x; }
};
template <> struct element<__nv_bfloat16> {
    static __device__ float load(const __nv_bfloat16 *p) { return __bfloat162float(*p); }
    static __device__ void store(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }
};

/* rows and columns of a (M, K) and b (K, N) as strides in elements, so that one kernel serves the three layouts */
struct plain_args {
    int64_t m, n, k, a_row, a_col, b_row, b_col, ldc;
    const void *a, *b, *bias, *residual;
    void *c;
    bool accumulate;
};

template <typename T, typename Out> static __global__ void plain_kernel(plain_args o)
{
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    int64_t row = (int64_t)blockIdx.y * TILE + threadIdx.y, col = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const T *pa = (const T *)o.a, *pb = (const T *)o.b;
    float sum = 0;
    for (int64_t k0 = 0; k0 < o.k; k0 += TILE) {
        int64_t ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < o.m && ka < o.k ? element<T>::load(pa + row * o.a_row + ka * o.a_col) : 0.0f;
        b[threadIdx.y][threadIdx.x] = kb < o.k && col < o.n ? element<T>::load(pb + kb * o.b_row + col * o.b_col) : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum = fmaf(a[threadIdx.y][i], b[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (row >= o.m || col >= o.n)
        return;
    Out *c = (Out *)o.c + row * o.ldc + col;
    if (o.bias)
        sum += element<T>::load((const T *)o.bias + col);
    if (o.residual)
        sum += element<T>::load((const T *)o.residual + row * o.ldc + col);
    if (o.accumulate)
        sum += element<Out>::load(c);
    element<Out>::store(c, sum);
}

extern "C" int cuda_matmul_plain(const op_matmul *o, cudaStream_t s)
{
    bool a_turned = o->layout == MATMUL_TN, b_turned = o->layout == MATMUL_NT;
    plain_args p = {o->m, o->n, o->k, a_turned ? 1 : o->lda, a_turned ? o->lda : 1, b_turned ? 1 : o->ldb, b_turned ? o->ldb : 1,
                    o->ldc, o->a, o->b, o->bias, o->residual, o->c, o->accumulate};
    dim3 grid((unsigned)((o->n + TILE - 1) / TILE), (unsigned)((o->m + TILE - 1) / TILE)), block(TILE, TILE);
    if (o->type == PT_F32)
        plain_kernel<float, float><<<grid, block, 0, s>>>(p);
    else if (o->out_type == PT_F32)
        plain_kernel<__nv_bfloat16, float><<<grid, block, 0, s>>>(p);
    else
        plain_kernel<__nv_bfloat16, __nv_bfloat16><<<grid, block, 0, s>>>(p);
    return cudaGetLastError();
}

static __global__ void add_kernel(float *c, const __nv_bfloat16 *bias, const __nv_bfloat16 *residual, int64_t m, int64_t n, int64_t ldc)
{
    int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= n)
        return;
    float add = bias ? __bfloat162float(bias[col]) : 0.0f;
    for (int64_t row = blockIdx.y; row < m; row += gridDim.y) {
        float sum = c[row * ldc + col] + add;
        c[row * ldc + col] = residual ? sum + __bfloat162float(residual[row * ldc + col]) : sum;
    }
}

extern "C" int cuda_matmul_add(const op_matmul *o, cudaStream_t s)
{
    dim3 grid((unsigned)((o->n + 255) / 256), (unsigned)(o->m < 4096 ? o->m : 4096));
    add_kernel<<<grid, 256, 0, s>>>((float *)o->c, (const __nv_bfloat16 *)o->bias, (const __nv_bfloat16 *)o->residual, o->m, o->n, o->ldc);
    return cudaGetLastError();
}
