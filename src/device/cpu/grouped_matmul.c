/* grouped_matmul.c - matmuls of experts, divided into rectangles of c for the threads of the pool.
 *
 * All rectangles of all experts are one list, so that threads are busy until its end even if one expert has most rows. A rectangle has the
 * kernels and the bits of matmul.c, but for one difference: with AMX its kernels compute any number of rows, because the number of an
 * expert's rows must not decide about a row's bits. Matrices are packed by each rectangle, because they are used for few rows.
 */
#include "device/cpu/grouped.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/ops.h"

#include <string.h>

/* TASKS: rectangles per thread, or more: then the last ones end at about the same time. */
enum { TASKS = 6, COLS_LEAST = 128 };

typedef struct grouped_job {
    const op_grouped_matmul *o;
    pool *pool;
    void (*kernel)(const op_matmul *o, gathered from, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch);
    int64_t rows_most, cols;             /* of a rectangle */
    bool few;                            /* experts with few rows have a kernel of their own */
    int64_t begin;                       /* the range's first row */
    int64_t tasks[EXPERTS_MOST + 1];     /* an expert's rectangles begin there */
} grouped_job;

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static bool is_sum(const op_grouped_matmul *o) { return o->of.layout == MATMUL_TN; }

static int64_t rows_of(const op_grouped_matmul *o, int64_t expert)
{
    const int64_t e = o->range.first + expert;
    return expert_begin(&o->range, e + 1) - expert_begin(&o->range, e);
}

/* Rows of c of the range's expert. Sums without rows are 0, which is work unless they accumulate. */
static int64_t height_of(const op_grouped_matmul *o, int64_t expert)
{
    const int64_t rows = rows_of(o, expert);
    return is_sum(o) ? (rows || !o->of.accumulate ? o->of.m : 0) : rows;
}

static void count_tasks(grouped_job *job)
{
    const op_grouped_matmul *o = job->o;
    const int64_t across = divide_up(o->of.n, job->cols);
    job->tasks[0] = 0;
    for (int64_t e = 0; e < o->range.experts; e++)
        job->tasks[e + 1] = job->tasks[e] + divide_up(height_of(o, e), job->rows_most) * across;
}

static int64_t expert_of(const grouped_job *job, int64_t task)
{
    int64_t low = 0, high = job->o->range.experts;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (job->tasks[middle] <= task)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static const void *advance(const void *base, pt_dtype type, int64_t elements)
{
    return base ? (const char *)base + elements * (int64_t)dtype_bytes(type) : NULL;
}

/* The lines of rows first .. first + rows, or an advanced *base if they are in place. */
static const int32_t *lines_of(const grouped_job *job, row_place place, int64_t first, int64_t rows, int64_t ld, const void **base,
                               int32_t lines[EXPERT_BLOCK_ROWS])
{
    const op_grouped_matmul *o = job->o;
    if (place != AT_TOKEN) {
        *base = advance(*base, o->of.type, place_of_row(place, NULL, 0, job->begin, first) * ld);
        return NULL;
    }
    for (int64_t i = 0; i < rows; i++)
        lines[i] = o->order[first + i] / (int32_t)o->k;
    return lines;
}

/* Rows first .. first + rows are the rectangle's; columns n0 .. n0 + cols. */
static void run_rows(const grouped_job *job, op_matmul *m, int64_t first, int64_t rows, int64_t n0, int64_t cols, void *scratch)
{
    const op_grouped_matmul *o = job->o;
    int32_t lines[EXPERT_BLOCK_ROWS];
    const int64_t c_row = place_of_row(o->c_at, NULL, 0, job->begin, first);
    const gathered from = {lines_of(job, o->a_at, first, rows, m->lda, &m->a, lines), NULL};
    m->m = rows;
    m->more_a = advance(m->more_a, m->type, c_row * m->more_lda);
    m->c = (void *)advance(m->c, m->out_type, c_row * m->ldc);
    if (!job->few || rows > FEW_ROWS) {
        job->kernel(m, from, 0, rows, n0, cols, scratch);
        return;
    }
    const int64_t bytes = m->k * (int64_t)dtype_bytes(m->type);
    for (int64_t i = 0; from.a && i < rows; i++)
        memcpy((char *)scratch + i * bytes, advance(m->a, m->type, lines[i] * m->lda), (size_t)bytes);
    if (from.a)
        m->a = scratch, m->lda = m->k;
    MATMUL_BEST(m, matmul_few)(m, n0, cols);
}

static void run_sum(const grouped_job *job, const op_matmul *of, int64_t first, int64_t end, int64_t m0, int64_t rows, int64_t n0,
                    int64_t cols, void *scratch)
{
    const op_grouped_matmul *o = job->o;
    int32_t a_lines[EXPERT_BLOCK_ROWS], b_lines[EXPERT_BLOCK_ROWS];
    for (int64_t i = 0; first == end && i < rows; i++)
        memset((float *)of->c + (m0 + i) * of->ldc + n0, 0, (size_t)cols * sizeof(float));
    for (op_matmul m = *of; first < end; first += EXPERT_BLOCK_ROWS, m.accumulate = true) {
        m.k = end - first < EXPERT_BLOCK_ROWS ? end - first : EXPERT_BLOCK_ROWS;
        m.a = of->a, m.b = of->b;
        gathered from;
        from.a = lines_of(job, o->a_at, first, m.k, m.lda, &m.a, a_lines);
        from.b = lines_of(job, o->b_at, first, m.k, m.ldb, &m.b, b_lines);
        job->kernel(&m, from, m0, rows, n0, cols, scratch);
    }
}

static void run_task(void *arg, int64_t task, int thread)
{
    const grouped_job *job = arg;
    const op_grouped_matmul *o = job->o;
    const int64_t e = expert_of(job, task), height = height_of(o, e), down = divide_up(height, job->rows_most), at = task - job->tasks[e];
    const int64_t m0 = at % down * job->rows_most, n0 = at / down * job->cols;
    const int64_t rows = height - m0 < job->rows_most ? height - m0 : job->rows_most;
    const int64_t cols = o->of.n - n0 < job->cols ? o->of.n - n0 : job->cols, first = expert_begin(&o->range, o->range.first + e);
    void *scratch = pool_scratch(job->pool, thread);
    op_matmul m = o->of;
    if (is_sum(o)) {
        m.c = (float *)m.c + e * o->c_step;
        run_sum(job, &m, first, first + rows_of(o, e), m0, rows, n0, cols, scratch);
        return;
    }
    m.b = advance(m.b, m.type, e * o->b_step);
    m.more_b = advance(m.more_b, m.type, e * o->more_b_step);
    m.bias = advance(m.bias, m.type, e * m.n);
    run_rows(job, &m, first + m0, rows, n0, cols, scratch);
}

static grouped_job job_of(const op_grouped_matmul *o, pool *pool)
{
    grouped_job job = {.o = o, .pool = pool, .begin = range_begin(&o->range)};
    const bool by_tiles = cpu_has_amx() && (is_sum(o) || o->of.k > 0);
    job.kernel = MATMUL_BEST(&o->of, matmul_gathered), job.rows_most = TILE_ROWS, job.cols = TILE_COLS;
#if defined(__x86_64__)
    if (by_tiles && o->of.type == PT_BF16)
        job.kernel = matmul_gathered_v4amx, job.rows_most = AMX_ROWS, job.cols = AMX_COLS;
    else if (by_tiles)
        job.kernel = matmul_gathered_v4amxsplit, job.rows_most = SPLIT_ROWS, job.cols = SPLIT_COLS;
#endif
    job.few = !by_tiles && o->of.layout == MATMUL_NT && o->of.k * FEW_ROWS * (int64_t)sizeof(float) <= POOL_SCRATCH_BYTES;
    return job;
}

/* Narrower rectangles, until all threads have several. */
static void narrow(grouped_job *job)
{
    const int64_t wanted = TASKS * pool_threads(job->pool);
    for (count_tasks(job); job->tasks[job->o->range.experts] < wanted && job->cols > COLS_LEAST; count_tasks(job))
        job->cols = divide_up(job->cols / 2, TILE_COL_STEP) * TILE_COL_STEP;
}

void cpu_grouped_matmul(pool *pool, const op_grouped_matmul *o)
{
    grouped_job job = job_of(o, pool);
    if (pool_threads(pool) > 1)
        narrow(&job);
    else
        count_tasks(&job);
    pool_run(pool, job.tasks[o->range.experts], run_task, &job);
}
