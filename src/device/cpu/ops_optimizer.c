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

/* Rows that stand for others: the lanes of element 0 of row r are those of element ids[r] % SUMSQ_ROWS * cols of the rows that it shares a
 * sum with. */
static void add_row_squares(const op_gradient_finish *o, int64_t row, double lane[SUMSQ_LANES])
{
    const int64_t first = o->ids[row] % SUMSQ_ROWS * o->cols, at = row * o->cols;
    for (int64_t i = 0; i < o->cols; i++) {
        const double g = o->type == PT_BF16 ? (double)bf16_to_f32(((const bf16 *)o->g)[at + i]) : (double)((const float *)o->g)[at + i];
        lane[(first + i) % SUMSQ_LANES] += g * g;
    }
}

static double lanes_total(double lane[SUMSQ_LANES])
{
    for (int n = SUMSQ_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return lane[0];
}

/* The rows from `row` on that share its sum. */
static int64_t rows_of_sum(const op_gradient_finish *o, int64_t row)
{
    int64_t n = 1;
    while (row + n < o->rows && o->ids[row + n] / SUMSQ_ROWS == o->ids[row] / SUMSQ_ROWS)
        n++;
    return n;
}

/* The tile finishes the sums that begin in it. */
static void finish_listed_tile(void *arg, int64_t tile, int thread)
{
    const finish_job *job = arg;
    const op_gradient_finish *o = job->op;
    const int64_t end = tile_end(o->rows, job->rows, tile);
    int64_t row = tile * job->rows;
    while (row && row < end && o->ids[row] / SUMSQ_ROWS == o->ids[row - 1] / SUMSQ_ROWS)
        row++;
    for (int64_t rows; row < end; row += rows) {
        double lane[SUMSQ_LANES] = {0};
        rows = rows_of_sum(o, row);
        double sum = KERNEL_BEST(gradient_finish_part)(o, row * o->cols, rows * o->cols);
        if (o->cols % SUMSQ_LANES) {
            for (int64_t r = row; r < row + rows; r++)
                add_row_squares(o, r, lane);
            sum = lanes_total(lane);
        }
        o->sumsq[o->ids[row] / SUMSQ_ROWS] = sum;
    }
}

void cpu_gradient_finish(pool *pool, const op_gradient_finish *o)
{
    finish_job job = {o, SUMSQ_ROWS * rows_per_tile(SUMSQ_ROWS * o->cols), 0};
    int64_t tiles = tiles_of(o->rows, job.rows);
    if (o->ids) {
        pool_run(pool, tiles, finish_listed_tile, &job);
        return;
    }
    if (o->type == PT_F32 || o->g != (const void *)o->acc) {
        pool_run(pool, tiles, finish_tile, &job);
        return;
    }
    while (job.tile < tiles) {
        int64_t next = job.tile ? 2 * job.tile : 1;
        pool_run(pool, (next < tiles ? next : tiles) - job.tile, finish_tile, &job);
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

void cpu_adamw(pool *pool, const op_adamw *o)
{
    pool_run(pool, tiles_of(o->n, TILE_ELEMENTS), o->type == PT_F64 ? adamw_double_tile : adamw_tile, (void *)o);
}
