/* ops_sink.c - sinks of attention. */
#include "device/cpu/kernels/sink.h"
#include "device/cpu/ops.h"
#include "device/cpu/row_blocks.h"
#include "device/cpu/tiles.h"

static int64_t blocks_of_queries(const op_sink *o) { return tiles_of(o->q_len, SINK_BLOCK_ROWS); }

static void sink_tile(void *arg, int64_t tile, int thread)
{
    const op_sink *o = arg;
    const int64_t block = tile % blocks_of_queries(o);
    KERNEL_BEST(sink_queries)(o, tile / blocks_of_queries(o), block * SINK_BLOCK_ROWS, tile_end(o->q_len, SINK_BLOCK_ROWS, block));
}

void cpu_sink(pool *pool, const op_sink *o) { pool_run(pool, o->seqs * blocks_of_queries(o), sink_tile, (void *)o); }

static int64_t rows_of(const op_sink_backward *b) { return b->forward.seqs * b->forward.q_len; }

static void sink_backward_tile(void *arg, int64_t tile, int thread)
{
    const op_sink_backward *b = arg;
    float *sums = (float *)b->scratch + tile * b->forward.heads;
    KERNEL_BEST(sink_backward_rows)(b, tile * SINK_BLOCK_ROWS, tile_end(rows_of(b), SINK_BLOCK_ROWS, tile), sums);
}

void cpu_sink_backward(pool *pool, const op_sink_backward *b)
{
    const int64_t heads = b->forward.heads, blocks = tiles_of(rows_of(b), SINK_BLOCK_ROWS);
    pool_run(pool, blocks, sink_backward_tile, (void *)b);
    for (int64_t tile = 0; tile < tiles_of(heads, TOTAL_COLUMNS); tile++)
        blocks_add(b->scratch, heads, blocks, tile * TOTAL_COLUMNS, tile_end(heads, TOTAL_COLUMNS, tile), b->accumulate, b->dsinks);
}
