/* ops_activation.c - activations. Without a gate they are one long row, divided anywhere; a gated row has two halves, so its tiles are full
 * rows. */
#include "device/cpu/kernels/activation.h"
#include "device/cpu/kernels/scale.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

typedef struct activation_job { const op_activation *op; int64_t rows; bool past; } activation_job;
typedef struct activation_backward_job { const op_activation_backward *op; int64_t rows; bool past; } activation_backward_job;

static int64_t output_bytes(pt_dtype type, int64_t rows, int64_t cols) { return rows * cols * (int64_t)dtype_bytes(type); }

static void activation_tile(void *arg, int64_t tile, int thread)
{
    const activation_job *job = arg;
    const op_activation *o = job->op;
    if (!o->gated) {
        KERNEL_BEST(activation_part)(o, 0, tile * TILE_ELEMENTS, tile_end(o->rows * o->cols, TILE_ELEMENTS, tile), job->past);
        return;
    }
    int64_t end = tile_end(o->rows, job->rows, tile);
    for (int64_t row = tile * job->rows; row < end; row++)
        KERNEL_BEST(activation_part)(o, row, 0, o->cols, job->past);
}

static void activation_backward_tile(void *arg, int64_t tile, int thread)
{
    const activation_backward_job *job = arg;
    const op_activation_backward *o = job->op;
    if (!o->gated) {
        int64_t end = tile_end(o->rows * o->cols, TILE_ELEMENTS, tile);
        KERNEL_BEST(activation_backward_part)(o, 0, tile * TILE_ELEMENTS, end, job->past);
        return;
    }
    int64_t end = tile_end(o->rows, job->rows, tile);
    for (int64_t row = tile * job->rows; row < end; row++)
        KERNEL_BEST(activation_backward_part)(o, row, 0, o->cols, job->past);
}

static int64_t activation_tiles(bool gated, int64_t rows, int64_t cols)
{
    return gated ? tiles_of(rows, rows_per_tile(cols)) : tiles_of(rows * cols, TILE_ELEMENTS);
}

void cpu_activation(pool *pool, const op_activation *o)
{
    activation_job job = {o, rows_per_tile(o->cols), cpu_exceeds_cache(output_bytes(o->type, o->rows, o->cols))};
    pool_run(pool, activation_tiles(o->gated, o->rows, o->cols), activation_tile, &job);
}

void cpu_activation_backward(pool *pool, const op_activation_backward *o)
{
    activation_backward_job job = {o, rows_per_tile(o->cols), cpu_exceeds_cache(output_bytes(o->type, o->rows, (1 + o->gated) * o->cols))};
    pool_run(pool, activation_tiles(o->gated, o->rows, o->cols), activation_backward_tile, &job);
}

/* ---- scaling ---- */

static void scale_tile(void *arg, int64_t tile, int thread)
{
    const op_scale *o = arg;
    const int64_t pieces = tiles_of(o->cols, TILE_ELEMENTS), each = rows_per_tile(o->cols), piece = tile % pieces;
    for (int64_t row = tile / pieces * each; row < tile_end(o->rows, each, tile / pieces); row++)
        KERNEL_BEST(scale_part)(o, row, piece * TILE_ELEMENTS, tile_end(o->cols, TILE_ELEMENTS, piece));
}

void cpu_scale(pool *pool, const op_scale *o)
{
    op_scale job = *o;
    pool_run(pool, tiles_of(o->rows, rows_per_tile(o->cols)) * tiles_of(o->cols, TILE_ELEMENTS), scale_tile, &job);
}
