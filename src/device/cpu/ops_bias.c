/* ops_bias.c - the gradient of a bias: sums over rows.
 *
 * As in ops_norm.c, each block of rows has its own sums, which are then added in order; the shape alone determines the number of blocks. A
 * block is also divided by columns, so that its sums stay in the L1 cache. The sums are in the scratch of the pool's thread 0, which
 * BIAS_BLOCKS x BIAS_COLUMNS fill; wider rows take several rounds.
 */
#include "device/cpu/kernels/embedding.h"
#include "device/cpu/ops.h"
#include "device/cpu/row_blocks.h"
#include "device/cpu/tiles.h"

enum { BIAS_BLOCKS = 64, BIAS_BLOCK_ROWS = 8 /* at least */, BIAS_COLUMNS = 16384 };

typedef struct bias_job {
    const op_bias_backward *op;
    int64_t rows, blocks; /* per block; number of blocks */
    int64_t column, columns; /* of this round */
    float *sums;          /* (blocks, columns) */
} bias_job;

static void bias_tile(void *arg, int64_t block, int thread)
{
    const bias_job *job = arg;
    const op_bias_backward *o = job->op;
    float *sum = job->sums + block * job->columns;
    memset(sum, 0, (size_t)job->columns * sizeof *sum);
    int64_t row = block * job->rows, end = tile_end(o->rows, job->rows, block);
    const char *dy = (const char *)o->dy + (size_t)(row * o->ld + job->column) * dtype_bytes(o->type);
    KERNEL_BEST(rows_add)(o->type, dy, o->ld, end - row, sum, job->columns);
}

static void bias_total_tile(void *arg, int64_t tile, int thread)
{
    const bias_job *job = arg;
    int64_t begin = tile * TOTAL_COLUMNS, end = tile_end(job->columns, TOTAL_COLUMNS, tile);
    blocks_add(job->sums, job->columns, job->blocks, begin, end, job->op->accumulate, job->op->acc + job->column);
}

void cpu_bias_backward(pool *pool, const op_bias_backward *o)
{
    int64_t rows = tiles_of(o->rows, BIAS_BLOCKS);
    rows = rows < BIAS_BLOCK_ROWS ? BIAS_BLOCK_ROWS : rows;
    for (int64_t column = 0; column < o->cols; column += BIAS_COLUMNS) {
        int64_t columns = o->cols - column < BIAS_COLUMNS ? o->cols - column : BIAS_COLUMNS;
        bias_job job = {o, rows, tiles_of(o->rows, rows), column, columns, pool_scratch(pool, 0)};
        pool_run(pool, job.blocks, bias_tile, &job);
        pool_run(pool, tiles_of(columns, TOTAL_COLUMNS), bias_total_tile, &job);
    }
}
