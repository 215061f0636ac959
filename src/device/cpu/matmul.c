/* matmul.c - divides a matmul into rectangles of c for the threads of the pool.
 *
 * One thread computes a rectangle. The bits of an element do not depend on the rectangle that it is in (kernels/matmul_tile.c,
 * matmul_amx.c), so the division may depend on the number of threads. For many rows of bf16, or of fp32 with AMX, all threads first pack
 * columns of b, which the rectangles then share.
 *
 * The kernel depends on the processor and the op. Few rows are bound by reading b and have their own kernel; for few columns of fp32,
 * packing is not worthwhile; AMX has a kernel for bf16 and one for fp32. oneDNN is not faster at any of them (bench/results).
 */
#include "device/cpu/isa.h"
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/matmul_narrow.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/ops.h"

/* The kernels for a matmul, and their limits. */
typedef struct kernels {
    int64_t rows_most, cols_most; /* of a rectangle */
    int64_t row_step;             /* a rectangle starts at a multiple of it, and of TILE_COL_STEP */
    void (*tile)(const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch);
    /* With b already packed; NULL: not available. */
    void (*pack)(const op_matmul *o, const packed *b, int64_t j, int64_t cols);
    void (*packed)(const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t j, int64_t cols, void *scratch);
    int64_t packed_rows;          /* per call */
    int parts;                    /* bf16 per packed number */
} kernels;

_Static_assert((int)FEW_ROWS < (int)AMX_ROWS_LEAST, "a row's bits are those of one kernel from AMX_ROWS_LEAST rows on");

#if defined(__x86_64__)
static bool by_tiles(const op_matmul *o) { return cpu_has_amx() && o->m >= AMX_ROWS_LEAST && o->k > 0; }
#endif

static kernels kernels_of(const op_matmul *o)
{
#if defined(__x86_64__)
    if (by_tiles(o) && o->type == PT_BF16)
        return (kernels){AMX_ROWS, AMX_COLS, AMX_ROW_STEP, matmul_tile_v4amx, matmul_pack_v4amx, matmul_packed_v4amx, AMX_ROWS, AMX_PARTS};
    if (by_tiles(o))
        return (kernels){SPLIT_ROWS, SPLIT_COLS, AMX_ROW_STEP, matmul_tile_v4amxsplit, matmul_pack_v4amxsplit, matmul_packed_v4amxsplit,
                         SPLIT_ROWS, SPLIT_PARTS};
#endif
    if (matmul_is_narrow(o))
        return (kernels){TILE_ROWS, TILE_COLS, TILE_ROW_STEP, KERNEL_BEST(matmul_narrow), NULL, NULL, 0, 1};
    kernels k = {TILE_ROWS, TILE_COLS, TILE_ROW_STEP, MATMUL_BEST(o, matmul_tile), NULL, NULL, 0, 1};
    if (matmul_by_pairs(o))
        k.pack = BF16_COPY(matmul_pack), k.packed = BF16_COPY(matmul_packed), k.packed_rows = ROW_GROUP;
    return k;
}

typedef struct grid {
    int64_t rows, cols;        /* of a rectangle; those at the edges may be smaller */
    int64_t down, across;      /* number of rectangles */
} grid;

/* PACK_COST: packing a line of a or b takes as long as this many more columns or rows. A SMALL matmul ends before another thread would wake
 * up. */
enum { PACK_COST = 8, GRID_TRIES = 12, SMALL = 1 << 16 };

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static grid grid_of(const op_matmul *o, const kernels *k, int64_t down, int64_t across)
{
    grid g;
    g.rows = divide_up(divide_up(o->m, down), k->row_step) * k->row_step;
    g.cols = divide_up(divide_up(o->n, across), TILE_COL_STEP) * TILE_COL_STEP;
    g.down = divide_up(o->m, g.rows);
    g.across = divide_up(o->n, g.cols);
    return g;
}

/* The time of the thread with the most rectangles, in multiplications per k. */
static double grid_cost(grid g, int threads)
{
    double rounds = (double)divide_up(g.down * g.across, threads);
    return rounds * ((double)g.rows * (double)g.cols + PACK_COST * (double)(g.rows + g.cols));
}

static grid grid_choose(const op_matmul *o, const kernels *k, int threads)
{
    int64_t least_down = divide_up(o->m, k->rows_most), least_across = divide_up(o->n, k->cols_most);
    grid best = grid_of(o, k, least_down, least_across);
    if (threads == 1 || o->m * o->n * o->k < SMALL)
        return best;
    double best_cost = grid_cost(best, threads);
    for (int64_t i = 0; i < GRID_TRIES; i++)
        for (int64_t j = 0; j < GRID_TRIES; j++) {
            grid g = grid_of(o, k, least_down + i * divide_up(least_down, 4), least_across + j * divide_up(least_across, 4));
            double cost = grid_cost(g, threads);
            if (cost < best_cost) {
                best = g;
                best_cost = cost;
            }
        }
    return best;
}

typedef struct matmul_job {
    const op_matmul *o;
    pool *pool;
    const kernels *kernels;
    grid grid;
} matmul_job;

static void matmul_rectangle(void *arg, int64_t tile, int thread)
{
    const matmul_job *job = arg;
    const op_matmul *o = job->o;
    int64_t m0 = tile % job->grid.down * job->grid.rows, n0 = tile / job->grid.down * job->grid.cols;
    int64_t rows = o->m - m0 < job->grid.rows ? o->m - m0 : job->grid.rows;
    int64_t cols = o->n - n0 < job->grid.cols ? o->n - n0 : job->grid.cols;
    job->kernels->tile(o, m0, rows, n0, cols, pool_scratch(job->pool, thread));
}

/* ---- b packed once for all rows ------------------------------------------------------------- */

/* Each rectangle packs its own columns of b, so b is packed once per row of rectangles. Instead, all threads together can pack it once, as
 * far as their scratch has room. Pairs of bf16, whose matmul takes half the time and whose panels half the space, gain by that (3.5% of a
 * training step on two Zen 5 cores), AMX more; fp32 by fma loses (2.5%). If K is so long that too few columns fit (fp32 with AMX takes 6
 * bytes per element), rectangles pack for themselves. The bits are the same. */

enum { PACK_ROW_COST = 32 }; /* packing a line of a takes as long as this many more columns */

typedef struct packed_job {
    const op_matmul *o;
    pool *pool;
    const kernels *kernels;
    packed b;
    int64_t cols;         /* columns packed at a time */
    int64_t pack_cols;    /* columns per packing task */
    int64_t down, across; /* parts of c */
} packed_job;

static void packed_columns(void *arg, int64_t tile, int thread)
{
    const packed_job *job = arg;
    int64_t at = tile * job->pack_cols, left = job->cols - at;
    job->kernels->pack(job->o, &job->b, at, left < job->pack_cols ? left : job->pack_cols);
}

/* The start of part i of n, when `count` is divided in multiples of `step`. */
static int64_t part_at(int64_t count, int64_t step, int64_t i, int64_t n)
{
    int64_t at = divide_up(count, step) * i / n * step;
    return at < count ? at : count;
}

static void packed_part(void *arg, int64_t tile, int thread)
{
    const packed_job *job = arg;
    const op_matmul *o = job->o;
    int64_t i = tile % job->down, j = tile / job->down, step = job->kernels->row_step;
    int64_t m0 = part_at(o->m, step, i, job->down), m1 = part_at(o->m, step, i + 1, job->down);
    int64_t n0 = part_at(job->cols, TILE_COL_STEP, j, job->across), n1 = part_at(job->cols, TILE_COL_STEP, j + 1, job->across);
    job->kernels->packed(o, &job->b, m0, m1 - m0, n0, n1 - n0, pool_scratch(job->pool, thread));
}

/* Chooses the parts that minimize the time of the busiest thread. */
static void packed_cut(packed_job *job)
{
    int64_t threads = pool_threads(job->pool), step = job->kernels->row_step, best = INT64_MAX;
    int64_t least = divide_up(divide_up(job->o->m, step), job->kernels->packed_rows / step);
    for (int64_t down = least; down < least + GRID_TRIES; down++)
        for (int64_t across = 1; across <= GRID_TRIES; across++) {
            int64_t rows = divide_up(divide_up(job->o->m, step), down) * step;
            int64_t cols = divide_up(divide_up(job->cols, TILE_COL_STEP), across) * TILE_COL_STEP;
            int64_t cost = divide_up(down * across, threads) * rows * (cols + PACK_ROW_COST);
            if (cost < best)
                best = cost, job->down = down, job->across = across;
        }
}

/* False if it cannot be computed this way. */
static bool matmul_by_packing(pool *pool, const op_matmul *o, const kernels *k)
{
    if (!k->pack || o->m <= 2 * k->packed_rows || o->k == 0 || o->m * o->n * o->k < SMALL)
        return false;
    int64_t bytes = packed_group_bytes(o->k, k->parts) + packed_group_bytes(o->more_k, k->parts);
    int64_t threads = pool_threads(pool), all = divide_up(o->n, COL_GROUP);
    int64_t room = (POOL_SCRATCH_BYTES - PACKED_AT) / bytes * threads;
    if (room * COL_GROUP < (o->n < k->cols_most ? o->n : k->cols_most))
        return false;
    int64_t at_once = divide_up(all, divide_up(all, room)) * COL_GROUP;
    for (int64_t n0 = 0; n0 < o->n; n0 += at_once) {
        packed_job job = {o,         pool, k, {pool_scratch(pool, 0), n0, threads, bytes, 0}, o->n - n0 < at_once ? o->n - n0 : at_once,
                          COL_GROUP, 1,    1};
        if (o->layout == MATMUL_NT || job.cols < 2 * threads * COL_GROUP) /* wide parts only help if columns are adjacent */
            job.pack_cols = TILE_COL_STEP;
        packed_cut(&job);
        pool_run(pool, divide_up(job.cols, job.pack_cols), packed_columns, &job);
        pool_run(pool, job.down * job.across, packed_part, &job);
    }
    return true;
}

/* ---- few rows ------------------------------------------------------------------------------- */

/* A task has adjacent columns, because the first ones are read without prefetching. If there are enough, each thread gets several tasks, so
 * that none waits long for another's last. */
enum { FEW_STEP = 64, FEW_COLUMNS = 512, FEW_STRETCHES = 8 };

typedef struct few_job { op_matmul o; int64_t cols; } few_job;

static void matmul_columns(void *arg, int64_t tile, int thread)
{
    const few_job *job = arg;
    int64_t n0 = tile * job->cols, left = job->o.n - n0;
    MATMUL_BEST(&job->o, matmul_few)(&job->o, n0, left < job->cols ? left : job->cols);
}

static void matmul_few_rows(pool *pool, const op_matmul *o)
{
    const int64_t threads = pool_threads(pool), each = o->n / (threads * FEW_COLUMNS), most = each < FEW_STRETCHES ? each : FEW_STRETCHES;
    few_job job = {*o, divide_up(divide_up(o->n, threads * (most > 1 ? most : 1)), FEW_STEP) * FEW_STEP};
    pool_run(pool, divide_up(o->n, job.cols), matmul_columns, &job);
}

void cpu_matmul_rows(const op_matmul *o, int64_t m0, int64_t rows, void *scratch)
{
    const kernels k = kernels_of(o);
    for (int64_t m = m0; m < m0 + rows; m += k.rows_most)
        k.tile(o, m, m0 + rows - m < k.rows_most ? m0 + rows - m : k.rows_most, 0, o->n, scratch);
}

void cpu_matmul(pool *pool, const op_matmul *o)
{
    if (o->m == 0 || o->n == 0)
        return;
    if (o->type == PT_F64) {
        cpu_matmul_double(pool, o);
        return;
    }
    if (o->m <= FEW_ROWS && o->layout == MATMUL_NT) {
        matmul_few_rows(pool, o);
        return;
    }
    kernels k = kernels_of(o);
    if (matmul_by_packing(pool, o, &k))
        return;
    matmul_job job = {o, pool, &k, grid_choose(o, &k, pool_threads(pool))};
    pool_run(pool, job.grid.down * job.grid.across, matmul_rectangle, &job);
}
