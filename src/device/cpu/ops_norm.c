/* ops_norm.c - normalisation and its backward.
 *
 * The sums over rows (dweight, dbias) are computed in two steps: first per block of rows, ascending, then over the blocks, ascending. There
 * are at most NORM_BLOCKS, whatever the number of threads. The blocks' sums are in the scratch of the pool's thread 0, which no kernel here
 * uses otherwise:
 *
 *     block 0: dweight (dim) dbias (dim) | block 1: dweight (dim) dbias (dim) | ...
 *
 * So x and dy are read from memory once, and dx may replace dy. The limit for a row is 512 Ki elements there, and 170 Ki in the forward
 * pass.
 */
#include "device/cpu/kernels/norm.h"
#include "device/cpu/ops.h"
#include "device/cpu/row_blocks.h"
#include "device/cpu/tiles.h"

enum { NORM_SIDE = 4 /* the most rows that kernels compute together */ };
enum { NORM_BLOCKS = 64, NORM_BLOCK_ROWS = 4 /* at least */ };

typedef struct norm_job { pool *pool; const op_norm *op; int64_t rows; bool past; } norm_job;

static void norm_tile(void *arg, int64_t tile, int thread)
{
    const norm_job *job = arg;
    KERNEL_BEST(norm_rows)
    (job->op, tile * job->rows, tile_end(job->op->rows, job->rows, tile), job->past, pool_scratch(job->pool, thread));
}

void cpu_norm(pool *pool, const op_norm *o)
{
    int64_t rows = rows_per_tile(o->heads * o->dim);
    const int64_t bytes = o->rows * o->heads * o->dim * (int64_t)dtype_bytes(o->type);
    norm_job job = {pool, o, tiles_of(rows, NORM_SIDE) * NORM_SIDE, false};
    job.past = o->y != o->x && !o->residual && !o->stream && cpu_exceeds_cache(bytes);
    pool_run(pool, tiles_of(o->rows, job.rows), norm_tile, &job);
}

typedef struct norm_backward_job {
    const op_norm_backward *op;
    int64_t rows, blocks; /* per block; number of blocks */
    float *sums;
} norm_backward_job;

static void norm_backward_tile(void *arg, int64_t tile, int thread)
{
    const norm_backward_job *job = arg;
    const op_norm_backward *o = job->op;
    float *dweight = job->sums + 2 * tile * o->dim;
    KERNEL_BEST(norm_backward_rows)
    (o, tile * job->rows, tile_end(o->rows, job->rows, tile), o->dweight ? dweight : NULL,
     o->dbias ? dweight + o->dim : NULL);
}

static void norm_total_tile(void *arg, int64_t tile, int thread)
{
    const norm_backward_job *job = arg;
    const op_norm_backward *o = job->op;
    int64_t begin = tile * TOTAL_COLUMNS, end = tile_end(o->dim, TOTAL_COLUMNS, tile);
    if (o->dweight)
        blocks_add(job->sums, 2 * o->dim, job->blocks, begin, end, o->accumulate, o->dweight);
    if (o->dbias)
        blocks_add(job->sums + o->dim, 2 * o->dim, job->blocks, begin, end, o->accumulate, o->dbias);
}

/* The same op with the offset added to the weights, in the op's scratch. */
static op_norm_backward with_offset_added(const op_norm_backward *o)
{
    op_norm_backward added = *o;
    float *weight = o->scratch;
    for (int64_t i = 0; i < o->dim; i++)
        weight[i] = o->offset + (o->weight ? o->weight[i] : 0);
    added.weight = weight;
    added.offset = 0;
    return added;
}

void cpu_norm_backward(pool *pool, const op_norm_backward *o)
{
    if (o->offset != 0 && o->rows > 0) {
        const op_norm_backward added = with_offset_added(o);
        cpu_norm_backward(pool, &added);
        return;
    }
    int64_t fit = POOL_SCRATCH_BYTES / (int64_t)(2 * sizeof(float)) / o->dim;
    int64_t rows = tiles_of(o->rows, fit < NORM_BLOCKS ? fit : NORM_BLOCKS);
    rows = rows < NORM_BLOCK_ROWS ? NORM_BLOCK_ROWS : rows;
    norm_backward_job job = {o, rows, tiles_of(o->rows, rows), pool_scratch(pool, 0)};
    pool_run(pool, job.blocks, norm_backward_tile, &job);
    if (o->dweight || o->dbias)
        pool_run(pool, tiles_of(o->dim, TOTAL_COLUMNS), norm_total_tile, &job);
}
