/* columns.h - sums down the columns of a matrix, as gradients of biases and norms are.
 *
 * A block takes COLUMN_TILE columns (32 bytes of bf16, what memory gives at least) and a part of the rows; a
 * thread two neighbours' worth: the pack of one half of the tile in the rows slot, slot + COLUMN_SLOTS, ... .
 * The slots' sums are then added as a tree whose shape is fixed:
 *
 *              16 columns
 *     slot 0   | 0 | 1 |  <- threads 0 and 1         slot s += slot s + 64, then + 32, ... , + 1
 *     slot 1   | 2 | 3 |
 *     ...
 */
#ifndef PT_CUDA_COLUMNS_H
#define PT_CUDA_COLUMNS_H

#include "device/cuda/primitives.h"

enum { COLUMN_TILE = 2 * PACK, COLUMN_SLOTS = 128, COLUMN_THREADS = 2 * COLUMN_SLOTS };

typedef struct column_place { int64_t part, column /* of the thread's pack */; int slot; } column_place;

/* Blocks: the tiles of part 0, then those of part 1, ... */
DEVICE column_place column_place_of(int64_t columns, int parts)
{
    unsigned tiles = (unsigned)((columns + COLUMN_TILE - 1) / COLUMN_TILE);
    column_place p;
    p.part = blockIdx.x / tiles;
    p.column = (int64_t)(blockIdx.x % tiles) * COLUMN_TILE + threadIdx.x % 2 * PACK;
    p.slot = threadIdx.x / 2;
    return p;
}

/* out[column ..] (+)= the sum of the block's packs; nothing where out is NULL. For whole blocks. */
DEVICE void column_store(column_place at, pack sum, float *out, int64_t columns, bool accumulate)
{
    __shared__ float slots[PACK][COLUMN_THREADS]; /* neighbours in neighbouring banks */
    if (!out)
        return;
    __syncthreads(); /* the last call's sums have been read */
    for (int j = 0; j < PACK; j++)
        slots[j][threadIdx.x] = sum.x[j];
    for (int distance = COLUMN_SLOTS / 2; distance; distance /= 2) {
        __syncthreads();
        if (at.slot < distance)
            for (int j = 0; j < PACK; j++)
                slots[j][threadIdx.x] += slots[j][threadIdx.x + 2 * distance];
    }
    if (at.slot)
        return;
    for (int j = 0; j < PACK; j++)
        if (at.column + j < columns) {
            float total = slots[j][threadIdx.x];
            out[at.column + j] = accumulate ? out[at.column + j] + total : total;
        }
}

#endif
