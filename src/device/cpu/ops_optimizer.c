/* ops_optimizer.c - rounds gradients, and updates weights.
 *
 * A bf16 gradient may replace the fp32 sums that it is rounded from. Tile t of the result is then in the place of tile t / 2 of the sums:
 *
 *     sums      |   0   |   1   |   2   |   3   |   4  ...
 *     gradient  | 0 | 1 | 2 | 3 | 4 | 5 | ...
 *
 * Tiles 2^k .. 2^(k+1) - 1 are one wave: they overwrite only sums that earlier waves, or the same tile, have read. (Tile 1 overwrites the
 * second half of tile 0, so tile 0 is a wave of its own.)
 */
#include "device/cpu/kernels/double.h"
#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

typedef struct finish_job {
    const op_gradient_finish *op;
    int64_t rows; /* per tile; a multiple of SUMSQ_ROWS */
    int64_t tile; /* the first one of the wave */
} finish_job;

static void finish_tile(void *arg, int64_t index, int thread)
{
    const finish_job *job = arg;
    const op_gradient_finish *o = job->op;
    int64_t tile = job->tile + index, end = tile_end(o->rows, job->rows, tile);
    for (int64_t row = tile * job->rows; row < end; row += SUMSQ_ROWS) {
        int64_t rows = end - row < SUMSQ_ROWS ? end - row : SUMSQ_ROWS;
        double sum = KERNEL_BEST(gradient_finish_part)(o, row * o->cols, rows * o->cols);
        if (o->sumsq)
            o->sumsq[row / SUMSQ_ROWS] = sum;
    }
}

void cpu_gradient_finish(pool *p, const op_gradient_finish *o)
{
    finish_job job = {o, SUMSQ_ROWS * rows_per_tile(SUMSQ_ROWS * o->cols), 0};
    int64_t tiles = tiles_of(o->rows, job.rows);
    if (o->type == PT_F32 || o->g != (const void *)o->acc) {
        pool_run(p, tiles, finish_tile, &job);
        return;
    }
    while (job.tile < tiles) {
        int64_t next = job.tile ? 2 * job.tile : 1;
        pool_run(p, (next < tiles ? next : tiles) - job.tile, finish_tile, &job);
        job.tile = next;
    }
}

static void adamw_tile(void *arg, int64_t tile, int thread)
{
    const op_adamw *o = arg;
    int64_t begin = tile * TILE_ELEMENTS;
    KERNEL_BEST(adamw_part)(o, begin, tile_end(o->n, TILE_ELEMENTS, tile) - begin);
}

static void adamw_double_tile(void *arg, int64_t tile, int thread)
{
    const op_adamw *o = arg;
    const int64_t begin = tile * TILE_ELEMENTS;
    KERNEL_BEST(adamw_double_part)(o, begin, tile_end(o->n, TILE_ELEMENTS, tile));
}

void cpu_adamw(pool *p, const op_adamw *o)
{
    pool_run(p, tiles_of(o->n, TILE_ELEMENTS), o->type == PT_F64 ? adamw_double_tile : adamw_tile, (void *)o);
}
