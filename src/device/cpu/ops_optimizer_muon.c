#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

#include <math.h>

static void momentum_tile(void *arg, int64_t tile, int thread)
{
    const op_muon_momentum *o = arg;
    const int64_t begin = tile * MUON_SUM_VALUES;
    o->sums[tile] = KERNEL_BEST(muon_momentum_part)(o, begin, tile_end(o->n, MUON_SUM_VALUES, tile) - begin);
}

void cpu_muon_momentum(pool *pool, const op_muon_momentum *o) { pool_run(pool, muon_sums(o->n), momentum_tile, (void *)o); }

/* The norm of the matrix, in bf16, at least the smallest divisor. */
static float norm_of(const op_muon_scale *o)
{
    double lane[SUMSQ_LANES] = {0};
    for (int64_t i = 0; i < muon_sums(o->n); i++)
        lane[i % SUMSQ_LANES] += o->sums[i];
    for (int n = SUMSQ_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            lane[i] += lane[i + n];
    const float norm = bf16_to_f32(bf16_from_f32((float)sqrt(lane[0])));
    return norm < o->least ? o->least : norm;
}

typedef struct scale_job { const op_muon_scale *op; float norm; } scale_job;

static void scale_tile(void *arg, int64_t tile, int thread)
{
    const scale_job *job = arg;
    const int64_t begin = tile * TILE_ELEMENTS;
    KERNEL_BEST(muon_scale_part)(job->op, job->norm, begin, tile_end(job->op->n, TILE_ELEMENTS, tile) - begin);
}

void cpu_muon_scale(pool *pool, const op_muon_scale *o)
{
    scale_job job = {o, norm_of(o)};
    pool_run(pool, tiles_of(o->n, TILE_ELEMENTS), scale_tile, &job);
}

static void combine_tile(void *arg, int64_t tile, int thread)
{
    const op_muon_combine *o = arg;
    const int64_t rows = rows_per_tile(o->cols), end = tile_end(o->rows, rows, tile);
    for (int64_t row = tile * rows; row < end; row++)
        KERNEL_BEST(muon_combine_row)(o, row);
}

void cpu_muon_combine(pool *pool, const op_muon_combine *o)
{
    pool_run(pool, tiles_of(o->rows, rows_per_tile(o->cols)), combine_tile, (void *)o);
}

static void apply_tile(void *arg, int64_t tile, int thread)
{
    const op_muon_apply *o = arg;
    const int64_t begin = tile * TILE_ELEMENTS;
    KERNEL_BEST(muon_apply_part)(o, begin, tile_end(o->n, TILE_ELEMENTS, tile) - begin);
}

void cpu_muon_apply(pool *pool, const op_muon_apply *o) { pool_run(pool, tiles_of(o->n, TILE_ELEMENTS), apply_tile, (void *)o); }
