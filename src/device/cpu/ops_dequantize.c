/* ops_dequantize.c - decodes quantized weights, several rows per tile. */
#include "device/cpu/kernels/dequantize.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"
#include "device/moment_map.h"

typedef struct dequantize_job { const op_dequantize *op; const float *map; int64_t rows; } dequantize_job;

static void dequantize_tile(void *arg, int64_t tile, int thread)
{
    const dequantize_job *job = arg;
    const int64_t end = tile_end(job->op->rows, job->rows, tile);
    for (int64_t row = tile * job->rows; row < end; row++)
        KERNEL_BEST(dequantize_row)(job->op, job->map, row);
}

void cpu_dequantize(pool *pool, const op_dequantize *o)
{
    dequantize_job job = {o, moment_map_get(true)->value, rows_per_tile(o->cols)};
    pool_run(pool, tiles_of(o->rows, job.rows), dequantize_tile, &job);
}
