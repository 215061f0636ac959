/* ops_conv.c - causal depthwise convolution. Parts are some rows of a sequence and CONV_COLUMNS channels. The gradients of weights have a
 * sum per CONV_BLOCK_ROWS rows of the op, in its scratch: (taps + 1, channels) per block. */
#include "device/cpu/kernels/conv.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

#include <string.h>

enum { CONV_ROWS = 64 };

static conv_part columns_of(const op_conv *o, int64_t tile)
{
    const int64_t column = tile * CONV_COLUMNS;
    return (conv_part){.column = column, .n = tile_end(o->channels, CONV_COLUMNS, tile) - column};
}

static void conv_tile(void *arg, int64_t tile, int thread)
{
    const op_conv *o = arg;
    const int64_t across = tiles_of(o->channels, CONV_COLUMNS), down = tiles_of(o->len, CONV_ROWS), rows = tile / across % down;
    conv_part part = columns_of(o, tile % across);
    part.seq = tile / across / down, part.row0 = rows * CONV_ROWS, part.row1 = tile_end(o->len, CONV_ROWS, rows);
    KERNEL_BEST(conv_rows)(o, part);
}

static void conv_last_tile(void *arg, int64_t tile, int thread)
{
    const op_conv *o = arg;
    const int64_t across = tiles_of(o->channels, CONV_COLUMNS);
    conv_part part = columns_of(o, tile % across);
    part.seq = tile / across;
    KERNEL_BEST(conv_last)(o, part);
}

void cpu_conv(pool *pool, const op_conv *o)
{
    const int64_t across = tiles_of(o->channels, CONV_COLUMNS);
    pool_run(pool, o->seqs * tiles_of(o->len, CONV_ROWS) * across, conv_tile, (void *)o);
    if (o->last)
        pool_run(pool, o->seqs * across, conv_last_tile, (void *)o);
}

static float *block_sums(const op_conv_backward *o, int64_t block)
{
    return (float *)o->scratch + block * (o->forward.taps + 1) * o->forward.channels;
}

static void conv_backward_tile(void *arg, int64_t tile, int thread)
{
    const op_conv_backward *b = arg;
    const op_conv *o = &b->forward;
    const int64_t across = tiles_of(o->channels, CONV_COLUMNS), block = tile / across;
    const int64_t end = tile_end(o->seqs * o->len, CONV_BLOCK_ROWS, block);
    conv_part part = columns_of(o, tile % across);
    float *sums = b->dweight || b->dbias ? block_sums(b, block) : NULL;
    for (int64_t j = 0; sums && j <= o->taps; j++)
        memset(sums + j * o->channels + part.column, 0, (size_t)part.n * sizeof *sums);
    for (int64_t row = block * CONV_BLOCK_ROWS; row < end; row += part.row1 - part.row0) {
        const int64_t left = end - row;
        part.seq = row / o->len, part.row0 = row % o->len;
        part.row1 = o->len - part.row0 < left ? o->len : part.row0 + left;
        KERNEL_BEST(conv_backward_rows)(b, part, sums);
    }
}

/* The blocks' sums of one channel after the other. */
static void conv_total_tile(void *arg, int64_t tile, int thread)
{
    const op_conv_backward *b = arg;
    const op_conv *o = &b->forward;
    const int64_t blocks = tiles_of(o->seqs * o->len, CONV_BLOCK_ROWS);
    const conv_part part = columns_of(o, tile);
    for (int64_t c = part.column; c < part.column + part.n; c++)
        for (int64_t j = 0; j <= o->taps; j++) {
            float *to = j < o->taps ? b->dweight ? b->dweight + c * o->taps + j : NULL : b->dbias ? b->dbias + c : NULL, sum = 0;
            for (int64_t block = 0; block < blocks; block++)
                sum += block_sums(b, block)[j * o->channels + c];
            if (to)
                *to = b->accumulate ? *to + sum : sum;
        }
}

void cpu_conv_backward(pool *pool, const op_conv_backward *b)
{
    const int64_t across = tiles_of(b->forward.channels, CONV_COLUMNS);
    pool_run(pool, tiles_of(b->forward.seqs * b->forward.len, CONV_BLOCK_ROWS) * across, conv_backward_tile, (void *)b);
    if (b->dweight || b->dbias)
        pool_run(pool, across, conv_total_tile, (void *)b);
}
