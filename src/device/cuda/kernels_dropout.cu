/* kernels_dropout.cu - dropout (device/dropout.h). A thread has one pack of a row. */
#include "device/cuda/primitives.h"
#include "device/dropout.h"

enum { DROPOUT_THREADS = 256 };

template <pt_dtype T>
__global__ void __launch_bounds__(DROPOUT_THREADS) dropout_kernel(op_dropout o, int64_t packs, uint32_t threshold, float kept, bool wide)
{
    const int64_t n = (int64_t)blockIdx.x * DROPOUT_THREADS + threadIdx.x, row = n / packs, i = n % packs * PACK;
    if (row >= o.rows)
        return;
    const void *const from = element_at<T>(o.x, row * o.cols);
    void *const to = element_at<T>(o.out, row * o.cols);
    float *const stream = o.stream ? o.stream + row * o.cols : NULL;
    pack x = pack_load<T>(from, i, o.cols, wide), sum = {{0}};
    if (o.add)
        sum = stream ? pack_load<PT_F32>(stream, i, o.cols, wide) : pack_load<T>(to, i, o.cols, wide);
    for (int j = 0; j < PACK; j += 2) {
        const uint64_t bits = dropout_bits(o.key, o.row0 + row, (i + j) / 2);
        x.x[j] = fmaf(x.x[j], (uint32_t)bits >= threshold ? kept : 0, sum.x[j]);
        x.x[j + 1] = fmaf(x.x[j + 1], (uint32_t)(bits >> 32) >= threshold ? kept : 0, sum.x[j + 1]);
    }
    if (stream)
        pack_store<PT_F32>(stream, i, o.cols, wide, x);
    pack_store<T>(to, i, o.cols, wide, x);
}

template <pt_dtype T> static int dropout_launch(const op_dropout *o, cudaStream_t s)
{
    const int64_t packs = (o->cols + PACK - 1) / PACK, blocks = (o->rows * packs + DROPOUT_THREADS - 1) / DROPOUT_THREADS;
    const bool wide = is_wide(T, o->x, o->cols) && is_wide(T, o->out, o->cols) && is_wide(PT_F32, o->stream, o->cols);
    return launch(dropout_kernel<T>, (unsigned)blocks, DROPOUT_THREADS, s, *o, packs, dropout_threshold(o->p), dropout_factor(o->p), wide);
}

int cuda_dropout(const op_dropout *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? dropout_launch<PT_BF16>(o, s) : dropout_launch<PT_F32>(o, s);
}
