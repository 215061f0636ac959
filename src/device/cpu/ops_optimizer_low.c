#include "base/rng.h"
#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

#include <math.h>

/* ---- random matrices ---- */

enum { BATCH = 64 /* counter values */, WORDS = 4 };

static float digits(uint32_t w)
{
    const uint32_t pairs = (w & 0x0f0f0f0fu) + (w >> 4 & 0x0f0f0f0fu);
    return (float)((int32_t)(pairs * 0x01010101u >> 24) - 60);
}

static void random_batch(const op_random_matrix *o, int64_t first, int64_t end)
{
    uint32_t w[WORDS][BATCH];
    const int n = (int)((end - first + WORDS - 1) / WORDS);
    rng_words_run(o->seed, RNG_PROJECT, o->stream, ((uint64_t)o->refresh << 32) + (uint64_t)(first / WORDS), n, w[0], w[1], w[2], w[3]);
    for (int64_t i = first; i < end; i++) {
        const float x = digits(w[i % WORDS][(i - first) / WORDS]);
        if (o->type == PT_BF16)
            ((bf16 *)o->out)[i] = bf16_from_f32(x);
        else
            ((float *)o->out)[i] = x;
    }
}

static void random_tile(void *arg, int64_t tile, int thread)
{
    const op_random_matrix *o = arg;
    const int64_t end = tile_end(o->n, TILE_ELEMENTS, tile);
    for (int64_t i = tile * TILE_ELEMENTS; i < end; i += WORDS * BATCH)
        random_batch(o, i, i + WORDS * BATCH < end ? i + WORDS * BATCH : end);
}

void cpu_random_matrix(pool *pool, const op_random_matrix *o) { pool_run(pool, tiles_of(o->n, TILE_ELEMENTS), random_tile, (void *)o); }

/* ---- moments ---- */

enum { COLUMNS = 512 };

static void columns_tile(void *arg, int64_t tile, int thread)
{
    const op_low_moments *o = arg;
    KERNEL_BEST(low_columns_part)(o, tile * COLUMNS, tile_end(o->channels, COLUMNS, tile) - tile * COLUMNS);
}

static void rows_tile(void *arg, int64_t tile, int thread)
{
    const op_low_moments *o = arg;
    const int64_t rows = rows_per_tile(o->rank), end = tile_end(o->channels, rows, tile);
    for (int64_t row = tile * rows; row < end; row++)
        KERNEL_BEST(low_row_part)(o, row);
}

void cpu_low_moments(pool *pool, const op_low_moments *o)
{
    if (o->by_rows)
        pool_run(pool, tiles_of(o->channels, rows_per_tile(o->rank)), rows_tile, (void *)o);
    else
        pool_run(pool, tiles_of(o->channels, COLUMNS), columns_tile, (void *)o);
}

static double total_of(const double *sums, int64_t n)
{
    double lane[SUMSQ_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % SUMSQ_LANES] += sums[i];
    for (int k = SUMSQ_LANES / 2; k; k /= 2)
        for (int i = 0; i < k; i++)
            lane[i] += lane[i + k];
    return lane[0];
}

static float ratio(double moved, double given) { return (float)sqrt(moved) / ((float)sqrt(given) + 1e-8f); }

void cpu_channel_scale(pool *pool, const op_channel_scale *o)
{
    const float all = o->together ? ratio(total_of(o->moved, o->channels), total_of(o->given, o->channels)) : 0;
    for (int64_t i = 0; i < o->channels; i++)
        o->out[i] = o->together ? all : ratio(o->moved[i], o->given[i]);
}

void cpu_orthonormal(pool *pool, const op_orthonormal *o) { KERNEL_BEST(orthonormal_all)(o); }

/* ---- Adam by rows ---- */

static void adam_tile(void *arg, int64_t tile, int thread)
{
    const op_row_adam *o = arg;
    const int64_t rows = rows_per_tile(o->cols), end = tile_end(o->rows, rows, tile);
    for (int64_t row = tile * rows; row < end; row++)
        KERNEL_BEST(row_adam_part)(o, row);
}

void cpu_row_adam(pool *pool, const op_row_adam *o) { pool_run(pool, tiles_of(o->rows, rows_per_tile(o->cols)), adam_tile, (void *)o); }
