/* kernels_bias.cu - the gradient of a bias: sums down the columns of a matrix.
 *
 * A block takes BIAS_TILE columns (32 bytes of bf16, what memory gives at least) of all rows, a thread the pack of one half of
 * the tile in the rows slot, slot + slots, ... . Few columns are few blocks, which have more slots then: 48 blocks of 1024
 * threads, for 768 columns, have as much on its way as memory's latency needs. The slots' sums are added as a tree.
 *
 *              16 columns
 *     slot 0   | 0 | 1 |  <- threads 0 and 1         slot s += slot s + slots / 2, ... , + 1
 *     slot 1   | 2 | 3 |
 *     ...
 *
 * A thread has eight packs of bf16 on their way; it adds them in the order of the rows.
 */
#include "device/cuda/primitives.h"

enum { BIAS_TILE = 2 * PACK, BIAS_THREADS = 1024 /* at most */ };

static int bias_threads(int64_t tiles) { return tiles <= 64 ? BIAS_THREADS : tiles <= 256 ? BIAS_THREADS / 2 : BIAS_THREADS / 4; }

/* acc[column ..] (+)= the sum of the block's packs. For whole blocks. */
DEVICE void slots_store(pack sum, float *acc, int64_t column, int64_t columns, bool accumulate)
{
    __shared__ float slots[PACK][BIAS_THREADS]; /* neighbours in neighbouring banks */
    for (int j = 0; j < PACK; j++)
        slots[j][threadIdx.x] = sum.x[j];
    for (int distance = (int)blockDim.x / 2; distance > 1; distance /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < distance)
            for (int j = 0; j < PACK; j++)
                slots[j][threadIdx.x] += slots[j][threadIdx.x + distance];
    }
    if (threadIdx.x > 1)
        return;
    for (int j = 0; j < PACK; j++)
        if (column + j < columns) {
            float total = slots[j][threadIdx.x];
            acc[column + j] = accumulate ? acc[column + j] + total : total;
        }
}

template <pt_dtype T> __global__ void __launch_bounds__(BIAS_THREADS) bias_backward_kernel(op_bias_backward o, bool wide)
{
    const int ahead = T == PT_BF16 ? 8 : 4; /* packs */
    int64_t column = (int64_t)blockIdx.x * BIAS_TILE + threadIdx.x % 2 * PACK, slots = blockDim.x / 2;
    pack sum = {{0}};
    for (int64_t row = threadIdx.x / 2; row < o.rows && column < o.cols; row += ahead * slots) {
        packed<T> dy[ahead] = {};
#pragma unroll
        for (int k = 0; k < ahead; k++)
            if (row + k * slots < o.rows)
                dy[k] = packed_load<T>(element_at<T>(o.dy, (row + k * slots) * o.ld), column, o.cols, wide);
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            pack x = packed_values<T>(dy[k]);
            for (int j = 0; j < PACK; j++)
                sum.x[j] += x.x[j];
        }
    }
    slots_store(sum, o.acc, column, o.cols, o.accumulate);
}

template <pt_dtype T> static int bias_backward_launch(const op_bias_backward *o, cudaStream_t s)
{
    int64_t tiles = blocks_of(o->cols, BIAS_TILE);
    return launch(bias_backward_kernel<T>, tiles, bias_threads(tiles), s, *o, is_wide(T, o->dy, o->ld));
}

int cuda_bias_backward(const op_bias_backward *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? bias_backward_launch<PT_BF16>(o, s) : bias_backward_launch<PT_F32>(o, s);
}
