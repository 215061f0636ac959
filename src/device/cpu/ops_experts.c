/* ops_experts.c - mixtures of experts beside their matmuls (grouped_matmul.c). */
#include "device/cpu/grouped.h"
#include "device/cpu/kernels/activation.h"
#include "device/cpu/kernels/grouped.h"
#include "device/cpu/kernels/route.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

#include <string.h>

/* ---- the choice of experts ---- */

enum { ROUTE_ROWS = 16 };

static void route_tile(void *arg, int64_t tile, int thread)
{
    const op_route *o = arg;
    KERNEL_BEST(route_rows)(o, tile * ROUTE_ROWS, tile_end(o->rows, ROUTE_ROWS, tile));
}

void cpu_route(pool *pool, const op_route *o) { pool_run(pool, tiles_of(o->rows, ROUTE_ROWS), route_tile, (void *)o); }

static void route_backward_tile(void *arg, int64_t tile, int thread)
{
    const op_route_backward *o = arg;
    KERNEL_BEST(route_backward_rows)(o, tile * ROUTE_ROWS, tile_end(o->forward.rows, ROUTE_ROWS, tile));
}

void cpu_route_backward(pool *pool, const op_route_backward *o)
{
    pool_run(pool, tiles_of(o->forward.rows, ROUTE_ROWS), route_backward_tile, (void *)o);
}

/* A counting sort; a unit's slots take some hundredths of a millisecond. */
void cpu_dispatch(pool *pool, const op_dispatch *o)
{
    int32_t next[EXPERTS_MOST];
    memset(o->ends, 0, (size_t)o->experts * sizeof *o->ends);
    for (int64_t slot = 0; slot < o->slots; slot++)
        o->ends[o->ids[slot]]++;
    for (int64_t e = 0; e < o->experts; e++) {
        next[e] = e ? o->ends[e - 1] : 0;
        o->ends[e] += next[e];
    }
    for (int64_t slot = 0; slot < o->slots; slot++) {
        const int32_t row = next[o->ids[slot]]++;
        o->order[row] = (int32_t)slot;
        o->place[slot] = row;
    }
}

/* ---- activations ---- */

typedef struct rows_job { const void *op; int64_t begin, rows /* of the range */, each /* rows of a tile */; } rows_job;

static rows_job rows_job_of(const void *op, const expert_range *r, int64_t cols)
{
    return (rows_job){op, range_begin(r), range_rows(r), rows_per_tile(cols)};
}

static void run_rows(pool *pool, rows_job *job, pool_fn fn) { pool_run(pool, tiles_of(job->rows, job->each), fn, job); }

/* Row `row` of a matrix with `width` elements a row, where it lies. */
static void *row_at(const void *base, pt_dtype type, row_place place, const rows_job *job, int64_t row, int64_t width)
{
    return base ? (char *)base + place_of_row(place, NULL, 0, job->begin, row) * width * (int64_t)dtype_bytes(type) : NULL;
}

static void grouped_activation_tile(void *arg, int64_t tile, int thread)
{
    const rows_job *job = arg;
    const op_grouped_activation *o = job->op;
    const pt_dtype type = o->of.type;
    for (int64_t i = tile * job->each; i < tile_end(job->rows, job->each, tile); i++) {
        op_activation one = o->of;
        one.up = row_at(o->of.up, type, o->up_at, job, job->begin + i, (1 + o->of.gated) * o->of.cols);
        one.out = row_at(o->of.out, type, o->out_at, job, job->begin + i, o->of.cols);
        if (o->limit > 0)
            KERNEL_BEST(clamped_row)(o, one.up, one.out);
        else
            KERNEL_BEST(activation_part)(&one, 0, 0, o->of.cols, false);
    }
}

void cpu_grouped_activation(pool *pool, const op_grouped_activation *o)
{
    rows_job job = rows_job_of(o, &o->range, o->of.cols);
    run_rows(pool, &job, grouped_activation_tile);
}

static void grouped_activation_backward_tile(void *arg, int64_t tile, int thread)
{
    const rows_job *job = arg;
    const op_grouped_activation_backward *o = job->op;
    const pt_dtype type = o->of.type;
    const int64_t width = (1 + o->of.gated) * o->of.cols;
    for (int64_t i = tile * job->each; i < tile_end(job->rows, job->each, tile); i++) {
        const int64_t row = job->begin + i;
        op_activation_backward one = o->of;
        one.up = row_at(o->of.up, type, o->up_at, job, row, width);
        one.dout = row_at(o->of.dout, type, o->dout_at, job, row, o->of.cols);
        one.dup = row_at(o->of.dup, type, o->dup_at, job, row, width);
        one.out = row_at(o->of.out, type, o->dout_at, job, row, o->of.cols);
        if (!o->weights && !(o->limit > 0)) {
            KERNEL_BEST(activation_backward_part)(&one, 0, 0, o->of.cols, false);
            continue;
        }
        const float weight = o->weights ? o->weights[o->order[row]] : 1;
        const float dot = KERNEL_BEST(weighted_row)(o, one.up, one.dout, weight, one.dup, one.out);
        if (o->weights)
            o->dweights[o->order[row]] = dot;
    }
}

void cpu_grouped_activation_backward(pool *pool, const op_grouped_activation_backward *o)
{
    rows_job job = rows_job_of(o, &o->range, o->of.cols);
    run_rows(pool, &job, grouped_activation_backward_tile);
}

/* ---- sums of rows ---- */

typedef struct combine_job { const op_combine *op; int64_t rows, begin, end; } combine_job;

static void combine_tile(void *arg, int64_t tile, int thread)
{
    const combine_job *job = arg;
    KERNEL_BEST(combine_rows)(job->op, tile * job->rows, tile_end(job->op->rows, job->rows, tile), job->begin, job->end);
}

void cpu_combine(pool *pool, const op_combine *o)
{
    combine_job job = {o, rows_per_tile(o->cols), 0, -1};
    if (o->range.ends)
        job.begin = range_begin(&o->range), job.end = job.begin + range_rows(&o->range);
    pool_run(pool, tiles_of(o->rows, job.rows), combine_tile, &job);
}

enum { SUM_COLUMNS = 256 };

static const void *gradient_row(const op_grouped_bias_backward *o, int64_t begin, int64_t row)
{
    return (const char *)o->dy + place_of_row(o->dy_at, o->order, o->k, begin, row) * o->ld * (int64_t)dtype_bytes(o->type);
}

/* Some columns of an expert. */
static void bias_tile(void *arg, int64_t tile, int thread)
{
    const rows_job *job = arg;
    const op_grouped_bias_backward *o = job->op;
    const int64_t across = tiles_of(o->cols, SUM_COLUMNS), expert = tile / across, column = tile % across * SUM_COLUMNS;
    const int64_t n = tile_end(o->cols, SUM_COLUMNS, tile % across) - column, e = o->range.first + expert;
    const int64_t end = expert_begin(&o->range, e + 1);
    float *acc = o->acc + expert * o->cols + column;
    if (!o->accumulate)
        memset(acc, 0, (size_t)n * sizeof *acc);
    for (int64_t block = expert_begin(&o->range, e); block < end; block += EXPERT_BLOCK_ROWS) {
        float sum[SUM_COLUMNS] = {0};
        for (int64_t row = block; row < end && row < block + EXPERT_BLOCK_ROWS; row++) {
            const char *dy = (const char *)gradient_row(o, job->begin, row) + column * (int64_t)dtype_bytes(o->type);
            KERNEL_BEST(add_weighted)(o->type, o->weights ? o->weights[o->order[row]] : 1, dy, n, sum);
        }
        for (int64_t i = 0; i < n; i++)
            acc[i] += sum[i];
    }
}

static void dots_tile(void *arg, int64_t tile, int thread)
{
    const rows_job *job = arg;
    const op_grouped_bias_backward *o = job->op;
    const int64_t first = job->begin + tile * job->each, end = job->begin + tile_end(job->rows, job->each, tile);
    for (int64_t row = first, e = 0; row < end; row++) {
        while (row >= expert_begin(&o->range, o->range.first + e + 1))
            e++;
        const char *bias = (const char *)o->bias + e * o->cols * (int64_t)dtype_bytes(o->type);
        o->dots[o->order[row]] += KERNEL_BEST(dot_rows)(o->type, gradient_row(o, job->begin, row), bias, o->cols);
    }
}

void cpu_grouped_bias_backward(pool *pool, const op_grouped_bias_backward *o)
{
    rows_job job = rows_job_of(o, &o->range, o->cols);
    if (o->acc)
        pool_run(pool, o->range.experts * tiles_of(o->cols, SUM_COLUMNS), bias_tile, &job);
    if (o->bias)
        run_rows(pool, &job, dots_tile);
}
