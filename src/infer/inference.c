#include "infer/inference.h"

#include "infer/load.h"
#include "layer/block.h"
#include "model/adapter.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

/* Byte offsets in the first arena. */
typedef struct inference_layout { uint64_t x, stream, workspace, normed, logits, ids, gains, bytes; } inference_layout;

struct inference {
    const model *model;
    device *device;
    queue *queue;
    int threads;
    step_shape shape;          /* one unit: the rows that are computed together */
    layer_set layers;          /* for INFERENCE_ROWS rows */
    inference_layout layout;
    uint64_t *param_at;        /* offset of each parameter in the first arena */
    block_weights *weights;    /* of each block */
    char *arena, *cache;
    char *mail;                /* host: ids, positions, logits */
    uint64_t cache_bytes, rope_at, state_at, state_bytes; /* in the cache: states of all layers; behind them, as they were at `marked` */
    int64_t context, length, marked;
};

/* ---- sizes ---- */

static uint64_t take(uint64_t *at, uint64_t bytes)
{
    uint64_t offset = *at;
    *at = align_up(*at + bytes, LINE);
    return offset;
}

static step_shape shape_of(const model *m, pt_dtype type, int64_t rows)
{
    step_shape s;
    step_shape_init(&s, m, type, 1, rows);
    s.slice_rows = m->config.vocab; /* the table is in one piece */
    s.whole_heads = rows;           /* the cache holds all heads */
    return s;
}

/* The offset of each parameter (`param_at` may be NULL); returns their bytes. */
static uint64_t place_params(const model *m, pt_dtype type, uint64_t *param_at)
{
    uint64_t at = 0;
    for (int i = 0; i < m->params_n; i++) {
        uint64_t offset = take(&at, load_param_bytes(&m->params[i], type));
        if (param_at)
            param_at[i] = offset;
    }
    return at;
}

/* The most rows that `matrix` has in any layer: widths may differ. */
static int64_t most_rows(const model *m, int matrix)
{
    int64_t most = 0;
    for (int b = 1; b < m->blocks_n - 1; b++) {
        const param *p = block_param(m, &m->blocks[b], adapter_base(matrix));
        most = p && p->rows > most ? p->rows : most;
    }
    return most;
}

/* Offset of the gains of DoRA's adapters for `matrix`; a layer's matrices follow each other (MODEL_LINEAR_MATRICES: their end). */
static uint64_t gains_at(const model *m, int matrix)
{
    uint64_t at = 0;
    for (int i = 0; i < matrix && model_has_magnitudes(m); i++)
        take(&at, 2 * (uint64_t)most_rows(m, i) * sizeof(float));
    return at;
}

static void layout_init(inference_layout *l, const model *m, const step_shape *s, const layer_set *layers)
{
    pt_dtype type = s->type;
    uint64_t at = place_params(m, type, NULL), saved = 0, workspace = 0;
    for (int kind = 0; kind < layers->kinds_n; kind++) {
        const layer_layout *layer = &layers->layout[kind][SAVE_INPUT];
        saved = layer->saved_bytes > saved ? layer->saved_bytes : saved;
        workspace = layer->forward_workspace > workspace ? layer->forward_workspace : workspace;
    }
    l->x = take(&at, saved);
    l->stream = take(&at, residual_bytes(m, s));
    l->workspace = take(&at, workspace);
    l->normed = take(&at, (uint64_t)m->config.hidden * dtype_bytes(type));
    l->logits = take(&at, (uint64_t)m->config.vocab * sizeof(float));
    l->ids = take(&at, 2 * INFERENCE_ROWS * sizeof(int32_t));
    l->gains = take(&at, gains_at(m, MODEL_LINEAR_MATRICES) * (uint64_t)m->config.layers);
    l->bytes = at;
}

/* Bytes of the caches of the first `n` layers. */
static uint64_t caches_bytes(const model *m, const step_shape *s, const layer_set *layers, int n, int64_t context)
{
    uint64_t bytes = 0;
    for (int l = 0; l < n; l++)
        bytes += layer_cache_bytes(&layer_set_layout(layers, l, SAVE_INPUT)->program, m, l, s) * (uint64_t)context;
    return bytes;
}

/* Bytes of the states of the first `n` layers. */
static uint64_t states_bytes(const model *m, const step_shape *s, const layer_set *layers, int n)
{
    uint64_t bytes = 0;
    for (int l = 0; l < n; l++) {
        const layer_program *p = &layer_set_layout(layers, l, SAVE_INPUT)->program;
        bytes += layer_state_bytes(p, m, l, s, p->stages_n);
    }
    return bytes;
}

typedef struct cache_places { uint64_t rope, state, state_bytes, bytes; } cache_places;

static cache_places cache_layout(const model *m, const step_shape *s, const layer_set *layers, int64_t context)
{
    cache_places p = {.state_bytes = states_bytes(m, s, layers, (int)m->config.layers)};
    take(&p.bytes, caches_bytes(m, s, layers, (int)m->config.layers, context));
    p.rope = take(&p.bytes, (uint64_t)model_rope_offset(&m->config, m->config.ropes_n, context) * sizeof(float));
    p.state = take(&p.bytes, 2 * p.state_bytes);
    return p;
}

static uint64_t mail_bytes(const model *m)
{
    return 2 * INFERENCE_ROWS * sizeof(int32_t) + (uint64_t)m->config.vocab * sizeof(float);
}

uint64_t inference_bytes(const model *m, pt_dtype type, const device *d, int64_t context)
{
    step_shape s = shape_of(m, type, INFERENCE_ROWS);
    layer_set layers;
    inference_layout l;
    if (layer_set_init(&layers, m, &s, &(pt_error){0}))
        return UINT64_MAX;
    layout_init(&l, m, &s, &layers);
    uint64_t later = cache_layout(m, &s, &layers, context).bytes, loading = load_bytes(m, type, d->info.threads);
    layer_set_free(&layers);
    if (device_is_gpu(d)) /* the rest is in RAM */
        return l.bytes + later;
    return l.bytes + mail_bytes(m) + (later > loading ? later : loading);
}

uint64_t inference_params_bytes(const model *m, pt_dtype type) { return place_params(m, type, NULL); }

uint64_t inference_weight_bytes(const inference *x)
{
    uint64_t bytes = 0;
    for (int i = 0; i < x->model->params_n; i++) {
        const param *p = &x->model->params[i];
        bool table = p->kind->use == USE_POSITIONS || (p->role == PARAM_TOKENS && !x->model->config.tied);
        bytes += table ? 0 : load_param_bytes(p, x->shape.type);
    }
    return bytes;
}

/* ---- life ---- */

static void find_weights(inference *x)
{
    for (int b = 0; b < x->model->blocks_n; b++) {
        block_weights *w = &x->weights[b];
        for (int role = 0; role < PARAM_ROLES; role++) {
            int index = x->model->blocks[b].param_of_role[role];
            w->param[role] = index < 0 ? NULL : x->arena + x->param_at[index];
        }
        w->slices = &w->param[w->param[PARAM_TOKENS] ? PARAM_TOKENS : PARAM_HEAD];
        w->slices_n = 1;
    }
    const uint64_t layer = gains_at(x->model, MODEL_LINEAR_MATRICES);
    for (int b = 1; b < x->model->blocks_n - 1 && model_has_magnitudes(x->model); b++)
        for (int i = 0; i < MODEL_LINEAR_MATRICES; i++)
            x->weights[b].gains[i] = (float *)(x->arena + x->layout.gains + layer * (uint64_t)(b - 1) + gains_at(x->model, i));
}

int inference_open(const model *m, device *d, pt_dtype type, int threads, inference **out, pt_error *e)
{
    *out = NULL;
    inference *x = calloc(1, sizeof *x);
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    *x = (inference){.model = m, .device = d, .threads = threads ? threads : d->info.threads, .shape = shape_of(m, type, INFERENCE_ROWS)};
    if (layer_set_init(&x->layers, m, &x->shape, e)) {
        free(x);
        return PT_FAILED;
    }
    layout_init(&x->layout, m, &x->shape, &x->layers);
    x->param_at = malloc((size_t)m->params_n * sizeof *x->param_at);
    x->weights = calloc((size_t)m->blocks_n, sizeof *x->weights);
    void *base;
    int failed = x->param_at && x->weights ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_DEVICE, x->layout.bytes, &base, e)))
        x->arena = base;
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, mail_bytes(m), &base, e)))
        x->mail = base;
    if (!failed)
        failed = d->table->queue_open(d, "generate", threads, &x->queue, e);
    if (failed) {
        inference_close(x);
        return failed;
    }
    place_params(m, type, x->param_at);
    find_weights(x);
    *out = x;
    return 0;
}

void inference_close(inference *x)
{
    if (!x)
        return;
    const device_table *t = x->device->table;
    if (x->queue)
        t->queue_close(x->queue);
    t->memory_close(x->device, MEMORY_DEVICE, x->arena, x->layout.bytes);
    t->memory_close(x->device, MEMORY_DEVICE, x->cache, x->cache_bytes);
    t->memory_close(x->device, MEMORY_HOST, x->mail, mail_bytes(x->model));
    layer_set_free(&x->layers);
    free(x->param_at);
    free(x->weights);
    free(x);
}

/* Once, because the weights do not change: computing the gains takes as long as reading the weights. */
static int measure_gains(inference *x, pt_error *e)
{
    const block_context c = {x->model, &x->shape, x->queue};
    for (int b = 1; b < x->model->blocks_n - 1 && model_has_magnitudes(x->model); b++)
        layer_gains(&c, b, layer_set_layout(&x->layers, b - 1, SAVE_INPUT), &x->weights[b], x->arena + x->layout.workspace);
    return queue_sync(x->queue, queue_signal(x->queue), e);
}

int inference_load(inference *x, const struct safetensors *st, const struct safetensors *adapter, uint64_t seed,
                   void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, pt_error *e)
{
    const load_job job = {.model = x->model, .st = st, .adapter = adapter, .seed = seed, .type = x->shape.type, .device = x->device,
                          .threads = x->threads, .base = x->arena, .param_at = x->param_at, .progress = progress, .arg = arg};
    int failed = load_weights(&job, e);
    return failed ? failed : measure_gains(x, e);
}

/* ---- a sequence ---- */

static int put_rope(void *arg, size_t at, const float *part, size_t bytes, pt_error *e)
{
    inference *x = arg;
    queue_submit(x->queue, &(op){OP_COPY, .copy = {x->cache + x->rope_at + at, part, bytes}});
    return queue_sync(x->queue, queue_signal(x->queue), e);
}

/* Copies the states to where they are kept, or back. */
static void copy_states(inference *x, bool back)
{
    char *now = x->cache + x->state_at, *kept = now + x->state_bytes;
    queue_submit(x->queue, &(op){OP_COPY, .copy = {back ? now : kept, back ? kept : now, x->state_bytes}});
}

/* How many of the first `kept` rows can stay. Keys and values of later rows are dropped; a state cannot be cut back, but the one at the end
 * of the last prompt was kept. */
static int64_t length_kept(inference *x, int64_t kept)
{
    if (kept >= x->length)
        return x->length;
    if (!x->state_bytes)
        return kept;
    if (x->marked > kept)
        return 0;
    if (x->marked)
        copy_states(x, true);
    return x->marked;
}

int inference_begin(inference *x, int64_t context, int64_t *kept, pt_error *e)
{
    const device_table *t = x->device->table;
    void *base;
    const bool stays = context <= x->context;
    x->length = kept && stays ? length_kept(x, *kept) : 0;
    x->marked = x->length ? x->marked : 0;
    if (kept)
        *kept = x->length;
    if (stays)
        return 0;
    t->memory_close(x->device, MEMORY_DEVICE, x->cache, x->cache_bytes);
    x->cache = NULL;
    x->context = 0;
    const cache_places p = cache_layout(x->model, &x->shape, &x->layers, context);
    x->cache_bytes = p.bytes, x->rope_at = p.rope, x->state_at = p.state, x->state_bytes = p.state_bytes, x->marked = 0;
    int failed = t->memory_open(x->device, MEMORY_DEVICE, x->cache_bytes, &base, e);
    if (failed)
        return failed;
    x->cache = base;
    x->context = context;
    failed = model_rope_send(&x->model->config, context, put_rope, x, e);
    if (failed)
        x->context = 0;
    return failed;
}

/* Copies ids and positions of n rows to the device. */
static void submit_input(inference *x, const int32_t *ids, int64_t n)
{
    int32_t *mail = (int32_t *)x->mail;
    memcpy(mail, ids, (size_t)n * sizeof *mail);
    for (int64_t i = 0; i < n; i++)
        mail[n + i] = (int32_t)(x->length + i);
    queue_submit(x->queue, &(op){OP_COPY, .copy = {x->arena + x->layout.ids, mail, (size_t)(2 * n) * sizeof *mail}});
}

/* Copies the logits of row `row` of x to the host. */
static void submit_head(inference *x, int64_t row)
{
    const model_config *m = &x->model->config;
    const block_context c = {x->model, &x->shape, x->queue};
    char *logits = x->arena + x->layout.logits, *rows = x->arena + x->layout.x;
    head_logits(&c, &x->weights[x->model->blocks_n - 1], rows + (size_t)(row * m->hidden) * dtype_bytes(x->shape.type),
                x->arena + x->layout.normed, (float *)logits);
    queue_submit(x->queue, &(op){OP_COPY, .copy = {x->mail + 2 * INFERENCE_ROWS * sizeof(int32_t), logits,
                                                   (size_t)m->vocab * sizeof(float)}});
}

/* The logits that submit_head copied. */
static float *mailed_logits(const inference *x) { return (float *)(x->mail + 2 * INFERENCE_ROWS * sizeof(int32_t)); }

/* The states of the rows are in x afterwards. */
static int feed_rows(inference *x, const int32_t *ids, int64_t n, bool last, pt_error *e)
{
    const int32_t *device_ids = (const int32_t *)(x->arena + x->layout.ids);
    const block_context c = {x->model, &x->shape, x->queue};
    char *rows = x->arena + x->layout.x;
    uint64_t cache_at = 0, state_at = x->state_at;
    block_unit u = {.ids = device_ids, .positions = device_ids + n,
                    .stream = x->shape.type == PT_F32 ? NULL : (float *)(x->arena + x->layout.stream)};
    block_unit_ropes(&u, &x->model->config, (const float *)(x->cache + x->rope_at), x->context);
    x->shape.seq_len = x->shape.unit_rows = n;
    submit_input(x, ids, n);
    embedding_forward(&c, &x->weights[0], &u, rows);
    for (int b = 1; b < x->model->blocks_n - 1; b++) {
        const layer_layout *layer = layer_set_layout(&x->layers, b - 1, SAVE_INPUT);
        block_cache cache = {x->cache + cache_at, x->cache + state_at, x->length};
        u.cache = &cache;
        layer_forward(&c, b, layer, &x->weights[b], &u, rows, x->arena + x->layout.workspace, rows);
        cache_at += layer_cache_bytes(&layer->program, x->model, b - 1, &x->shape) * (uint64_t)x->context;
        state_at += layer_state_bytes(&layer->program, x->model, b - 1, &x->shape, layer->program.stages_n);
    }
    if (last)
        submit_head(x, n - 1);
    x->length += n;
    return queue_sync(x->queue, queue_signal(x->queue), e);
}

int inference_feed(inference *x, const int32_t *ids, int64_t n, const float **logits, pt_error *e)
{
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += INFERENCE_ROWS) {
        int64_t rows = n - done < INFERENCE_ROWS ? n - done : INFERENCE_ROWS;
        failed = feed_rows(x, ids + done, rows, done + rows == n, e);
    }
    if (!failed && n > 1 && x->state_bytes) { /* the end of a prompt */
        copy_states(x, false);
        x->marked = x->length;
    }
    float *of_last = mailed_logits(x);
    if (!failed && n)
        head_finish_logits(&x->model->config, of_last);
    *logits = of_last;
    return failed;
}

static int rows_logits(inference *x, int64_t n, float *out, pt_error *e)
{
    const int64_t vocab = x->model->config.vocab;
    int failed = 0;
    for (int64_t i = 0; i < n && !failed; i++) {
        submit_head(x, i);
        failed = queue_sync(x->queue, queue_signal(x->queue), e);
        if (!failed)
            head_finish_logits(&x->model->config, mailed_logits(x));
        memcpy(out + i * vocab, mailed_logits(x), (size_t)vocab * sizeof *out);
    }
    return failed;
}

int inference_feed_all(inference *x, const int32_t *ids, int64_t n, float *all, pt_error *e)
{
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += INFERENCE_ROWS) {
        const int64_t rows = n - done < INFERENCE_ROWS ? n - done : INFERENCE_ROWS;
        failed = feed_rows(x, ids + done, rows, false, e);
        if (!failed)
            failed = rows_logits(x, rows, all + done * x->model->config.vocab, e);
    }
    return failed;
}
