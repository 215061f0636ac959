/* ops_double.c - matmuls in fp64, activations with two derivatives, energies. A tile of a matmul is a block of rows; with few rows, all
 * rows of some of c's columns. Each tile packs its panels of b. */
#include "device/cpu/kernels/double.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

enum { BLOCK_ROWS = 64, PANELS_BYTES = POOL_SCRATCH_BYTES };

typedef struct product { const op_matmul *o; pool *pool; int64_t rows, down; op_matmul part; } product;

static void product_tile(void *arg, int64_t tile, int thread)
{
    const product *p = arg;
    const int64_t n0 = tile / p->down * DOUBLE_COLS, m0 = tile % p->down * p->rows;
    double *panel = pool_scratch(p->pool, thread);
    KERNEL_BEST(double_pack)(p->o, n0, panel);
    KERNEL_BEST(double_tile)(p->o, m0, tile_end(p->o->m, p->rows, tile % p->down), n0, panel);
}

/* If K is so long that a panel does not fit, parts of K are added in order. */
void cpu_matmul_double(pool *pool, const op_matmul *o)
{
    const int64_t most = PANELS_BYTES / (DOUBLE_COLS * (int64_t)sizeof(double)), across = tiles_of(o->n, DOUBLE_COLS);
    op_matmul part = *o;
    for (int64_t k = 0; k < o->k || k == 0; k += most) {
        part.k = o->k - k < most ? o->k - k : most;
        part.a = (const double *)o->a + k * (o->layout == MATMUL_TN ? o->lda : 1);
        part.b = (const double *)o->b + k * (o->layout == MATMUL_NT ? 1 : o->ldb);
        if (k)
            part.accumulate = true, part.bias = NULL, part.residual = NULL;
        product job = {.o = &part, .pool = pool, .rows = o->m};
        const int64_t threads = pool_threads(pool);
        while (job.rows > BLOCK_ROWS && across * tiles_of(o->m, job.rows) < 4 * threads)
            job.rows = (job.rows + 1) / 2;
        job.down = tiles_of(o->m, job.rows);
        pool_run(pool, across * job.down, product_tile, &job);
    }
}

static void jet_tile(void *arg, int64_t tile, int thread)
{
    const op_jet *o = arg;
    KERNEL_BEST(jet_part)(o, tile * TILE_ELEMENTS, tile_end(o->n, TILE_ELEMENTS, tile));
}

void cpu_jet(pool *pool, const op_jet *o) { pool_run(pool, tiles_of(o->n, TILE_ELEMENTS), jet_tile, (void *)o); }

static void quadratic_tile(void *arg, int64_t tile, int thread)
{
    const op_quadratic *o = arg;
    const int64_t rows = rows_per_tile(o->ld);
    KERNEL_BEST(quadratic_rows)(o, tile * rows, tile_end(o->rows, rows, tile));
}

/* The queue handles it (rows.h). */
void cpu_rows(pool *pool, const op_rows *o) {}

void cpu_quadratic(pool *pool, const op_quadratic *o)
{
    pool_run(pool, tiles_of(o->rows, rows_per_tile(o->ld)), quadratic_tile, (void *)o);
}
