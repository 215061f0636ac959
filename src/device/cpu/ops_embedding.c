/* ops_embedding.c - looks up rows of a table, and adds gradients to them.
 *
 * Backward assigns each row of the table to a tile, by the low bits of its id because frequent tokens have neighbouring ids. The tile adds
 * the gradients of the row's tokens in ascending order. Each tile reads all ids, which are small compared with the gradients.
 */
#include "device/cpu/kernels/embedding.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

enum { OWNERS = 32 };

typedef struct embedding_job { const op_embedding *op; int64_t rows; bool past; } embedding_job;

static void embedding_tile(void *arg, int64_t tile, int thread)
{
    const embedding_job *job = arg;
    KERNEL_BEST(embedding_rows)(job->op, tile * job->rows, tile_end(job->op->rows, job->rows, tile), job->past);
}

void cpu_embedding(pool *pool, const op_embedding *o)
{
    const int64_t bytes = o->rows * o->cols * (int64_t)(dtype_bytes(o->type) + (o->stream ? sizeof(float) : 0));
    embedding_job job = {o, rows_per_tile(o->cols), cpu_exceeds_cache(bytes)};
    pool_run(pool, tiles_of(o->rows, job.rows), embedding_tile, &job);
}

static void zero_tile(void *arg, int64_t tile, int thread)
{
    const op_embedding_backward *o = arg;
    int64_t begin = tile * TILE_ELEMENTS, end = tile_end(o->table_rows * o->cols, TILE_ELEMENTS, tile);
    memset(o->acc + begin, 0, (size_t)(end - begin) * sizeof *o->acc);
}

static void owner_tile(void *arg, int64_t owner, int thread)
{
    const op_embedding_backward *o = arg;
    size_t row_bytes = (size_t)o->cols * dtype_bytes(o->type);
    const float scale = op_factor(o->scale);
    for (int64_t r = 0; r < o->rows; r++) {
        int64_t id = o->ids[r] - o->row0;
        if (id < 0 || id >= o->table_rows || id % OWNERS != owner || o->ids[r] == o->skip)
            continue;
        const char *dy = (const char *)o->dy + (size_t)r * row_bytes;
        if (scale != 1)
            KERNEL_BEST(row_add_scaled)(o->type, scale, dy, o->acc + id * o->cols, o->cols);
        else
            KERNEL_BEST(rows_add)(o->type, dy, o->cols, 1, o->acc + id * o->cols, o->cols);
    }
}

void cpu_embedding_backward(pool *pool, const op_embedding_backward *o)
{
    if (!o->accumulate)
        pool_run(pool, tiles_of(o->table_rows * o->cols, TILE_ELEMENTS), zero_tile, (void *)o);
    pool_run(pool, OWNERS, owner_tile, (void *)o);
}
