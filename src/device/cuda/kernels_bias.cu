/* kernels_bias.cu - the gradient of a bias: sums over rows, 16 columns per block. */
#include "device/cuda/columns.h"

enum { AT_ONCE = 8 }; /* loads in flight per thread, because few blocks have to saturate the memory */

DEVICE void pack_add(pack *sum, pack x)
{
#pragma unroll
    for (int j = 0; j < PACK; j++)
        sum->x[j] += x.x[j];
}

template <pt_dtype T> __global__ void bias_backward_kernel(op_bias_backward o, bool wide)
{
    column_place at = column_place_of(o.cols, 1);
    pack sum = {{0}};
    int64_t row = at.slot, rows = at.column < o.cols ? o.rows : 0;
    for (; row + (AT_ONCE - 1) * COLUMN_SLOTS < rows; row += AT_ONCE * COLUMN_SLOTS) {
        pack dy[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            dy[i] = pack_load<T>(element_at<T>(o.dy, (row + i * COLUMN_SLOTS) * o.ld), at.column, o.cols, wide);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            pack_add(&sum, dy[i]);
    }
    for (; row < rows; row += COLUMN_SLOTS)
        pack_add(&sum, pack_load<T>(element_at<T>(o.dy, row * o.ld), at.column, o.cols, wide));
    column_store(at, sum, o.acc, o.cols, o.accumulate);
}

template <pt_dtype T> static int bias_backward_launch(const op_bias_backward *o, cudaStream_t s)
{
    return launch(bias_backward_kernel<T>, blocks_of(o->cols, COLUMN_TILE), COLUMN_THREADS, s, *o, is_wide(T, o->dy, o->ld));
}

int cuda_bias_backward(const op_bias_backward *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? bias_backward_launch<PT_BF16>(o, s) : bias_backward_launch<PT_F32>(o, s);
}
