/* ops_gated.c - the gates of a scan, and norms with a gate. Sums over rows are per block of rows, in the op's scratch, then over the
 * blocks. */
#include "device/cpu/kernels/gated.h"
#include "device/cpu/ops.h"
#include "device/cpu/row_blocks.h"
#include "device/cpu/tiles.h"

static void gates_tile(void *arg, int64_t tile, int thread)
{
    const op_gates *o = arg;
    KERNEL_BEST(gates_rows)(o, tile * GATES_BLOCK_ROWS, tile_end(o->rows, GATES_BLOCK_ROWS, tile));
}

void cpu_gates(pool *pool, const op_gates *o) { pool_run(pool, tiles_of(o->rows, GATES_BLOCK_ROWS), gates_tile, (void *)o); }

static void gates_backward_tile(void *arg, int64_t tile, int thread)
{
    const op_gates_backward *b = arg;
    float *sums = (float *)b->scratch + tile * 2 * b->forward.heads;
    KERNEL_BEST(gates_backward_rows)(b, tile * GATES_BLOCK_ROWS, tile_end(b->forward.rows, GATES_BLOCK_ROWS, tile), sums);
}

void cpu_gates_backward(pool *pool, const op_gates_backward *b)
{
    const int64_t heads = b->forward.heads, blocks = tiles_of(b->forward.rows, GATES_BLOCK_ROWS);
    const float *sums = b->scratch;
    pool_run(pool, blocks, gates_backward_tile, (void *)b);
    for (int64_t tile = 0; tile < tiles_of(heads, TOTAL_COLUMNS); tile++) {
        const int64_t begin = tile * TOTAL_COLUMNS, end = tile_end(heads, TOTAL_COLUMNS, tile);
        if (b->da_log)
            blocks_add(sums, 2 * heads, blocks, begin, end, b->accumulate, b->da_log);
        if (b->dstep_bias)
            blocks_add(sums + heads, 2 * heads, blocks, begin, end, b->accumulate, b->dstep_bias);
    }
}

typedef struct gated_norm_job { pool *pool; const op_gated_norm *op; int64_t rows; } gated_norm_job;

static void gated_norm_tile(void *arg, int64_t tile, int thread)
{
    const gated_norm_job *job = arg;
    KERNEL_BEST(gated_norm_rows)(job->op, tile * job->rows, tile_end(job->op->rows, job->rows, tile), pool_scratch(job->pool, thread));
}

void cpu_gated_norm(pool *pool, const op_gated_norm *o)
{
    gated_norm_job job = {pool, o, rows_per_tile(o->heads * o->dim)};
    pool_run(pool, tiles_of(o->rows, job.rows), gated_norm_tile, &job);
}

static int64_t weights_of(const op_gated_norm *o) { return o->weight_step ? o->heads * o->dim : o->dim; }

static void gated_norm_backward_tile(void *arg, int64_t tile, int thread)
{
    const op_gated_norm_backward *b = arg;
    const int64_t rows = gated_norm_block_rows(b->forward.rows);
    float *sums = b->dweight ? (float *)b->scratch + tile * weights_of(&b->forward) : NULL;
    KERNEL_BEST(gated_norm_backward_rows)(b, tile * rows, tile_end(b->forward.rows, rows, tile), sums);
}

static void gated_norm_total_tile(void *arg, int64_t tile, int thread)
{
    const op_gated_norm_backward *b = arg;
    const int64_t n = weights_of(&b->forward), blocks = tiles_of(b->forward.rows, gated_norm_block_rows(b->forward.rows));
    blocks_add(b->scratch, n, blocks, tile * TOTAL_COLUMNS, tile_end(n, TOTAL_COLUMNS, tile), b->accumulate, b->dweight);
}

void cpu_gated_norm_backward(pool *pool, const op_gated_norm_backward *b)
{
    pool_run(pool, tiles_of(b->forward.rows, gated_norm_block_rows(b->forward.rows)), gated_norm_backward_tile, (void *)b);
    if (b->dweight)
        pool_run(pool, tiles_of(weights_of(&b->forward), TOTAL_COLUMNS), gated_norm_total_tile, (void *)b);
}
