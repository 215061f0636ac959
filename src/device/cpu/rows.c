#include "device/cpu/rows.h"

#include "device/cpu/kernels/double.h"
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_narrow.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/ops.h"

#include <string.h>

_Static_assert(SLICE_ROWS % AMX_ROW_STEP == 0, "a slice begins where a rectangle may");
_Static_assert((int)CALL_SCRATCH_BYTES <= (int)NARROW_SCRATCH_BYTES, "partial sums lie behind it");

/* ---- partial sums: [slice][value], in the scratch space of thread 0 behind what a matmul uses ---- */

enum { PARTIALS = (POOL_SCRATCH_BYTES - NARROW_SCRATCH_BYTES) / sizeof(float), SUM_PIECE = 2048 };

static int64_t slices_of(int64_t rows) { return (rows + SLICE_ROWS - 1) / SLICE_ROWS; }
static float *partials(pool *pool) { return (float *)((char *)pool_scratch(pool, 0) + NARROW_SCRATCH_BYTES); }
static int64_t values_of(const op_matmul *o) { return o->m * o->n; }

static bool is_sum(const op *o) { return o->kind == OP_MATMUL && o->matmul.layout == MATMUL_TN; }

static bool sums_rows(const op *o, int64_t rows)
{
    const op_matmul *m = &o->matmul;
    return is_sum(o) && matmul_is_narrow(m) && !m->bias && !m->residual && m->ldc == m->n && m->out_type == PT_F32 &&
           (m->k == rows || m->k == 2 * rows) && values_of(m) * slices_of(rows) <= PARTIALS;
}

/* Rows m0 .. m0 + m of c, over a slice. */
static void sum_slice(const op_matmul *o, int64_t all, int64_t slice, int64_t m0, int64_t m, float *c, void *scratch)
{
    const int64_t first = slice * SLICE_ROWS, left = all - first;
    op_matmul part = *o;
    part.k = left < SLICE_ROWS ? left : SLICE_ROWS;
    part.c = c;
    part.accumulate = false;
    for (int64_t begin = first; begin < o->k; begin += all, part.accumulate = true) {
        part.a = (const float *)o->a + begin * o->lda;
        part.b = (const float *)o->b + begin * o->ldb;
        cpu_matmul_rows(&part, m0, m, scratch);
    }
}

/* c (+)= partial sums; `step` values lie between those of two slices. */
static void add_partials(const op_matmul *o, const float *parts, int64_t step, int64_t slices, int64_t first, int64_t end)
{
    float *c = o->c;
    for (int64_t i = first; i < end && !o->accumulate; i++)
        c[i] = parts[i];
    for (int64_t s = !o->accumulate; s < slices; s++)
        for (int64_t i = first; i < end; i++)
            c[i] += parts[s * step + i];
}

/* ---- slices ---- */

typedef struct call_job { const op_call *op; pool *pool; } call_job;

static void call_tile(void *arg, int64_t tile, int thread)
{
    const call_job *job = arg;
    const int64_t first = tile * SLICE_ROWS, left = job->op->rows - first;
    job->op->fn(job->op->arg, first, first + (left < SLICE_ROWS ? left : SLICE_ROWS), pool_scratch(job->pool, thread));
}

void cpu_call(pool *pool, const op_call *o)
{
    call_job job = {o, pool};
    pool_run(pool, slices_of(o->rows), call_tile, &job);
}

static bool is_by_rows(const op *o, int64_t rows)
{
    switch (o->kind) {
    case OP_MATMUL: return o->matmul.layout != MATMUL_TN && o->matmul.m == rows && matmul_is_narrow(&o->matmul);
    case OP_JET: return o->jet.n % rows == 0;
    case OP_QUADRATIC: return o->quadratic.rows == rows;
    case OP_CALL: return o->call.rows == rows;
    case OP_COPY: return o->copy.bytes % (uint64_t)rows == 0;
    default: return false;
    }
}

static void run_slice(const op *o, int64_t all, int64_t first, int64_t rows, void *scratch)
{
    const int64_t each = o->kind == OP_JET ? o->jet.n / all : o->kind == OP_COPY ? (int64_t)o->copy.bytes / all : 0;
    switch (o->kind) {
    case OP_MATMUL: cpu_matmul_rows(&o->matmul, first, rows, scratch); break;
    case OP_JET: KERNEL_BEST(jet_part)(&o->jet, first * each, (first + rows) * each); break;
    case OP_QUADRATIC: KERNEL_BEST(quadratic_rows)(&o->quadratic, first, first + rows); break;
    case OP_CALL: o->call.fn(o->call.arg, first, first + rows, scratch); break;
    default:
        memcpy((char *)o->copy.dst + first * each, (const char *)o->copy.src + first * each, (size_t)(rows * each));
        break;
    }
}

typedef struct slices { const row_ops *ops; pool *pool; int64_t rows; int n; } slices;

static void slice(void *arg, int64_t tile, int thread)
{
    const slices *s = arg;
    const row_ops *r = s->ops;
    const int64_t first = tile * s->rows, left = r->rows - first, rows = left < s->rows ? left : s->rows;
    float *partial = partials(s->pool) + tile * r->sum_values;
    void *scratch = pool_scratch(s->pool, thread);
    for (int i = 0; i < s->n; i++) {
        const op *o = &r->ops[i];
        if (!is_sum(o)) {
            run_slice(o, r->rows, first, rows, scratch);
            continue;
        }
        sum_slice(&o->matmul, r->rows, tile, 0, o->matmul.m, partial, scratch);
        partial += values_of(&o->matmul);
    }
}

/* ---- a sum by itself: slices x parts of c's rows; then all sums' partial sums are added ---- */

static void lone_sum(void *arg, int64_t tile, int thread)
{
    const slices *s = arg;
    const op_matmul *o = &s->ops->ops[s->n].matmul;
    const int64_t count = slices_of(s->ops->rows), at = tile % count, m0 = tile / count * s->rows, left = o->m - m0;
    sum_slice(o, s->ops->rows, at, m0, left < s->rows ? left : s->rows, partials(s->pool) + at * values_of(o),
              pool_scratch(s->pool, thread));
}

static void add_piece(void *arg, int64_t tile, int thread)
{
    const slices *s = arg;
    const row_ops *r = s->ops;
    const float *parts = partials(s->pool);
    for (int i = 0; i < r->n; i++) {
        if (!is_sum(&r->ops[i]))
            continue;
        const op_matmul *o = &r->ops[i].matmul;
        const int64_t values = values_of(o), pieces = (values + SUM_PIECE - 1) / SUM_PIECE, end = (tile + 1) * SUM_PIECE;
        if (tile < pieces) {
            add_partials(o, parts, r->sum_values, slices_of(r->rows), tile * SUM_PIECE, end < values ? end : values);
            return;
        }
        tile -= pieces;
        parts += values;
    }
}

static int64_t pieces_of(const row_ops *r)
{
    int64_t pieces = 0;
    for (int i = 0; i < r->n; i++)
        pieces += is_sum(&r->ops[i]) ? (values_of(&r->ops[i].matmul) + SUM_PIECE - 1) / SUM_PIECE : 0;
    return pieces;
}

/* ---- running ---- */

static bool has_slices(int64_t rows, const pool *pool) { return slices_of(rows) >= pool_threads(pool); }

static int64_t row_step(void) { return cpu_has_amx() ? AMX_ROW_STEP : TILE_ROW_STEP; }

/* Each thread gets several slices, so that a delayed thread delays few rows. */
static int64_t few_rows(int64_t rows, int threads)
{
    const int64_t step = row_step(), each = (rows + 3 * threads - 1) / (3 * threads);
    return (each + step - 1) / step * step;
}

void rows_run(row_ops *r, pool *pool)
{
    if (!r->n)
        return;
    const bool lone = is_sum(&r->ops[r->n - 1]) && !has_slices(r->rows, pool);
    slices s = {r, pool, has_slices(r->rows, pool) ? SLICE_ROWS : few_rows(r->rows, pool_threads(pool)), lone ? r->n - 1 : r->n};
    pool_run(pool, (r->rows + s.rows - 1) / s.rows, slice, &s);
    if (lone) {
        s.rows = 2 * row_step();
        pool_run(pool, slices_of(r->rows) * ((r->ops[s.n].matmul.m + s.rows - 1) / s.rows), lone_sum, &s);
    }
    pool_run(pool, pieces_of(r), add_piece, &s);
    r->n = 0;
    r->sum_values = 0;
}

/* A sum that must wait until what is collected has run: it adds to the same c, or there is no room for its partial sums. */
static bool must_wait(const row_ops *r, const op_matmul *o)
{
    bool wait = (r->sum_values + values_of(o)) * slices_of(r->rows) > PARTIALS;
    for (int i = 0; i < r->n; i++)
        wait |= is_sum(&r->ops[i]) && r->ops[i].matmul.c == o->c;
    return wait;
}

bool rows_keep(row_ops *r, pool *pool, const op *o)
{
    if (o->kind == OP_ROWS) {
        if (o->rows.rows != r->rows && o->rows.rows)
            rows_run(r, pool);
        r->open = o->rows.rows > 0;
        r->rows = r->open ? o->rows.rows : r->rows;
        return true;
    }
    if (!r->open || !(is_by_rows(o, r->rows) || sums_rows(o, r->rows)))
        return false;
    if (r->n == ROW_OPS || (is_sum(o) && must_wait(r, &o->matmul)))
        rows_run(r, pool);
    r->ops[r->n++] = *o;
    if (is_sum(o)) {
        r->sum_values += values_of(&o->matmul);
        if (!has_slices(r->rows, pool))
            rows_run(r, pool);
    }
    return true;
}
