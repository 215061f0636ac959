/* kernels_optimizer_muon.cu - Muon besides its matmuls, with the same bits as on the CPU. A thread has a value. */
#include "device/cuda/adamw.h"
#include "device/cuda/lanes.h"

enum { THREADS = 256 };

/* A block has one sum. It rounds the values; then half of the threads add the squares of their lanes. */
template <pt_dtype T> __global__ void momentum_kernel(op_muon_momentum o)
{
    __shared__ float rounded[MUON_SUM_VALUES];
    const int64_t begin = (int64_t)blockIdx.x * MUON_SUM_VALUES;
    const int n = (int)(o.n - begin < MUON_SUM_VALUES ? o.n - begin : (int64_t)MUON_SUM_VALUES);
    const float less = __fsub_rn(1.0f, o.keep);
    for (int j = threadIdx.x; j < n; j += THREADS) {
        const int64_t i = begin + j;
        const float g = __fmul_rn(element_load<T>(o.g, i), o.grad_scale);
        const float m = __fmaf_rn(less, __fsub_rn(g, o.m[i]), o.m[i]);
        rounded[j] = element_round<PT_BF16>(__fmaf_rn(-less, __fsub_rn(m, g), m));
        o.m[i] = m;
        element_store<PT_BF16>(o.x, i, rounded[j]);
    }
    __syncthreads();
    double sum = 0.0;
    for (int j = threadIdx.x; threadIdx.x < SUMSQ_LANES && j < n; j += SUMSQ_LANES)
        sum = __fma_rn((double)rounded[j], (double)rounded[j], sum);
    sum = lanes_total(sum);
    if (threadIdx.x == 0)
        o.sums[blockIdx.x] = sum;
}

enum { SCALE_EACH = 32 }; /* values per thread; each block adds all the sums again */

__global__ void scale_kernel(op_muon_scale o, int64_t sums)
{
    double sum = 0.0;
    for (int64_t i = threadIdx.x; threadIdx.x < SUMSQ_LANES && i < sums; i += SUMSQ_LANES)
        sum = __dadd_rn(sum, o.sums[i]);
    float norm = element_round<PT_BF16>((float)sqrt(lanes_total(sum)));
    norm = norm < o.least ? o.least : norm;
    for (int k = 0; k < SCALE_EACH; k++) {
        const int64_t i = ((int64_t)blockIdx.x * SCALE_EACH + k) * THREADS + threadIdx.x;
        if (i < o.n)
            element_store<PT_BF16>(o.x, i, __fdiv_rn(element_load<PT_BF16>(o.x, i), norm));
    }
}

__global__ void combine_kernel(op_muon_combine o)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = at / o.cols, i = at % o.cols;
    if (row >= o.rows)
        return;
    const float x = __fmul_rn(element_load<PT_BF16>(o.x, row * o.ldx + i), o.a);
    element_store<PT_BF16>(o.out, row * o.ldo + i, __fmaf_rn(o.b, o.s[row * o.lds + i], x));
}

template <pt_dtype T> __global__ void apply_kernel(op_muon_apply o, bool wide)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * PACK;
    if (i >= o.n)
        return;
    pack w = master_load<T>(o.hi, o.lo, i, o.n, wide), x = pack_load<PT_BF16>(o.x, i, o.n, wide);
    for (int j = 0; j < PACK; j++)
        w.x[j] = __fmaf_rn(-o.step, x.x[j], __fmul_rn(w.x[j], o.decay));
    master_store<T>(o.hi, o.lo, i, o.n, wide, w);
}

int cuda_muon_momentum(const op_muon_momentum *o, cudaStream_t s)
{
    return launch(o->type == PT_BF16 ? momentum_kernel<PT_BF16> : momentum_kernel<PT_F32>, muon_sums(o->n), THREADS, s, *o);
}

int cuda_muon_scale(const op_muon_scale *o, cudaStream_t s)
{
    return launch(scale_kernel, blocks_of(o->n, THREADS * SCALE_EACH), THREADS, s, *o, muon_sums(o->n));
}

int cuda_muon_combine(const op_muon_combine *o, cudaStream_t s)
{
    return launch(combine_kernel, blocks_of(o->rows * o->cols, THREADS), THREADS, s, *o);
}

int cuda_muon_apply(const op_muon_apply *o, cudaStream_t s)
{
    const bool wide = is_wide(o->type, o->hi, 0) && is_wide(o->type, o->lo, 0) && is_wide(PT_BF16, o->x, 0);
    return launch(o->type == PT_BF16 ? apply_kernel<PT_BF16> : apply_kernel<PT_F32>, blocks_of(o->n, THREADS * PACK), THREADS, s, *o, wide);
}
