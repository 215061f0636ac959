/* kernels_gain.cu - DoRA besides its matmuls. A block has a row of weights, or 16 columns of gradients. */
#include "device/cuda/columns.h"

enum { GAIN_THREADS = 256 };

template <pt_dtype T> __global__ void gain_kernel(op_gain o)
{
    const int64_t row = blockIdx.x;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < o.cols; i += GAIN_THREADS) {
        float x = element_load<T>(o.w, row * o.cols + i);
        for (int64_t j = 0; j < o.rank; j++)
            x = fmaf(o.scale * element_load<T>(o.b, row * o.rank + j), element_load<T>(o.a, j * o.cols + i), x);
        sum = fmaf(x, x, sum);
    }
    const float norm = sqrtf(block_sum(sum));
    if (threadIdx.x)
        return;
    o.inverse[row] = norm > 0 ? 1 / norm : 0;
    o.gain[row] = o.magnitude[row] * o.inverse[row];
}

template <pt_dtype T> __global__ void gain_backward_kernel(op_gain_backward o, bool wide)
{
    const column_place at = column_place_of(o.cols, 1);
    pack sum = {{0}};
    for (int64_t row = at.slot; at.column < o.cols && row < o.rows; row += COLUMN_SLOTS) {
        const pack dy = pack_load<T>(element_at<T>(o.dy, row * o.ld), at.column, o.cols, wide);
        pack y = pack_load<T>(element_at<T>((const void *)o.sums, row * o.ld), at.column, o.cols, wide);
        for (int j = 0; j < PACK; j++) {
            sum.x[j] = fmaf(dy.x[j], y.x[j], sum.x[j]);
            y.x[j] = at.column + j < o.cols ? o.gain[at.column + j] * dy.x[j] : 0.0f;
        }
        pack_store<T>(element_at<T>(o.sums, row * o.ld), at.column, o.cols, wide, y);
    }
    for (int j = 0; j < PACK; j++) /* slots are scaled before the tree adds them */
        sum.x[j] *= at.column + j < o.cols ? o.factor * o.inverse[at.column + j] : 0.0f;
    column_store(at, sum, o.acc, o.cols, o.accumulate);
}

int cuda_gain(const op_gain *o, cudaStream_t s)
{
    return launch(o->type == PT_BF16 ? gain_kernel<PT_BF16> : gain_kernel<PT_F32>, o->rows, GAIN_THREADS, s, *o);
}

int cuda_gain_backward(const op_gain_backward *o, cudaStream_t s)
{
    const bool wide = is_wide(o->type, o->dy, o->ld) && is_wide(o->type, o->sums, o->ld);
    return launch(o->type == PT_BF16 ? gain_backward_kernel<PT_BF16> : gain_backward_kernel<PT_F32>, blocks_of(o->cols, COLUMN_TILE),
                  COLUMN_THREADS,
                  s, *o, wide);
}
