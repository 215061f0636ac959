#include "device/cpu/kernels/dropout.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

enum { ROWS_OF_TILE = 8 };

static void dropout_tile(void *arg, int64_t tile, int thread)
{
    const op_dropout *o = arg;
    KERNEL_BEST(dropout_rows)(o, tile * ROWS_OF_TILE, tile_end(o->rows, ROWS_OF_TILE, tile));
}

void cpu_dropout(pool *pool, const op_dropout *o) { pool_run(pool, tiles_of(o->rows, ROWS_OF_TILE), dropout_tile, (void *)o); }
