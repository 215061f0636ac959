/* ops_codes.c - activations in codes of 8 bits and back, several rows per tile. */
#include "device/cpu/kernels/codes.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

typedef struct codes_job { const void *op; int64_t all, rows; } codes_job;

static void encode_tile(void *arg, int64_t tile, int thread)
{
    const codes_job *job = arg;
    KERNEL_BEST(encode_rows)(job->op, tile * job->rows, tile_end(job->all, job->rows, tile));
}

static void decode_tile(void *arg, int64_t tile, int thread)
{
    const codes_job *job = arg;
    KERNEL_BEST(decode_rows)(job->op, tile * job->rows, tile_end(job->all, job->rows, tile));
}

void cpu_encode(pool *pool, const op_encode *o)
{
    codes_job job = {o, o->rows, rows_per_tile(o->cols)};
    pool_run(pool, tiles_of(o->rows, job.rows), encode_tile, &job);
}

void cpu_decode(pool *pool, const op_decode *o)
{
    codes_job job = {o, o->rows, rows_per_tile(o->cols)};
    pool_run(pool, tiles_of(o->rows, job.rows), decode_tile, &job);
}
