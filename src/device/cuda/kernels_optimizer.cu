/* kernels_optimizer.cu - rounds gradients and updates weights, with the same bits as the CPU's optimizer.c: every operation is an intrinsic
 * that rounds as IEEE 754 requires, whatever the compiler's options.
 *
 * A sum of squares is over SUMSQ_ROWS rows and has SUMSQ_LANES lanes. A block has one sum. Its threads read and round a chunk; then half of
 * them add the chunk's squares, while the next chunk is loaded:
 *
 *     threads 0 .. 255    read 0, 1 | read 2           | read 3           | ...
 *     threads 0 .. 127              | add squares of 0 | add squares of 1 | ...
 *
 * A bf16 gradient may replace the fp32 sums that it is rounded from. Then the squares are summed first, without writing. The rounding
 * follows in launches of doubling size, which overwrite only sums that earlier launches, or the same block, have read:
 *
 *     sums      |   0   |   1   |   2   |   3   |   4  ...           launches: chunk 0, 1, 2 and 3, 4 to 7, ...
 *     gradient  | 0 | 1 | 2 | 3 | 4 | 5 | ...
 */
#include "device/cuda/adamw.h"

enum { OPTIMIZER_THREADS = 256, CHUNK = OPTIMIZER_THREADS * PACK };

/* The pack at i of acc + acc2, rounded. */
template <pt_dtype T> DEVICE pack gradient_load(const op_gradient_finish &o, int64_t i, int64_t end, bool wide)
{
    pack g = pack_load<PT_F32>(o.acc, i, end, wide), b;
    if (o.acc2)
        b = pack_load<PT_F32>(o.acc2, i, end, wide);
    for (int j = 0; j < PACK; j++)
        g.x[j] = element_round<T>(o.acc2 ? __fadd_rn(g.x[j], b.x[j]) : g.x[j]);
    return g;
}

/* Stores a pack that is already rounded; keeps the bits of NaN. */
template <pt_dtype T> DEVICE void rounded_store(void *row, int64_t i, int64_t n, bool wide, pack p)
{
    if (T == PT_BF16) {
        half_pack h;
        for (int j = 0; j < PACK; j++)
            h.x[j] = (uint16_t)(__float_as_uint(p.x[j]) >> 16);
        half_store((uint16_t *)row, i, n, wide, h);
    } else {
        pack_store<T>(row, i, n, wide, p);
    }
}

/* Lane l: sum += the squares of elements l, l + SUMSQ_LANES, ... of n. The square of an fp32 number is exact in fp64, so fma does not
 * change the result. */
DEVICE double squares_add(double sum, const float *rounded, int64_t n)
{
#pragma unroll 4
    for (int64_t k = threadIdx.x; k < n; k += SUMSQ_LANES)
        sum = __fma_rn((double)rounded[k], (double)rounded[k], sum);
    return sum;
}

/* Adds the sums of the first SUMSQ_LANES threads; the first thread gets the result. */
DEVICE double lanes_total(double sum)
{
    __shared__ double lane[SUMSQ_LANES];
    if (threadIdx.x < SUMSQ_LANES)
        lane[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP)
        return 0.0;
    for (int width = SUMSQ_LANES / 2; width >= WARP; width /= 2)
        for (int i = threadIdx.x; i < width; i += WARP)
            lane[i] = __dadd_rn(lane[i], lane[i + width]);
    sum = lane[threadIdx.x];
    for (int distance = WARP / 2; distance; distance /= 2)
        sum = __dadd_rn(sum, __shfl_xor_sync(FULL_WARP, sum, distance));
    return sum;
}

template <pt_dtype T> __global__ void finish_kernel(op_gradient_finish o, bool store, bool wide)
{
    __shared__ float rounded[2][CHUNK];
    int64_t begin = (int64_t)blockIdx.x * SUMSQ_ROWS * o.cols, end = begin + SUMSQ_ROWS * o.cols;
    end = end < o.rows * o.cols ? end : o.rows * o.cols;
    double sum = 0.0;
    int turn = 0;
    pack g = gradient_load<T>(o, begin + threadIdx.x * PACK, end, wide);
    for (int64_t chunk = begin; chunk < end; chunk += CHUNK, turn ^= 1) {
        int64_t i = chunk + threadIdx.x * PACK, left = end - chunk;
        if (store)
            rounded_store<T>(o.g, i, end, wide, g);
        for (int j = 0; j < PACK; j++)
            rounded[turn][threadIdx.x * PACK + j] = g.x[j];
        g = gradient_load<T>(o, i + CHUNK, end, wide);
        __syncthreads();
        if (threadIdx.x < SUMSQ_LANES)
            sum = squares_add(sum, rounded[turn], left < CHUNK ? left : (int64_t)CHUNK);
    }
    sum = lanes_total(sum);
    if (threadIdx.x == 0 && o.sumsq)
        o.sumsq[blockIdx.x] = sum;
}

/* Sums of squares of rows that stand for others. A block of each row whose sum begins with it adds the rounded values of all rows of the
 * sum, each to the lane that it has among them. */
template <pt_dtype T> __global__ void listed_kernel(op_gradient_finish o)
{
    const int64_t row = blockIdx.x, number = o.ids[row] / SUMSQ_ROWS;
    if (row && o.ids[row - 1] / SUMSQ_ROWS == number)
        return;
    double sum = 0.0;
    for (int64_t r = row; r < o.rows && o.ids[r] / SUMSQ_ROWS == number; r++) {
        const int64_t first = o.ids[r] % SUMSQ_ROWS * o.cols % SUMSQ_LANES;
        for (int64_t i = (threadIdx.x + SUMSQ_LANES - first) % SUMSQ_LANES; i < o.cols; i += SUMSQ_LANES) {
            const double g = (double)element_load<T>(o.g, r * o.cols + i);
            sum = __fma_rn(g, g, sum);
        }
    }
    sum = lanes_total(sum);
    if (threadIdx.x == 0)
        o.sumsq[number] = sum;
}

/* Rounds elements `begin` .. `end`, a chunk per block. Of the sums of this launch, a block may overwrite only those of its own chunk. */
template <pt_dtype T> __global__ void round_kernel(op_gradient_finish o, int64_t begin, int64_t end, bool wide)
{
    int64_t i = begin + (int64_t)blockIdx.x * CHUNK + threadIdx.x * PACK;
    pack g = gradient_load<T>(o, i, end, wide);
    __syncthreads();
    rounded_store<T>(o.g, i, end, wide, g);
}

template <pt_dtype T> static int round_in_place(const op_gradient_finish *o, bool wide, cudaStream_t s)
{
    int64_t n = o->rows * o->cols;
    for (int64_t begin = 0; begin < n;) {
        int64_t end = begin ? 2 * begin : (int64_t)CHUNK;
        end = end < n ? end : n;
        int status = launch(round_kernel<T>, blocks_of(end - begin, CHUNK), OPTIMIZER_THREADS, s, *o, begin, end, wide);
        if (status)
            return status;
        begin = end;
    }
    return 0;
}

template <pt_dtype T> static int finish_launch(const op_gradient_finish *o, cudaStream_t s)
{
    bool over = T != PT_F32 && o->g == (const void *)o->acc;
    bool wide = is_wide(PT_F32, o->acc, o->cols * SUMSQ_ROWS) && is_wide(PT_F32, o->acc2, 0) && is_wide(T, o->g, 0);
    int status = 0;
    if (!over && (!o->sumsq || o->ids))
        status = launch(round_kernel<T>, blocks_of(o->rows * o->cols, CHUNK), OPTIMIZER_THREADS, s, *o, (int64_t)0,
                        o->rows * o->cols, wide);
    if (o->ids)
        return status ? status : launch(listed_kernel<T>, o->rows, SUMSQ_LANES, s, *o);
    if (!over && !o->sumsq)
        return status;
    if (o->sumsq)
        status = launch(finish_kernel<T>, blocks_of(o->rows, SUMSQ_ROWS), OPTIMIZER_THREADS, s, *o, !over, wide);
    return status || !over ? status : round_in_place<T>(o, wide, s);
}

int cuda_gradient_finish(const op_gradient_finish *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? finish_launch<PT_BF16>(o, s) : finish_launch<PT_F32>(o, s);
}

/* ---- AdamW ---- */

template <pt_dtype T> __global__ void adamw_kernel(op_adamw o, uint32_t second_least, bool wide)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= o.n)
        return;
    pack g = pack_load<T>(o.g, i, o.n, wide), m = pack_load<PT_F32>(o.m, i, o.n, wide), v = pack_load<PT_F32>(o.v, i, o.n, wide);
    pack w = master_load<T>(o.hi, o.lo, i, o.n, wide);
    for (int j = 0; j < PACK; j++)
        adamw_element(o, second_least, g.x[j], &w.x[j], &m.x[j], &v.x[j]);
    pack_store<PT_F32>(o.m, i, o.n, wide, m);
    pack_store<PT_F32>(o.v, i, o.n, wide, v);
    master_store<T>(o.hi, o.lo, i, o.n, wide, w);
}

template <pt_dtype T> static int adamw_launch(const op_adamw *o, cudaStream_t s)
{
    bool wide = is_wide(T, o->hi, 0) && is_wide(T, o->lo, 0) && is_wide(PT_F32, o->m, 0) && is_wide(PT_F32, o->v, 0) &&
                is_wide(T, o->g, 0);
    return launch(adamw_kernel<T>, blocks_of(o->n, OPTIMIZER_THREADS * PACK), OPTIMIZER_THREADS, s, *o,
                  adamw_second_least(o), wide);
}

int cuda_adamw(const op_adamw *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? adamw_launch<PT_BF16>(o, s) : adamw_launch<PT_F32>(o, s);
}
