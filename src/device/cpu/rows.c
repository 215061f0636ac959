#include "device/cpu/rows.h"

#include "device/cpu/kernels/double.h"
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_narrow.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/ops.h"

#include <string.h>

enum { SLICE_ROWS = 128 };

static bool is_by_rows(const op *o, int64_t rows)
{
    switch (o->kind) {
    case OP_MATMUL: return o->matmul.layout != MATMUL_TN && o->matmul.m == rows && matmul_is_narrow(&o->matmul);
    case OP_JET: return o->jet.n % rows == 0;
    case OP_QUADRATIC: return o->quadratic.rows == rows;
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
    default:
        memcpy((char *)o->copy.dst + first * each, (const char *)o->copy.src + first * each, (size_t)(rows * each));
        break;
    }
}

typedef struct slices { const row_ops *ops; pool *pool; int64_t rows; } slices;

static void slice(void *arg, int64_t tile, int thread)
{
    const slices *s = arg;
    const int64_t first = tile * s->rows, left = s->ops->rows - first, rows = left < s->rows ? left : s->rows;
    for (int i = 0; i < s->ops->n; i++)
        run_slice(&s->ops->ops[i], s->ops->rows, first, rows, pool_scratch(s->pool, thread));
}

/* Rows of a slice: a multiple of where a rectangle may start. Each thread gets several slices, so that a delayed thread delays few rows. */
static int64_t slice_rows(int64_t rows, int threads)
{
    const int64_t step = cpu_has_amx() ? AMX_ROW_STEP : TILE_ROW_STEP, each = (rows + 3 * threads - 1) / (3 * threads);
    return ((each < SLICE_ROWS ? each : SLICE_ROWS) + step - 1) / step * step;
}

void rows_run(row_ops *r, pool *p)
{
    if (!r->n)
        return;
    slices s = {r, p, slice_rows(r->rows, pool_threads(p))};
    pool_run(p, (r->rows + s.rows - 1) / s.rows, slice, &s);
    r->n = 0;
}

bool rows_keep(row_ops *r, pool *p, const op *o)
{
    if (o->kind == OP_ROWS) {
        if (o->rows.rows != r->rows && o->rows.rows)
            rows_run(r, p);
        r->open = o->rows.rows > 0;
        r->rows = r->open ? o->rows.rows : r->rows;
        return true;
    }
    if (!r->open || !is_by_rows(o, r->rows))
        return false;
    if (r->n == ROW_OPS)
        rows_run(r, p);
    r->ops[r->n++] = *o;
    return true;
}
