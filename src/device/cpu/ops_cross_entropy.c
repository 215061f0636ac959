/* ops_cross_entropy.c - losses of rows of logits, and their gradients. */
#include "device/cpu/kernels/cross_entropy.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

typedef struct cross_entropy_job { const op_cross_entropy *op; int64_t rows; } cross_entropy_job;

static void cross_entropy_tile(void *arg, int64_t tile, int thread)
{
    const cross_entropy_job *job = arg;
    int64_t end = tile_end(job->op->rows, job->rows, tile);
    for (int64_t row = tile * job->rows; row < end; row++)
        KERNEL_BEST(cross_entropy_row)(job->op, row);
}

void cpu_cross_entropy(pool *p, const op_cross_entropy *o)
{
    cross_entropy_job job = {o, rows_per_tile(o->vocab)};
    pool_run(p, tiles_of(o->rows, job.rows), cross_entropy_tile, &job);
}
