/* ops_gain.c - DoRA besides its matmuls. Sums over rows are computed like those of biases (ops_bias.c). */
#include "device/cpu/kernels/gain.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

#include <string.h>

enum { ROWS_OF_TILE = 32, BLOCKS = 64, BLOCK_ROWS = 8 /* at least */, COLUMNS = 4096, TOTALS = 256 };

static void gain_tile(void *arg, int64_t tile, int thread)
{
    const op_gain *o = arg;
    KERNEL_BEST(gain_rows)(o, tile * ROWS_OF_TILE, tile_end(o->rows, ROWS_OF_TILE, tile));
}

void cpu_gain(pool *pool, const op_gain *o) { pool_run(pool, tiles_of(o->rows, ROWS_OF_TILE), gain_tile, (void *)o); }

typedef struct back_job {
    const op_gain_backward *op;
    int64_t rows, blocks; /* per block; number of blocks */
    int64_t column, columns; /* of this round */
    float *sums;          /* (blocks, columns) */
} back_job;

static void back_tile(void *arg, int64_t block, int thread)
{
    const back_job *job = arg;
    float *sum = job->sums + block * job->columns;
    memset(sum, 0, (size_t)job->columns * sizeof *sum);
    KERNEL_BEST(gain_back_rows)(job->op, block * job->rows, tile_end(job->op->rows, job->rows, block), job->column, job->columns, sum);
}

static void total_tile(void *arg, int64_t tile, int thread)
{
    const back_job *job = arg;
    const op_gain_backward *o = job->op;
    for (int64_t i = tile * TOTALS; i < tile_end(job->columns, TOTALS, tile); i++) {
        float total = 0;
        for (int64_t block = 0; block < job->blocks; block++)
            total += job->sums[block * job->columns + i];
        total *= o->factor * o->inverse[job->column + i];
        o->acc[job->column + i] = o->accumulate ? o->acc[job->column + i] + total : total;
    }
}

void cpu_gain_backward(pool *pool, const op_gain_backward *o)
{
    int64_t rows = tiles_of(o->rows, BLOCKS);
    rows = rows < BLOCK_ROWS ? BLOCK_ROWS : rows;
    for (int64_t column = 0; column < o->cols; column += COLUMNS) {
        const int64_t columns = o->cols - column < COLUMNS ? o->cols - column : COLUMNS;
        back_job job = {o, rows, tiles_of(o->rows, rows), column, columns, pool_scratch(pool, 0)};
        pool_run(pool, job.blocks, back_tile, &job);
        pool_run(pool, tiles_of(columns, TOTALS), total_tile, &job);
    }
}
