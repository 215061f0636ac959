/* measure_ends.c - the blocks at both ends: embedding, head, and the embedding's gradients. The head visits a unit in
 * parts of head_rows rows that are all alike; one such part is run, or fewer rows where that takes too long. */
#include "profile/measure_parts.h"

#include "base/rng.h"

#include <stdlib.h>

/* ---- sizes ---- */

step_shape shape_cut(const step_shape *s, int64_t rows)
{
    step_shape c = *s;
    if (rows >= s->unit_rows)
        return c;
    c.unit_seqs = rows / s->seq_len;
    if (c.unit_seqs < 1) {
        c.unit_seqs = 1;
        c.seq_len = rows < 1 ? 1 : rows;
    }
    c.unit_rows = c.unit_seqs * c.seq_len;
    c.head_rows = c.head_rows < c.unit_rows ? c.head_rows : c.unit_rows;
    return c;
}

/* ---- what a unit is about ---- */

void unit_data_take(area *a, const step_shape *s, int64_t units, unit_data *out)
{
    enum { ARRAYS = 4 };
    const model_config *c = &a->b->r->model->config;
    int64_t n = units * s->unit_rows;
    uint64_t bytes = (uint64_t)n * ARRAYS * sizeof(int32_t);
    char *at = area_take(a, bytes, PATTERN_NONE);
    float *rope = c->position == POSITION_ROTARY ? area_take(a, (uint64_t)(s->seq_len * c->head_dim) * sizeof(float), PATTERN_NORM) : NULL;
    int32_t *ids = (int32_t *)at;
    *out = (unit_data){.ids = ids, .unit = {.ids = ids, .targets = ids + n, .first = ids + 2 * n, .positions = ids + 3 * n, .rope = rope}};
    int32_t *values = at ? malloc(bytes) : NULL;
    if (!values)
        return;
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        rng_words(1, RNG_TEST, 100, (uint64_t)i, w);
        values[i] = (int32_t)(w[0] % (uint32_t)c->vocab);
        values[n + i] = (int32_t)(w[1] % (uint32_t)c->vocab);
        values[2 * n + i] = 0;
        values[3 * n + i] = (int32_t)(i % s->seq_len);
    }
    queue *q = a->b->compute;
    queue_submit(q, &(op){OP_COPY, .copy = {at, values, bytes}});
    queue_sync(q, queue_signal(q), NULL);
    free(values);
}

void unit_stream_take(area *a, const model *m, const step_shape *s, block_unit *u)
{
    uint64_t bytes = residual_bytes(m, s);
    u->stream = bytes ? area_take(a, bytes, PATTERN_SMALL) : NULL;
}

typedef struct ends {
    const model *model;
    step_shape shape;
    const void **slices;
    block_weights w;
    unit_data data;
    char *x, *dx, *workspace;
    float *accumulators, *loss;
    bool backward;
} ends;

static uint64_t rows_bytes(const ends *y, int64_t rows)
{
    return (uint64_t)(rows * y->model->config.hidden) * dtype_bytes(y->shape.type);
}

static int ends_open(ends *y, bench *b, pt_error *e)
{
    *y = (ends){.model = b->r->model, .shape = *b->r->shape};
    int64_t slices = y->model->config.vocab / y->shape.slice_rows + 1;
    y->slices = malloc((size_t)slices * sizeof *y->slices);
    return y->slices ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

/* ---- embedding ---- */

static void embedding_layout(area *a, void *arg)
{
    ends *y = arg;
    area_weights(a, &y->shape, 0, &y->w, y->slices);
    y->x = area_take(a, rows_bytes(y, y->shape.unit_rows), PATTERN_NONE);
    unit_data_take(a, &y->shape, 1, &y->data);
    unit_stream_take(a, y->model, &y->shape, &y->data.unit);
}

static void embed(queue *q, void *arg, int index, int turn)
{
    ends *y = arg;
    embedding_forward(&(block_context){y->model, &y->shape, q}, &y->w, &y->data.unit, y->x);
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
    area_weights(a, &y->shape, head, &y->w, y->slices);
    y->x = area_take(a, rows_bytes(y, y->shape.unit_rows), PATTERN_VALUES);
    y->dx = area_take(a, rows_bytes(y, y->shape.unit_rows), PATTERN_NONE);
    y->loss = area_take(a, (uint64_t)y->shape.unit_rows * sizeof(float), PATTERN_NONE);
    y->workspace = area_take(a, l.bytes, PATTERN_NONE);
    y->accumulators = y->backward ? area_take(a, (uint64_t)accumulator_elements(y->model, head) * sizeof(float), PATTERN_SMALL) : NULL;
    unit_data_take(a, &y->shape, 1, &y->data);
    unit_stream_take(a, y->model, &y->shape, &y->data.unit);
}

static void head(queue *q, void *arg, int backward, int turn)
{
    ends *y = arg;
    head_forward_backward(&(block_context){y->model, &y->shape, q}, &y->w, &y->data.unit, y->x, y->workspace, y->loss,
                          backward ? y->dx : NULL, y->accumulators, false, 1e-4f);
}

/* One part of the head with `rows` rows: the time of a whole unit. */
static int run_head(ends *y, bench *b, int64_t rows, bool warm, int least, double seconds, head_result *out, pt_error *e)
{
    area a;
    samples both = {0}, forward = {0};
    stage stages[] = {{head, 0, &forward}, {head, 1, &both}};
    y->shape = shape_cut(b->r->shape, rows);
    y->shape.head_rows = y->shape.unit_rows;
    int failed = area_open(b, TIER_DEVICE, &a, "the loss head", head_area, y, e);
    if (failed)
        return failed;
    int n = y->backward ? 2 : 1;
    if (warm)
        failed = measure_rounds(b->compute, stages, n, y, 1, 0, e);
    both.n = forward.n = 0;
    if (!failed)
        failed = measure_rounds(b->compute, stages, n, y, least, seconds, e);
    area_close(&a);
    double parts = (double)b->r->shape->unit_rows / (double)y->shape.unit_rows;
    out->ns = samples_median(&both) * parts;
    out->eval_ns = samples_median(&forward) * parts;
    samples_tell(&both, &out->spread);
    return failed;
}

static int measure_parts_of_head(ends *y, bench *b, double seconds, head_result *out, pt_error *e)
{
    const int64_t full = b->r->shape->head_rows;
    int64_t rows = full < 32 ? full : 32;
    int failed = run_head(y, b, rows, true, TELLING, 0, out, e);
    double row = (out->ns + out->eval_ns) / (double)b->r->shape->unit_rows * 1e-9;
    for (rows = full; rows > 32 && row * (double)rows > seconds;)
        rows /= 2;
    y->shape = *b->r->shape;
    return failed || (rows <= 32 && full > 32) ? failed : run_head(y, b, rows, rows < 64, 1, seconds, out, e);
}

int measure_head(bench *b, double seconds, head_result *out, pt_error *e)
{
    ends y;
    *out = (head_result){0};
    int failed = ends_open(&y, b, e);
    y.backward = true;
    if (!failed)
        failed = measure_parts_of_head(&y, b, seconds, out, e);
    free(y.slices);
    return failed;
}

/* ---- the embedding's gradients ---- */

typedef struct embed_finish {
    const model *model;
    const step_shape *shape;
    int64_t rows, units; /* of the table; of the batch whose streams are there */
    unit_data data;
    char *dx, *gradient;
    float *acc, *tied;
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
    y->gradient = area_take(a, rows * cols * dtype_bytes(y->shape->type), PATTERN_NONE);
    y->tied = y->model->config.tied ? area_take(a, rows * cols * sizeof(float), PATTERN_SMALL) : NULL;
    y->dx = area_take(a, (uint64_t)y->units * stream_bytes(y), PATTERN_GRADIENTS);
    y->sumsq = area_take(a, (rows / SUMSQ_ROWS + 1) * sizeof(double), PATTERN_NONE);
    unit_data_take(a, y->shape, y->shape->units_n, &y->data);
}

/* As tasks.c does it for `rows` rows of the table. */
static void finish_table(queue *q, void *arg, int rows, int turn)
{
    embed_finish *y = arg;
    const step_shape *s = y->shape;
    int64_t cols = y->model->config.hidden;
    for (int64_t row0 = 0; row0 < rows; row0 += s->slice_rows) {
        int64_t n = rows - row0 < s->slice_rows ? rows - row0 : s->slice_rows;
        for (int64_t unit = 0; unit < s->units_n; unit++)
            queue_submit(q, &(op){OP_EMBEDDING_BACKWARD, .embedding_backward = {
                .type = s->type, .accumulate = unit > 0, .rows = s->unit_rows, .cols = cols, .row0 = row0, .table_rows = n,
                .skip = y->model->config.padding, .ids = y->data.ids + unit * s->unit_rows,
                .dy = y->dx + (uint64_t)(unit % y->units) * stream_bytes(y), .acc = y->acc}});
        queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
            .type = s->type, .rows = n, .cols = cols, .acc = y->acc, .acc2 = y->tied ? y->tied + row0 * cols : NULL,
            .g = y->gradient + (uint64_t)(row0 * cols) * dtype_bytes(s->type), .sumsq = y->sumsq + row0 / SUMSQ_ROWS}});
    }
}

static int measure_tables(bench *b, embed_finish *y, double seconds, cost_curve *out, pt_error *e)
{
    for (int64_t rows = SUMSQ_ROWS, points = 6; points > 0; rows *= 8, points--) {
        rows = rows < y->rows ? rows : y->rows;
        samples s = {0};
        int failed = measure_stage(b->compute, finish_table, y, (int)rows, seconds / 4, &s, e);
        if (failed)
            return failed;
        curve_add(out, (double)(rows * y->model->config.hidden), samples_median(&s));
        if (rows == y->rows)
            break;
    }
    return 0;
}

/* The largest that fits: fewer streams first. */
static embed_finish embed_finish_that_fits(bench *b)
{
    const int64_t most = 16 << 20; /* elements */
    embed_finish y = {.model = b->r->model, .shape = b->r->shape, .units = b->r->shape->units_n};
    const model_config *c = &y.model->config;
    y.rows = c->vocab * c->hidden < most ? c->vocab : most / c->hidden;
    while (y.units > 1 && area_bytes(b, embed_finish_layout, &y) > b->r->budget[TIER_DEVICE])
        y.units /= 2;
    while (y.rows > 1 && area_bytes(b, embed_finish_layout, &y) > b->r->budget[TIER_DEVICE])
        y.rows /= 2;
    return y;
}

bool embed_finish_suffices(bench *b, bench *before)
{
    embed_finish now = embed_finish_that_fits(b), then = embed_finish_that_fits(before);
    return then.units >= now.units && then.rows >= now.rows;
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
