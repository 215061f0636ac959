/* measure_ends.c - the first and the last block: embedding, head, and the embedding's gradients. The head processes a unit in equal parts
 * of head_rows rows. One part is run, or fewer rows if it takes too long. Half as many rows take more than half as long, because weights
 * are read and gradients added to for any number of rows. */
#include "measure/measure_parts.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum { FEW_HEAD_ROWS = 32, SETS = 6 };

/* The number of sets of data that a step visits once. They are used in turn, and exceed every cache together, up to SETS. */
static int sets_of(const bench *b, uint64_t bytes_each)
{
    const uint64_t n = bytes_each ? (bench_beyond_cache(b) - 1) / bytes_each + 1 : 1;
    return n < SETS ? (int)n : SETS;
}

/* ---- a unit's data ---- */

void unit_data_take(area *a, const step_shape *shape, int64_t units, unit_data *out)
{
    enum { ARRAYS = 3 };
    const model_config *config = &a->b->r->model->config;
    int64_t n = units * shape->unit_rows;
    uint64_t bytes = (uint64_t)n * ARRAYS * sizeof(int32_t);
    char *at = area_take(a, bytes, PATTERN_NONE);
    const uint64_t rope_bytes = (uint64_t)model_rope_offset(config, config->ropes_n, shape->seq_len) * sizeof(float);
    float *rope = rope_bytes ? area_take(a, rope_bytes, PATTERN_NORM) : NULL;
    int32_t *ids = (int32_t *)at;
    *out = (unit_data){.ids = ids, .unit = {.dropout = 1, .ids = ids, .targets = ids + n, .positions = ids + 2 * n}};
    block_unit_ropes(&out->unit, config, rope, shape->seq_len);
    int32_t *values = at ? malloc(bytes) : NULL;
    if (!values)
        return;
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        rng_words(1, RNG_TEST, 100, (uint64_t)i, w);
        values[i] = (int32_t)(w[0] % (uint32_t)config->vocab);
        values[n + i] = (int32_t)(w[1] % (uint32_t)model_outputs(config));
        values[2 * n + i] = (int32_t)(i % shape->seq_len);
    }
    queue *q = a->b->compute;
    queue_submit(q, &(op){OP_COPY, .copy = {at, values, bytes}});
    queue_sync(q, queue_signal(q), NULL);
    free(values);
}

void unit_stream_take(area *a, const model *m, const step_shape *shape, block_unit *u)
{
    uint64_t bytes = residual_bytes(m, shape);
    carried_layout l;
    carried_layout_init(&l, m, shape);
    u->stream = bytes ? area_take(a, bytes, PATTERN_SMALL) : NULL;
    u->carried = l.bytes ? area_take(a, l.bytes, PATTERN_VALUES) : NULL;
    u->carried_gradient = l.gradient_bytes ? area_take(a, l.gradient_bytes, PATTERN_SMALL) : NULL;
}

typedef struct ends {
    const model *model;
    step_shape shape;
    const void **slices; /* of each set */
    int64_t slices_n;
    int sets;
    block_weights w[SETS];
    unit_data data;
    char *x, *dx, *workspace;
    float *accumulators[SETS], *loss;
} ends;

static uint64_t rows_bytes(const ends *y, int64_t rows)
{
    return (uint64_t)(rows * y->model->config.hidden) * dtype_bytes(y->shape.type);
}

static int ends_open(ends *y, bench *b, pt_error *e)
{
    *y = (ends){.model = b->r->model, .shape = *b->r->shape, .sets = 1};
    y->slices_n = 2 * (y->model->config.vocab / y->shape.slice_rows + 1); /* of two tables at most */
    y->slices = malloc((size_t)(SETS * y->slices_n) * sizeof *y->slices);
    return y->slices ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

/* ---- embedding ---- */

static void embedding_layout(area *a, void *arg)
{
    ends *y = arg;
    area_weights(a, &y->shape, 0, &y->w[0], y->slices);
    y->x = area_take(a, rows_bytes(y, y->shape.unit_rows), PATTERN_NONE);
    unit_data_take(a, &y->shape, 1, &y->data);
    unit_stream_take(a, y->model, &y->shape, &y->data.unit);
    const model_config *config = &y->model->config;
    if (config->input_width)
        y->data.unit.rows = area_take(a, (uint64_t)(y->shape.unit_rows * config->layers * config->input_width) * dtype_bytes(y->shape.type),
                                      PATTERN_WEIGHTS);
}

static void embed(queue *q, void *arg, int index, int turn)
{
    ends *y = arg;
    embedding_forward(&(block_context){y->model, &y->shape, q}, &y->w[0], &y->data.unit, y->x);
}

int measure_embedding(bench *b, double seconds, double *ns, pt_error *e)
{
    ends y;
    area a;
    samples s = {0};
    int failed = ends_open(&y, b, e);
    if (!failed)
        failed = area_open(b, TIER_DEVICE, &a, "the embedding", embedding_layout, &y, e);
    if (!failed) {
        failed = measure_stage(b->compute, embed, &y, 0, seconds, &s, e);
        area_close(&a);
    }
    free(y.slices);
    *ns = samples_median(&s);
    return failed;
}

/* ---- head ---- */

static void head_area(area *a, void *arg)
{
    ends *y = arg;
    int head = y->model->blocks_n - 1;
    head_layout l;
    head_layout_init(&l, y->model, &y->shape);
    for (int i = 0; i < y->sets; i++) {
        area_weights(a, &y->shape, head, &y->w[i], y->slices ? y->slices + i * y->slices_n : NULL);
        y->accumulators[i] = area_take(a, (uint64_t)accumulator_elements(y->model, head) * sizeof(float), PATTERN_SMALL);
    }
    y->x = area_take(a, rows_bytes(y, y->shape.unit_rows), PATTERN_VALUES);
    y->dx = model_first_trained(y->model) < head ? area_take(a, rows_bytes(y, y->shape.unit_rows), PATTERN_NONE) : NULL;
    y->loss = area_take(a, (uint64_t)y->shape.unit_rows * sizeof(float), PATTERN_NONE);
    y->workspace = area_take(a, l.bytes, PATTERN_NONE);
    unit_data_take(a, &y->shape, 1, &y->data);
    unit_stream_take(a, y->model, &y->shape, &y->data.unit);
}

/* FIRST: the first part of a step, which initializes the accumulators. MORE: later parts, which add to accumulators in the cache. COLD: a
 * part after other blocks ran, which adds to accumulators in memory. In FIRST and COLD, the weights come from memory as well. EVAL: the
 * loss alone. */
typedef enum head_pass { HEAD_FIRST, HEAD_MORE, HEAD_COLD, HEAD_EVAL, HEAD_PASSES } head_pass;

static void head(queue *q, void *arg, int pass, int turn)
{
    ends *y = arg;
    const int set = (int)(((int64_t)turn * 3 + (pass == HEAD_EVAL ? 2 : pass == HEAD_COLD)) % y->sets);
    head_forward_backward(&(block_context){y->model, &y->shape, q}, &y->w[set], &y->data.unit, y->x, y->workspace,
                          (head_output){.loss = y->loss}, pass == HEAD_EVAL ? NULL : y->dx,
                          pass == HEAD_EVAL ? NULL : y->accumulators[set], pass == HEAD_FIRST, 1e-4f);
}

/* Sizes for a part of `rows` rows, and as many sets as fit the budget, so that a set has left the cache before it is used again. */
static void size_head(ends *y, bench *b, int64_t rows)
{
    y->shape = shape_cut(b->r->shape, rows);
    y->shape.head_rows = y->shape.unit_rows;
    y->shape.compare = (preference_rule){PREFERENCE_NONE}; /* for preference pairs, predict/costs.h adds the reference pass */
    y->sets = 1;
    const uint64_t one = area_bytes(b, head_area, y);
    y->sets = 2;
    y->sets = sets_of(b, area_bytes(b, head_area, y) - one);
    while (y->sets > 1 && area_bytes(b, head_area, y) > b->r->budget[TIER_DEVICE])
        y->sets--;
}

typedef struct head_times { double ns[HEAD_PASSES], cold_accumulators_ns, spread; } head_times;

/* Times one part of the head with `rows` rows. */
static int run_head(ends *y, bench *b, int64_t rows, bool warm, int least, double seconds, head_times *out, pt_error *e)
{
    area a;
    samples times[HEAD_PASSES] = {0};
    const stage stages[] = {{head, HEAD_FIRST, &times[HEAD_FIRST]}, {head, HEAD_MORE, &times[HEAD_MORE]},
                            {head, HEAD_COLD, &times[HEAD_COLD]}, {head, HEAD_EVAL, &times[HEAD_EVAL]}};
    const int n = sizeof stages / sizeof *stages;
    size_head(y, b, rows);
    int failed = area_open(b, TIER_DEVICE, &a, "the loss head", head_area, y, e);
    if (failed)
        return failed;
    if (warm)
        failed = measure_rounds(b->compute, stages, n, y, 0, 1, 0, e);
    for (int i = 0; i < HEAD_PASSES; i++)
        times[i].n = 0;
    if (!failed)
        failed = measure_rounds(b->compute, stages, n, y, warm, least, seconds, e);
    area_close(&a);
    for (int i = 0; i < HEAD_PASSES; i++)
        out->ns[i] = samples_median(&times[i]);
    samples_tell(&times[HEAD_MORE], &out->spread);
    return failed;
}

/* Estimates the seconds of all passes with more rows: the time of few rows, and that of the additional FLOPs. */
static double passes_s(const ends *y, const head_times *few, double flops_per_ns, int64_t rows)
{
    const double times = HEAD_PASSES * 3 - 2; /* a pass with gradients has three times the FLOPs of the loss alone */
    double ns = times * model_head_flops(y->model, rows - y->shape.unit_rows) / flops_per_ns;
    for (int i = 0; i < HEAD_PASSES; i++)
        ns += few->ns[i];
    return ns * 1e-9;
}

/* Times a part of head_rows rows by a straight line through few rows and as many as time allows. The additional time of cold accumulators
 * does not depend on the rows, and is measured best with few. */
static int measure_part_of_head(ends *y, bench *b, double flops_per_ns, double seconds, head_times *out, pt_error *e)
{
    const double moment = 0.1; /* seconds; shorter work is repeated */
    const int64_t full = b->r->shape->head_rows, few = full < FEW_HEAD_ROWS ? full : FEW_HEAD_ROWS;
    int failed = run_head(y, b, few, device_is_gpu(b->r->device), TELLING + 1, few == full ? seconds : 0, out, e);
    out->cold_accumulators_ns = fmax(out->ns[HEAD_COLD] - out->ns[HEAD_MORE], 0);
    if (failed || few == full)
        return failed;
    const head_times first = *out;
    const double ran = (double)y->shape.unit_rows;
    int64_t rows = full;
    while (rows > 2 * few && passes_s(y, &first, flops_per_ns, rows) > fmax(seconds, moment))
        rows /= 2;
    const bool soon = passes_s(y, &first, flops_per_ns, rows) <= moment;
    failed = run_head(y, b, rows, soon, soon ? TELLING : 1, seconds, out, e);
    for (int i = 0; i < HEAD_PASSES; i++)
        out->ns[i] = ns_at_rows(ran, first.ns[i], (double)y->shape.unit_rows, out->ns[i], (double)full);
    return failed;
}

uint64_t head_memory(bench *b)
{
    ends y = {.model = b->r->model};
    size_head(&y, b, b->r->shape->head_rows);
    return area_bytes(b, head_area, &y);
}

bool head_suffices(bench *b, bench *before)
{
    ends now = {.model = b->r->model}, then = now;
    size_head(&now, b, b->r->shape->head_rows);
    size_head(&then, before, b->r->shape->head_rows);
    return then.sets >= now.sets;
}

int measure_head(bench *b, double flops_per_ns, double seconds, head_result *out, pt_error *e)
{
    ends y;
    head_times part = {0};
    const step_shape *shape = b->r->shape;
    int failed = ends_open(&y, b, e);
    if (!failed)
        failed = measure_part_of_head(&y, b, flops_per_ns, seconds, &part, e);
    free(y.slices);
    const double parts = (double)shape->unit_rows / (double)shape->head_rows, units = (double)shape->units_n;
    *out = (head_result){.ns = part.ns[HEAD_MORE] * parts + (part.ns[HEAD_FIRST] - part.ns[HEAD_MORE]) / units,
                         .cold_accumulators_ns = part.cold_accumulators_ns, .eval_ns = part.ns[HEAD_EVAL] * parts, .spread = part.spread};
    return failed;
}

/* ---- the embedding's gradients ---- */

typedef struct embed_finish {
    const model *model;
    const step_shape *shape;
    int64_t rows;  /* of the table */
    int64_t units; /* with residual streams of their own; the others reuse these */
    int64_t most;  /* units of a round */
    int sets;
    unit_data data;
    char *dx, *gradient[SETS];
    float *acc, *tied[SETS];
    double *sumsq;
} embed_finish;

static uint64_t stream_bytes(const embed_finish *y)
{
    return (uint64_t)(y->shape->unit_rows * y->model->config.hidden) * dtype_bytes(y->shape->type);
}

static void embed_finish_layout(area *a, void *arg)
{
    embed_finish *y = arg;
    uint64_t cols = (uint64_t)y->model->config.hidden, rows = (uint64_t)y->rows;
    y->acc = area_take(a, (uint64_t)y->shape->slice_rows * cols * sizeof(float), PATTERN_NONE);
    for (int i = 0; i < y->sets; i++) {
        y->gradient[i] = area_take(a, rows * cols * dtype_bytes(y->shape->type), PATTERN_NONE);
        y->tied[i] = y->model->config.tied ? area_take(a, rows * cols * sizeof(float), PATTERN_SMALL) : NULL;
    }
    y->dx = area_take(a, (uint64_t)y->units * stream_bytes(y), PATTERN_GRADIENTS);
    y->sumsq = area_take(a, (rows / SUMSQ_ROWS + 1) * sizeof(double), PATTERN_NONE);
    unit_data_take(a, y->shape, y->most, &y->data);
}

/* Submits the same ops as run/tasks.c, for `rows` rows of the table and `units` units. */
static void finish_units(queue *q, embed_finish *y, int rows, int64_t units, int turn)
{
    const step_shape *shape = y->shape;
    int64_t cols = y->model->config.hidden;
    float *tied = y->tied[turn % y->sets];
    char *gradient = y->gradient[turn % y->sets];
    for (int64_t row0 = 0; row0 < rows; row0 += shape->slice_rows) {
        int64_t n = rows - row0 < shape->slice_rows ? rows - row0 : shape->slice_rows;
        for (int64_t unit = 0; unit < units; unit++)
            queue_submit(q, &(op){OP_EMBEDDING_BACKWARD, .embedding_backward = {
                .type = shape->type, .accumulate = unit > 0, .rows = shape->unit_rows, .cols = cols, .row0 = row0, .table_rows = n,
                .skip = y->model->config.padding, .ids = y->data.ids + unit * shape->unit_rows,
                .dy = y->dx + (uint64_t)(unit % y->units) * stream_bytes(y), .acc = y->acc}});
        queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
            .type = shape->type, .rows = n, .cols = cols, .acc = y->acc, .acc2 = tied ? tied + row0 * cols : NULL,
            .g = gradient + (uint64_t)(row0 * cols) * dtype_bytes(shape->type), .sumsq = y->sumsq + row0 / SUMSQ_ROWS}});
    }
}

static void finish_all(queue *q, void *arg, int rows, int turn)
{
    embed_finish *y = arg;
    finish_units(q, y, rows, y->most, turn);
}

static void finish_half(queue *q, void *arg, int rows, int turn)
{
    embed_finish *y = arg;
    finish_units(q, y, rows, y->most / 2, turn);
}

/* Fills the cache with dirty lines, as the layers' gradients do in a step. */
static void fill_cache(queue *q, void *arg, int rows, int turn)
{
    embed_finish *y = arg;
    const uint64_t some = 32 << 20, bytes = (uint64_t)(y->rows * y->model->config.hidden) * dtype_bytes(y->shape->type);
    queue_submit(q, &(op){OP_ZERO, .copy = {.dst = y->gradient[(turn + y->sets - 1) % y->sets], .bytes = bytes < some ? bytes : some}});
}

static int measure_tables(bench *b, embed_finish *y, double seconds, cost_curve *out, pt_error *e)
{
    for (int64_t rows = 8 * SUMSQ_ROWS, points = 6; points > 0; rows *= 8, points--) {
        rows = rows < y->rows ? rows : y->rows;
        samples all = {0}, half = {0};
        const stage stages[] = {{fill_cache, 0, NULL}, {finish_all, (int)rows, &all},
                                {fill_cache, 0, NULL}, {finish_half, (int)rows, &half}};
        const int64_t more = y->shape->units_n - y->most;
        int failed = measure_stages(b->compute, stages, more ? 4 : 2, y, TELLING, seconds / 4, e);
        if (failed)
            return failed;
        double ns = samples_median(&all), added = more ? fmax(ns - samples_median(&half), 0) : 0; /* by the second half of the units */
        curve_add(out, (double)(rows * y->model->config.hidden), ns + added * (double)more / (double)(y->most - y->most / 2));
        if (rows == y->rows)
            break;
    }
    return 0;
}

/* The largest that fits the budget: fewer sets first, then fewer streams, then fewer rows. */
static embed_finish embed_finish_that_fits(bench *b)
{
    const int64_t most = 2 * RATES_LARGEST; /* elements */
    const uint64_t streams = 1u << 30;      /* bytes: far more than any cache holds */
    const int64_t tokens = 1 << 18;         /* of a round; beyond it the time is linear */
    embed_finish y = {.model = b->r->model, .shape = b->r->shape, .most = b->r->shape->units_n};
    const model_config *config = &y.model->config;
    while (y.most > 2 && y.most * y.shape->unit_rows > tokens)
        y.most = (y.most + 1) / 2;
    y.units = y.most;
    while (y.units > 1 && (uint64_t)y.units * stream_bytes(&y) > streams)
        y.units /= 2;
    y.rows = config->vocab * config->hidden < most ? config->vocab : most / config->hidden;
    y.sets = sets_of(b, (uint64_t)(y.rows * config->hidden) * (dtype_bytes(y.shape->type) + (config->tied ? sizeof(float) : 0)));
    while (y.sets > 1 && area_bytes(b, embed_finish_layout, &y) > b->r->budget[TIER_DEVICE])
        y.sets--;
    while (y.units > 1 && area_bytes(b, embed_finish_layout, &y) > b->r->budget[TIER_DEVICE])
        y.units /= 2;
    while (y.rows > 1 && area_bytes(b, embed_finish_layout, &y) > b->r->budget[TIER_DEVICE])
        y.rows /= 2;
    return y;
}

uint64_t embed_finish_memory(bench *b)
{
    embed_finish y = embed_finish_that_fits(b);
    return area_bytes(b, embed_finish_layout, &y);
}

bool embed_finish_suffices(bench *b, bench *before)
{
    embed_finish now = embed_finish_that_fits(b), then = embed_finish_that_fits(before);
    return then.units >= now.units && then.rows >= now.rows && then.sets >= now.sets;
}

int measure_embed_finish(bench *b, double seconds, cost_curve *out, pt_error *e)
{
    embed_finish y = embed_finish_that_fits(b);
    area a;
    out->n = 0;
    int failed = area_open(b, TIER_DEVICE, &a, "the embedding's gradients", embed_finish_layout, &y, e);
    if (failed)
        return failed;
    failed = measure_tables(b, &y, seconds, out, e);
    area_close(&a);
    return failed;
}
