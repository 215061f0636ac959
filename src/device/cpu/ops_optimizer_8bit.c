#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

_Static_assert(TILE_ELEMENTS % ADAMW8BIT_BLOCK == 0, "a block is one tile's");

typedef struct blocks_job { const op_adamw8bit *op; const moment_map *first, *second; } blocks_job;

static void blocks_tile(void *arg, int64_t tile, int thread)
{
    const blocks_job *job = arg;
    const int64_t begin = tile * TILE_ELEMENTS;
    KERNEL_BEST(adamw8bit_part)(job->op, job->first, job->second, begin, tile_end(job->op->adamw.n, TILE_ELEMENTS, tile) - begin);
}

void cpu_adamw8bit(pool *pool, const op_adamw8bit *o)
{
    blocks_job job = {o, moment_map_get(true), moment_map_get(false)};
    pool_run(pool, tiles_of(o->adamw.n, TILE_ELEMENTS), blocks_tile, &job);
}

typedef struct codes_job { const op_moment_codes *op; const moment_map *first, *second; } codes_job;

static void codes_tile(void *arg, int64_t tile, int thread)
{
    const codes_job *job = arg;
    const int64_t begin = tile * TILE_ELEMENTS;
    KERNEL_BEST(moment_codes_part)(job->op, job->first, job->second, begin, tile_end(job->op->n, TILE_ELEMENTS, tile) - begin);
}

void cpu_moment_codes(pool *pool, const op_moment_codes *o)
{
    codes_job job = {o, moment_map_get(true), moment_map_get(false)};
    pool_run(pool, tiles_of(o->n, TILE_ELEMENTS), codes_tile, &job);
}
