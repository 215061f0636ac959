/* measure_blocks.c - the costs of a model's blocks, and the time that each measurement gets.
 *
 *   one round = every kind of layer forward and backward, and one part of the head, once without its gradients and three times with them
 *
 * A fast machine repeats rounds until the medians settle. If one round takes seconds, all measurements together get the time of one (at
 * most 30 s), and the parts run fewer rows than a unit has (measure_layer.c, measure_ends.c).
 */
#include "measure/measure_parts.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct shares { double layer, head, other; } shares; /* seconds, of each */

/* Estimates the seconds of a block. With few rows, reading weights in both passes and adding to accumulators dominate. */
static double seconds_of(bench *b, int block, double flops, double flops_per_ns)
{
    const double bytes_per_ns = device_is_gpu(b->r->device) ? 300 : 10; /* a slow machine */
    const double weights = (double)accumulator_elements(b->r->model, block);
    return fmax(3 * flops / flops_per_ns, weights * (2 * (double)dtype_bytes(b->r->shape->type) + 8) / bytes_per_ns) * 1e-9;
}

static shares share_time(bench *b, const layer_kinds *kinds, double flops_per_ns)
{
    const step_shape *shape = b->r->shape;
    const model *m = b->r->model;
    const double passes = 10.0 / 3; /* the head: once forward, three times forward and backward, in units of the latter */
    double round = seconds_of(b, m->blocks_n - 1, model_head_flops(m, shape->head_rows), flops_per_ns) * passes;
    for (int k = 0; k < kinds->n; k++) {
        const int block = kinds->first[k] + 1;
        round += seconds_of(b, block, layer_flops(m, block - 1, shape), flops_per_ns);
    }
    const double usual = 1;
    double all = 3 * round;
    all = all < usual ? all : fmax(round, usual);
    all = all < 0.02 ? 0.02 : all > 30 ? 30 : all;
    return (shares){all * 0.6 / kinds->n, all * 0.3, all * 0.05};
}

static int measure_layers(bench *b, const shares *t, const layer_kinds *kinds, costs *costs, int64_t *cut_rows, pt_error *e)
{
    costs->spread = 0;
    costs->kinds_n = kinds->n;
    memcpy(costs->kind_of_layer, kinds->of_layer, sizeof costs->kind_of_layer);
    for (int k = 0; k < costs->kinds_n; k++) {
        layer_result l;
        bench_progress(b, "measuring layers", k, costs->kinds_n);
        int failed = measure_layer(b, kinds->first[k] + 1, t->layer, &l, e);
        if (failed)
            return failed;
        costs->layer[k] = l.cost;
        layer_cost_order(&costs->layer[k], COST_NINE_OF_TEN * l.spread);
        costs->spread = l.spread > costs->spread ? l.spread : costs->spread;
        if (k == 0)
            *cut_rows = l.cut_rows;
    }
    return 0;
}

/* The work of a step outside its schedule: summing losses and squares, copying a batch, and writing a line of metrics. */
static double step_work_ns(const bench *b)
{
    const double line = 30e3; /* a line of JSON into a file */
    const step_shape *shape = b->r->shape;
    size_t tokens = (size_t)(shape->batch * shape->seq_len), n = tokens * 4 + (size_t)sumsq_count(b->r->model);
    double *from = calloc(n, 2 * sizeof *from), *to = from + n;
    volatile double sum = 0;
    if (!from)
        return line;
    double start = clock_s();
    memcpy(to, from, n * sizeof *from);
    for (size_t i = 0; i < n; i++)
        sum += to[i];
    free(from);
    return line + (clock_s() - start) * 1e9;
}

int measure_blocks(bench *b, costs *costs, int64_t *cut_rows, pt_error *e)
{
    layer_kinds kinds;
    double rate;
    head_result head = {0};
    int failed = measure_rate(b, &rate, e);
    if (failed)
        return failed;
    model_layer_kinds(b->r->model, shape_length(b->r->shape), &kinds);
    shares t = share_time(b, &kinds, rate);
    failed = measure_layers(b, &t, &kinds, costs, cut_rows, e);
    bench_progress(b, "measuring the head", 0, 1);
    if (!failed)
        failed = measure_head(b, rate, t.head, &head, e);
    costs->head_ns = head.ns;
    costs->head_eval_ns = head.eval_ns;
    costs->head_cold_accumulators_ns = head.cold_accumulators_ns;
    if (!failed)
        failed = measure_embedding(b, t.other, &costs->embed_ns, e);
    if (!failed)
        failed = measure_embed_finish(b, t.other, &costs->embed_finish, e);
    if (!failed)
        failed = measure_whole(b, rate, 0.1, costs, e);
    costs->spread = head.spread > costs->spread ? head.spread : costs->spread;
    costs->step_ns = step_work_ns(b);
    return failed;
}

bool blocks_suffice(bench *b, uint64_t within_bytes)
{
    profile_request req = *b->r;
    bench before = {.r = &req};
    req.budget[TIER_DEVICE] = within_bytes;
    return within_bytes >= b->r->budget[TIER_DEVICE] ||
           (layer_suffices(b, &before) && head_suffices(b, &before) && embed_finish_suffices(b, &before));
}
