/* ops_cross_entropy.c - losses of rows of logits, and their gradients. */
#include "device/cpu/kernels/cross_entropy.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

enum { MOST_ROWS = 4, LEAST_TILES = 64 };

typedef struct cross_entropy_job { pool *pool; const op_cross_entropy *op; int64_t rows; } cross_entropy_job;

static void cross_entropy_tile(void *arg, int64_t tile, int thread)
{
    const cross_entropy_job *job = arg;
    int64_t end = tile_end(job->op->rows, job->rows, tile);
    for (int64_t row = tile * job->rows; row < end; row++)
        KERNEL_BEST(cross_entropy_row)(job->op, row, row + 1 < end ? row + 1 : row, pool_scratch(job->pool, thread));
}

/* Rows of a tile: several if there are many, because a thread prefetches the next row. */
static int64_t cross_entropy_rows(const op_cross_entropy *o)
{
    int64_t rows = rows_per_tile(o->vocab), some = o->rows / LEAST_TILES < MOST_ROWS ? o->rows / LEAST_TILES : MOST_ROWS;
    return rows < some ? some : rows;
}

void cpu_cross_entropy(pool *pool, const op_cross_entropy *o)
{
    cross_entropy_job job = {pool, o, cross_entropy_rows(o)};
    pool_run(pool, tiles_of(o->rows, job.rows), cross_entropy_tile, &job);
}
