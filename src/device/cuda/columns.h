/* columns.h - sums over the rows of a matrix, for gradients of biases and norms.
 *
 * A block has COLUMN_TILE columns (32 bytes of bf16, the smallest memory transaction) and a part of the rows. A thread has the pack of one
 * half of the tile, in rows slot, slot + COLUMN_SLOTS, ... . The slots' sums are added in a fixed tree:
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

/* out[column ..] (+)= the sum of the block's packs; out may be NULL. All threads of the block must call it. */
DEVICE void column_store(column_place at, pack sum, float *out, int64_t columns, bool accumulate)
{
    __shared__ float slots[PACK][COLUMN_THREADS]; /* neighbouring threads use neighbouring banks */
    if (!out)
        return;
    __syncthreads(); /* the previous call's sums have been read */
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
