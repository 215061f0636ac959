/* ops_heads.c - columns of heads from one layout to another. */
#include "device/cpu/kernels/heads.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

typedef struct heads_job { const op_heads *op; int64_t rows; } heads_job;

static void heads_tile(void *arg, int64_t tile, int thread)
{
    const heads_job *job = arg;
    KERNEL_BEST(heads_rows)(job->op, tile * job->rows, tile_end(job->op->rows, job->rows, tile));
}

void cpu_heads(pool *pool, const op_heads *o)
{
    heads_job job = {o, rows_per_tile(o->heads * o->cols)};
    pool_run(pool, tiles_of(o->rows, job.rows), heads_tile, &job);
}
