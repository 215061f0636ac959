/* measure_layer.c - a decoder layer, forward and backward at each save level, for one unit.
 *
 * Every round runs all of it, each time with another of several sets of weights and saved tensors, as many as a model has
 * layers or as fill 128 MiB: a layer whose weights are in the cache would be too fast. The levels of backward differ by
 * what is computed again, which are parts of forward.
 *
 * Where a whole unit takes too long for all that, a cut one (fewer sequences, then shorter ones) is run at all levels, and
 * as large a unit as time and memory allow only forward and backward with everything saved:
 *
 *   recomputed(unit) = recomputed(cut) / forward(cut) * forward(unit)      of like work, so that what few rows cost
 *                                                                          more per row falls out
 *
 * Attention grows with the square of the length. Where sequences are shortened it is measured alone (measure_attention.c),
 * taken out before scaling and put back as it is at the full length.
 */
#include "profile/measure_parts.h"

#include <string.h>

enum { SETS = 8, DATA_ARRAYS = 4 };

typedef struct layer_bench {
    const model *model;
    step_shape shape;
    int block, sets_n;
    bool backwards; /* else there is no memory for it */
    layer_layout layouts[SAVE_LEVELS];
    block_weights w[SETS];
    char *saved[SETS];
    char *workspace, *out, *dx, *gradient;
    float *accumulators;
    unit_data data;
    samples forward[SAVE_LEVELS], backward[SAVE_LEVELS];
} layer_bench;

/* ---- memory ---- */

static uint64_t stream_bytes(const layer_bench *y)
{
    return (uint64_t)(y->shape.unit_rows * y->model->config.hidden) * dtype_bytes(y->shape.type);
}

static uint64_t workspace_bytes(const layer_bench *y)
{
    uint64_t most = 0;
    for (int l = 0; l < SAVE_LEVELS; l++) {
        const layer_layout *k = &y->layouts[l];
        most = k->forward_workspace > most ? k->forward_workspace : most;
        most = k->backward_workspace > most ? k->backward_workspace : most;
    }
    return most;
}

static void layout(area *a, void *arg)
{
    layer_bench *y = arg;
    for (int i = 0; i < y->sets_n; i++) {
        area_weights(a, &y->shape, y->block, &y->w[i], NULL);
        y->saved[i] = area_take(a, y->layouts[SAVE_ALL].saved_bytes, PATTERN_VALUES);
    }
    y->workspace = area_take(a, workspace_bytes(y), PATTERN_NONE);
    y->out = area_take(a, stream_bytes(y), PATTERN_NONE);
    unit_data_take(a, &y->shape, 1, &y->data);
    unit_stream_take(a, y->model, &y->shape, &y->data.unit);
    if (!y->backwards)
        return;
    y->dx = area_take(a, stream_bytes(y), PATTERN_GRADIENTS);
    y->gradient = area_take(a, stream_bytes(y), PATTERN_GRADIENTS);
    y->accumulators = area_take(a, (uint64_t)accumulator_elements(y->model, y->block) * sizeof(float), PATTERN_SMALL);
}

/* Sizes for `rows` rows of a unit, and as many sets as the budget allows. */
static void resize(layer_bench *y, bench *b, int64_t rows)
{
    const uint64_t enough = 128u << 20;
    y->shape = shape_cut(b->r->shape, rows);
    for (int l = 0; l < SAVE_LEVELS; l++)
        layer_layout_init(&y->layouts[l], y->model, &y->shape, l);
    y->sets_n = 1;
    uint64_t one = area_bytes(b, layout, y);
    y->sets_n = 2;
    uint64_t set = area_bytes(b, layout, y) - one, budget = b->r->budget[TIER_DEVICE];
    int64_t n = (int64_t)(enough / set) + 1, layers = y->model->config.layers;
    n = n > SETS ? SETS : n;
    n = n > layers ? layers : n;
    while (n > 1 && one + (uint64_t)(n - 1) * set > budget)
        n--;
    y->sets_n = (int)n;
}

/* ---- runs ---- */

static block_context context_of(const layer_bench *y, queue *q) { return (block_context){y->model, &y->shape, q}; }

static void forward(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    block_context c = context_of(y, q);
    int set = turn % y->sets_n;
    layer_forward(&c, y->block, &y->layouts[level], &y->w[set], &y->data.unit, y->saved[set], y->workspace, y->out);
}

static void backward(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    block_context c = context_of(y, q);
    int set = turn % y->sets_n;
    layer_backward(&c, y->block, &y->layouts[level], &y->w[set], &y->data.unit, y->saved[set], y->workspace, y->dx, y->accumulators,
                   false);
}

/* Forward adds to the stream, backward to its gradient: without this they would grow round by round. */
static void restore(queue *q, void *arg, int level, int turn)
{
    layer_bench *y = arg;
    queue_submit(q, &(op){OP_COPY, .copy = {y->dx, y->gradient, stream_bytes(y)}});
    if (y->data.unit.stream)
        queue_submit(q, &(op){OP_ZERO, .copy = {.dst = y->data.unit.stream, .bytes = residual_bytes(y->model, &y->shape)}});
}

/* Level SAVE_INPUT needs nothing that forward leaves, so that any forward may come before it. */
static int rounds(layer_bench *y, queue *q, bool all_levels, int least, double seconds, pt_error *e)
{
    stage stages[3 * SAVE_LEVELS];
    int n = 0;
    for (int level = all_levels ? 0 : SAVE_ALL; level < SAVE_LEVELS; level++) {
        stages[n++] = (stage){restore, level, NULL};
        stages[n++] = (stage){forward, level, &y->forward[level]};
        stages[n++] = (stage){backward, level, &y->backward[level]};
    }
    return measure_rounds(q, stages, n, y, least, seconds, e);
}

static void forget(layer_bench *y)
{
    memset(y->forward, 0, sizeof y->forward);
    memset(y->backward, 0, sizeof y->backward);
}

/* Opens the memory for `rows`, warms up and measures: samples in y. */
static int run(layer_bench *y, bench *b, int64_t rows, bool all_levels, bool warm, int least, double seconds, pt_error *e)
{
    area a;
    resize(y, b, rows);
    forget(y);
    int failed = area_open(b, TIER_DEVICE, &a, "a layer", layout, y, e);
    if (failed)
        return failed;
    if (warm)
        failed = rounds(y, b->compute, all_levels, 1, 0, e);
    forget(y);
    if (!failed)
        failed = rounds(y, b->compute, all_levels, least, seconds, e);
    area_close(&a);
    return failed;
}

/* ---- sizes ---- */

static double flops(const layer_bench *y, const step_shape *s) { return model_layer_flops(y->model, y->block, s->unit_rows, s->seq_len); }

/* The most rows, up to `rows`, for which there is memory; shape_cut's own steps. */
static int64_t rows_that_fit(layer_bench *y, bench *b, int64_t rows)
{
    for (; rows > 1; rows /= 2) {
        resize(y, b, rows);
        if (area_bytes(b, layout, y) <= b->r->budget[TIER_DEVICE])
            break;
    }
    return rows;
}

/* ---- results ---- */

static double spread_of(const layer_bench *y, int level)
{
    double f = samples_spread(&y->forward[level]), b = samples_spread(&y->backward[level]);
    return f > b ? f : b;
}

/* All levels of the whole unit were run. */
static void take_direct(const layer_bench *y, layer_result *out)
{
    for (int l = 0; l < SAVE_LEVELS; l++) {
        out->cost.forward_ns[l] = samples_median(&y->forward[l]);
        out->cost.backward_ns[l] = samples_median(&y->backward[l]);
    }
    out->spread = spread_of(y, SAVE_ALL);
}

typedef struct part { double forward, backward[SAVE_LEVELS]; step_shape shape; attention_ns attention; } part;

static void take_part(const layer_bench *y, part *p)
{
    p->shape = y->shape;
    p->forward = samples_median(&y->forward[SAVE_ALL]);
    for (int l = 0; l < SAVE_LEVELS; l++)
        p->backward[l] = samples_median(&y->backward[l]);
}

static double at_least(double x, double least) { return x > least ? x : least; }

/* `cut`: all levels of few rows; `big`: forward, and backward with everything saved, of as many as was possible. */
static void take_scaled(const part *cut, const part *big, const step_shape *full, const attention_ns *attention, layer_result *out)
{
    double ratio = (double)full->unit_rows / (double)big->shape.unit_rows;
    double rest = at_least(big->forward - big->attention.forward, 0) * ratio;
    double backward = at_least(big->backward[SAVE_ALL] - big->attention.backward, 0) * ratio + attention->backward;
    double cut_rest = at_least(cut->forward - cut->attention.forward, 1);
    for (int l = 0; l < SAVE_LEVELS; l++) {
        double again = cut->backward[l] - cut->backward[SAVE_ALL], attends = l == SAVE_INPUT;
        again = at_least(again - attends * cut->attention.forward, 0) / cut_rest * rest;
        out->cost.forward_ns[l] = rest + attention->forward;
        out->cost.backward_ns[l] = backward + (l == SAVE_ALL ? 0 : again + attends * attention->forward);
    }
}

/* Attention alone at the lengths that were run, where they are not the whole one; in all else it scales with the rows. */
static int measure_attentions(bench *b, int block, part *cut, part *big, attention_ns *full, double seconds, pt_error *e)
{
    const step_shape *s = b->r->shape;
    *full = cut->attention = big->attention = (attention_ns){0};
    if (cut->shape.seq_len == s->seq_len)
        return 0;
    int failed = measure_attention(b, block, s, seconds / 2, full, e);
    if (!failed)
        failed = measure_attention(b, block, &cut->shape, seconds / 4, &cut->attention, e);
    if (!failed && big->shape.seq_len < s->seq_len)
        return measure_attention(b, block, &big->shape, seconds / 4, &big->attention, e);
    double of_unit = (double)big->shape.unit_rows / (double)s->unit_rows;
    big->attention = (attention_ns){full->forward * of_unit, full->backward * of_unit};
    return failed;
}

static int measure_scaled(layer_bench *y, bench *b, part *cut, double seconds, layer_result *out, pt_error *e)
{
    const step_shape *full = b->r->shape;
    int64_t rows = rows_that_fit(y, b, full->unit_rows);
    double rate = flops(y, &cut->shape) / (cut->forward + cut->backward[SAVE_ALL]), share = seconds * 0.8;
    step_shape s = shape_cut(full, rows);
    for (; s.unit_rows > cut->shape.unit_rows && flops(y, &s) / rate > share * 1e9; s = shape_cut(full, rows))
        rows /= 2;
    int failed = run(y, b, rows, false, false, 1, share, e);
    part big;
    attention_ns attention;
    take_part(y, &big);
    if (!failed)
        failed = measure_attentions(b, y->block, cut, &big, &attention, seconds - share, e);
    if (failed)
        return failed;
    take_scaled(cut, &big, full, &attention, out);
    out->spread = at_least(spread_of(y, SAVE_ALL), 0.01) + (big.shape.unit_rows < full->unit_rows ? 0.02 : 0);
    return 0;
}

int measure_layer(bench *b, int block, double seconds, layer_result *out, pt_error *e)
{
    const double probe_flops = 2e9; /* what even a slow machine does in half a second */
    static const double rounds_wanted = 3;
    layer_bench y = {.model = b->r->model, .block = block, .backwards = true};
    int64_t full = b->r->shape->unit_rows, rows = full;
    while (rows > 64 && model_layer_flops(y.model, block, rows, b->r->shape->seq_len) > probe_flops)
        rows /= 2;
    rows = rows_that_fit(&y, b, rows);
    int failed = run(&y, b, rows, true, true, rows < full ? 1 : 3, rows < full ? 0 : seconds, e);
    if (failed)
        return failed;
    part cut;
    take_part(&y, &cut);
    double round = 0, ratio = (double)full / (double)y.shape.unit_rows;
    for (int l = 0; l < SAVE_LEVELS; l++)
        round += (samples_median(&y.forward[l]) + samples_median(&y.backward[l])) * 1e-9;
    out->cut_rows = y.shape.unit_rows;
    if (y.shape.unit_rows == full) {
        take_direct(&y, out);
        return 0;
    }
    if (round * ratio * rounds_wanted <= seconds && rows_that_fit(&y, b, full) == full) {
        failed = run(&y, b, full, true, false, 1, seconds, e);
        take_direct(&y, out);
        return failed;
    }
    return measure_scaled(&y, b, &cut, seconds * 0.8, out, e);
}

int check_layer(bench *b, int64_t rows, double *ns, pt_error *e)
{
    layer_bench y = {.model = b->r->model, .block = 1};
    area a;
    resize(&y, b, rows);
    int failed = area_open(b, TIER_DEVICE, &a, "a layer", layout, &y, e);
    if (failed)
        return failed;
    failed = measure_least(b->compute, forward, &y, SAVE_ALL, ns, e);
    area_close(&a);
    return failed;
}
