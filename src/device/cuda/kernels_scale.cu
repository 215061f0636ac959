/* kernels_scale.cu - values times a factor that is in the GPU's memory. A thread has one pack. */
#include "device/cuda/primitives.h"

enum { SCALE_THREADS = 256 };

template <pt_dtype T> __global__ void __launch_bounds__(SCALE_THREADS) scale_kernel(op_scale o, bool wide)
{
    const int64_t i = ((int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x) * PACK;
    if (i >= o.n)
        return;
    pack x = o.stream ? pack_load<PT_F32>(o.stream, i, o.n, wide) : pack_load<T>(o.x, i, o.n, wide);
    for (int j = 0; j < PACK; j++)
        x.x[j] *= *o.factor;
    if (o.stream)
        pack_store<PT_F32>(o.stream, i, o.n, wide, x);
    pack_store<T>(o.x, i, o.n, wide, x);
}

template <pt_dtype T> static int scale_launch(const op_scale *o, cudaStream_t s)
{
    const int64_t blocks = (o->n + SCALE_THREADS * PACK - 1) / (SCALE_THREADS * PACK);
    return launch(scale_kernel<T>, (unsigned)blocks, SCALE_THREADS, s, *o, is_wide(T, o->x, 0) && is_wide(PT_F32, o->stream, 0));
}

int cuda_scale(const op_scale *o, cudaStream_t s) { return o->type == PT_BF16 ? scale_launch<PT_BF16>(o, s) : scale_launch<PT_F32>(o, s); }
