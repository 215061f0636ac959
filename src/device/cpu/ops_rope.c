/* ops_rope.c - rotary embedding in place. */
#include "device/cpu/kernels/rope.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

typedef struct rope_job { pool *pool; const op_rope *op; int64_t rows; } rope_job;

static void rope_tile(void *arg, int64_t tile, int thread)
{
    const rope_job *job = arg;
    KERNEL_BEST(rope_rows)
    (job->op, tile * job->rows, tile_end(job->op->rows, job->rows, tile), pool_scratch(job->pool, thread));
}

void cpu_rope(pool *pool, const op_rope *o)
{
    rope_job job = {pool, o, rows_per_tile(o->heads * o->dim)};
    pool_run(pool, tiles_of(o->rows, job.rows), rope_tile, &job);
}
