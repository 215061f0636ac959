/* kernels_bias.cu - the gradient of a bias: sums over rows.
 *
 * A block has a tile of 64 columns, whose rows of bf16 are whole cache lines, and a part of the rows. 768 columns have 12 tiles, so parts
 * are needed to keep all multiprocessors reading. The number of parts depends on the shape alone, and their sums have a fixed order:
 *
 *     part 0     | tile 0 | tile 1 | ...     a thread adds rows slot, slot + 32, ... of one pack of columns; then slots are added in a tree
 *     part 1     | tile 0 | tile 1 | ...
 *     ...                                    the last block of a tile to end adds the tile's parts
 *
 * Which block is the last one is decided by a counter of the tile; the sum does not depend on it.
 */
#include "device/cuda/primitives.h"

enum { AT_ONCE = 8 /* loads in flight per thread */, BIAS_THREADS = 256, LANES = 8 /* packs of a tile */, SLOTS = BIAS_THREADS / LANES };
enum { BIAS_TILE = LANES * PACK, BIAS_BLOCKS = 396 /* 3 for each of 132 multiprocessors */, LEAST_ROWS = AT_ONCE * SLOTS };
enum { FOURTHS = BIAS_THREADS / BIAS_TILE };

/* Sums of parts, and how many blocks of a tile have ended: 0 again when all have. One op computes at a time. */
static __device__ float part_sums[BIAS_BLOCKS * BIAS_TILE];
static __device__ unsigned parts_done[BIAS_BLOCKS];

DEVICE void pack_add(pack *sum, pack x)
{
#pragma unroll
    for (int j = 0; j < PACK; j++)
        sum->x[j] += x.x[j];
}

template <pt_dtype T> DEVICE pack rows_sum(const op_bias_backward &o, int64_t column, int64_t row, int64_t end, bool wide)
{
    pack sum = {{0}};
    for (; row + (AT_ONCE - 1) * SLOTS < end; row += AT_ONCE * SLOTS) {
        packed<T> dy[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            dy[i] = packed_load<T>(element_at<T>(o.dy, (row + i * SLOTS) * o.ld), column, o.cols, wide);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            pack_add(&sum, packed_values<T>(dy[i]));
    }
    for (; row < end; row += SLOTS)
        pack_add(&sum, pack_load<T>(element_at<T>(o.dy, row * o.ld), column, o.cols, wide));
    return sum;
}

/* The tile's sum of column threadIdx.x, over all slots; only for threads 0 .. BIAS_TILE - 1. */
DEVICE float slots_sum(pack sum)
{
    __shared__ float slots[PACK][BIAS_THREADS]; /* neighbouring threads use neighbouring banks */
    const int slot = threadIdx.x / LANES;
    for (int j = 0; j < PACK; j++)
        slots[j][threadIdx.x] = sum.x[j];
    for (int distance = SLOTS / 2; distance; distance /= 2) {
        __syncthreads();
        if (slot < distance)
            for (int j = 0; j < PACK; j++)
                slots[j][threadIdx.x] += slots[j][threadIdx.x + LANES * distance];
    }
    __syncthreads();
    return threadIdx.x < BIAS_TILE ? slots[threadIdx.x % PACK][threadIdx.x / PACK] : 0.0f;
}

/* Whether this block is the last one of its tile. */
DEVICE bool ends_tile(int tile, int parts)
{
    __shared__ bool last;
    __threadfence(); /* the part's sums are seen by whoever sees the counter */
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&parts_done[tile], 1u) == (unsigned)parts - 1;
        if (last)
            parts_done[tile] = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

/* The same over all parts: four threads have every fourth part of a column. */
DEVICE float parts_sum(int tile, int parts)
{
    __shared__ float fourths[FOURTHS][BIAS_TILE];
    const int column = threadIdx.x % BIAS_TILE, fourth = threadIdx.x / BIAS_TILE;
    float sum = 0.0f;
#pragma unroll 4
    for (int part = fourth; part < parts; part += FOURTHS)
        sum += __ldcg(&part_sums[(tile * parts + part) * BIAS_TILE + column]);
    fourths[fourth][column] = sum;
    __syncthreads();
    return (fourths[0][column] + fourths[1][column]) + (fourths[2][column] + fourths[3][column]);
}

/* Blocks: the tiles of part 0, then those of part 1, ... */
template <pt_dtype T>
__global__ void __launch_bounds__(BIAS_THREADS, 2)
bias_backward_kernel(op_bias_backward o, int tiles, int parts, bool wide)
{
    const int tile = (int)blockIdx.x % tiles, part = (int)blockIdx.x / tiles;
    const int64_t column = (int64_t)tile * BIAS_TILE + threadIdx.x % LANES * PACK, begin = o.rows * part / parts;
    const int64_t end = column < o.cols ? o.rows * (part + 1) / parts : 0, mine = (int64_t)tile * BIAS_TILE + threadIdx.x;
    float sum = slots_sum(rows_sum<T>(o, column, begin + threadIdx.x / LANES, end, wide));
    if (parts > 1) {
        if (threadIdx.x < BIAS_TILE)
            part_sums[(tile * parts + part) * BIAS_TILE + threadIdx.x] = sum;
        if (!ends_tile(tile, parts))
            return;
        sum = parts_sum(tile, parts);
    }
    if (threadIdx.x < BIAS_TILE && mine < o.cols)
        o.acc[mine] = o.accumulate ? o.acc[mine] + sum : sum;
}

/* Parts of about LEAST_ROWS rows or more. */
static int bias_parts(int64_t rows, int64_t tiles)
{
    const int64_t wanted = BIAS_BLOCKS / tiles, most = rows / LEAST_ROWS, parts = wanted < most ? wanted : most;
    return parts > 1 ? (int)parts : 1;
}

template <pt_dtype T> static int bias_backward_launch(const op_bias_backward *o, cudaStream_t s)
{
    const int64_t tiles = blocks_of(o->cols, BIAS_TILE);
    if (tiles == 0)
        return 0;
    const int parts = bias_parts(o->rows, tiles);
    return launch(bias_backward_kernel<T>, tiles * parts, BIAS_THREADS, s, *o, (int)tiles, parts, is_wide(T, o->dy, o->ld));
}

int cuda_bias_backward(const op_bias_backward *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? bias_backward_launch<PT_BF16>(o, s) : bias_backward_launch<PT_F32>(o, s);
}
