/* kernels_scale.cu - columns of rows times a factor, which may be in the GPU's memory. A thread has one pack of a row. */
#include "device/cuda/primitives.h"

enum { SCALE_THREADS = 256 };

template <pt_dtype T> __global__ void __launch_bounds__(SCALE_THREADS) scale_kernel(op_scale o, bool wide)
{
    const int64_t packs = (o.cols + PACK - 1) / PACK, thread = (int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x;
    const int64_t i = thread % packs * PACK;
    if (thread >= o.rows * packs)
        return;
    void *to = element_at<T>(o.x, thread / packs * o.ld);
    const float factor = o.factor ? *o.factor : o.times;
    pack x = o.stream ? pack_load<PT_F32>(o.stream, i, o.cols, wide) : pack_load<T>(to, i, o.cols, wide);
    for (int j = 0; j < PACK; j++)
        x.x[j] *= factor;
    if (o.stream)
        pack_store<PT_F32>(o.stream, i, o.cols, wide, x);
    pack_store<T>(to, i, o.cols, wide, x);
}

template <pt_dtype T> static int scale_launch(const op_scale *o, cudaStream_t s)
{
    const int64_t blocks = (o->rows * ((o->cols + PACK - 1) / PACK) + SCALE_THREADS - 1) / SCALE_THREADS;
    return launch(scale_kernel<T>, (unsigned)blocks, SCALE_THREADS, s, *o,
                  is_wide(T, o->x, o->rows > 1 ? o->ld : 0) && is_wide(PT_F32, o->stream, 0));
}

int cuda_scale(const op_scale *o, cudaStream_t s) { return o->type == PT_BF16 ? scale_launch<PT_BF16>(o, s) : scale_launch<PT_F32>(o, s); }
