#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

#include <math.h>

static void add_lanes(double lane[SUMSQ_LANES])
{
    for (int n = SUMSQ_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            lane[i] += lane[i + n];
}

/* ---- moments ---- */

static void block_tile(void *arg, int64_t block, int thread)
{
    const op_factor_sums *o = arg;
    const int64_t end = tile_end(o->rows, FACTOR_ROWS, block);
    for (int64_t i = block * FACTOR_ROWS; i < end && o->row; i++) {
        const float mean = (float)(KERNEL_BEST(factor_row_part)(o, i) / (double)o->cols) + o->eps;
        o->row[i] = fmaf(1.0f - o->keep, mean, o->keep * o->row[i]);
    }
    if (o->partial)
        KERNEL_BEST(factor_cols_part)(o, block);
}

void cpu_factor_sums(pool *pool, const op_factor_sums *o) { pool_run(pool, factor_blocks(o->rows), block_tile, (void *)o); }

static float mean_of(const float *x, int64_t n)
{
    double lane[SUMSQ_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % SUMSQ_LANES] += (double)x[i];
    add_lanes(lane);
    return (float)(lane[0] / (double)n);
}

static void fold_tile(void *arg, int64_t tile, int thread)
{
    const op_factor_fold *o = arg;
    const int64_t each = rows_per_tile(factor_blocks(o->rows)), end = tile_end(o->cols, each, tile);
    for (int64_t j = tile * each; j < end; j++) {
        double sum = 0;
        for (int64_t b = 0; b < factor_blocks(o->rows); b++)
            sum += (double)o->partial[b * o->cols + j];
        const float mean = (float)(sum / (double)o->rows) + o->eps;
        o->col[j] = fmaf(1.0f - o->keep, mean, o->keep * o->col[j]);
        o->col_factor[j] = 1.0f / sqrtf(o->col[j]);
    }
}

void cpu_factor_fold(pool *pool, const op_factor_fold *o)
{
    const float mean = o->row ? mean_of(o->row, o->rows) : 1;
    for (int64_t i = 0; i < o->rows; i++)
        o->row_factor[i] = o->row ? 1.0f / sqrtf(o->row[i] / mean) : 1.0f;
    pool_run(pool, tiles_of(o->cols, rows_per_tile(factor_blocks(o->rows))), fold_tile, (void *)o);
}

/* ---- updates ---- */

static void squares_tile(void *arg, int64_t tile, int thread)
{
    const op_scaled_squares *o = arg;
    const int64_t rows = rows_per_tile(o->cols), end = tile_end(o->rows, rows, tile);
    for (int64_t i = tile * rows; i < end; i++)
        o->sums[i] = KERNEL_BEST(scaled_squares_row)(o, i);
}

void cpu_scaled_squares(pool *pool, const op_scaled_squares *o)
{
    pool_run(pool, tiles_of(o->rows, rows_per_tile(o->cols)), squares_tile, (void *)o);
}

static void masters_tile(void *arg, int64_t tile, int thread)
{
    const op_master_squares *o = arg;
    const int64_t rows = rows_per_tile(o->cols), end = tile_end(o->rows, rows, tile);
    for (int64_t i = tile * rows; i < end; i++)
        o->sums[i] = KERNEL_BEST(master_squares_row)(o, i);
}

void cpu_master_squares(pool *pool, const op_master_squares *o)
{
    pool_run(pool, tiles_of(o->rows, rows_per_tile(o->cols)), masters_tile, (void *)o);
}

static double total_of(const double *sums, int64_t n)
{
    double lane[SUMSQ_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % SUMSQ_LANES] += sums[i];
    add_lanes(lane);
    return lane[0];
}

static float larger(float x, float least) { return x < least ? least : x; }

void cpu_update_limit(pool *pool, const op_update_limit *o)
{
    const double total = o->kind == LIMIT_NONE ? 0 : total_of(o->sums, o->sums_n);
    if (o->kind == LIMIT_RMS) {
        const float part = (float)sqrt(total / (double)o->values) / o->most;
        const float lr = o->weights ? o->lr * larger((float)sqrt(total_of(o->weights, o->sums_n) / (double)o->values), o->least) : o->lr;
        o->out[0] = lr / larger(part, 1);
        o->out[1] = fmaf(-o->decay, lr, 1);
        return;
    }
    const float norm = (float)sqrt(total), last = o->last ? *o->last : 0;
    const float by = last > 0 ? larger(norm / (last + 1e-8f), o->most) / o->most : 1;
    if (o->last)
        *o->last = norm / by;
    o->out[1] = 1.0f - o->decay;
    o->out[0] = o->lr / by * o->out[1];
}

static void apply_tile(void *arg, int64_t tile, int thread)
{
    const op_scaled_apply *o = arg;
    const int64_t rows = rows_per_tile(o->cols), end = tile_end(o->rows, rows, tile);
    for (int64_t i = tile * rows; i < end; i++)
        KERNEL_BEST(scaled_apply_row)(o, i);
}

void cpu_scaled_apply(pool *pool, const op_scaled_apply *o)
{
    pool_run(pool, tiles_of(o->rows, rows_per_tile(o->cols)), apply_tile, (void *)o);
}
