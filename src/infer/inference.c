#include "infer/inference.h"

#include "infer/load.h"
#include "infer/streamed.h"
#include "layer/block.h"
#include "model/adapter.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

/* Byte offsets in the first arena. */
typedef struct inference_layout {
    uint64_t slots, x, stream, carried, rows, workspace, normed, logits, ids, gains, bytes;
} inference_layout;

struct inference {
    const model *model;
    device *device, *host;     /* host: where streamed weights are made */
    queue *queue;
    int threads;
    step_shape shape;          /* one unit: the rows that are computed together */
    int64_t rows;
    layer_set layers;          /* for so many rows */
    int streamed_n;            /* layers whose weights do not stay */
    streamed *streamed;        /* NULL: all stay */
    inference_layout layout;
    uint64_t *param_at;        /* offset of each parameter in the first arena */
    bool *stays;               /* of each parameter: its weights are there */
    block_weights *weights;    /* of each block */
    char *arena, *cache;
    char *mail;                /* host: ids, positions, logits */
    char *table;               /* host: the table of layers' inputs, then rows of it; NULL: none, or it is in the arena */
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

static bool is_streamed(const model *m, int n, int block)
{
    return n && block > 0 && block < m->blocks_n - 1 && stream_has(m, n, block - 1);
}

/* Sets wanted[] of the parameters of a block. */
static void want_block(const model *m, int block, bool yes, bool *wanted)
{
    for (int role = 0; role < PARAM_ROLES; role++)
        if (m->blocks[block].param_of_role[role] >= 0)
            wanted[m->blocks[block].param_of_role[role]] = yes;
}

static int64_t rows_of(const model *m, int streamed_n)
{
    return streamed_n && m->config.max_positions > INFERENCE_ROWS ? INFERENCE_ROWS_STREAMED : INFERENCE_ROWS;
}

/* The table of layers' inputs, if it is kept in host memory, beside a GPU with its own: of each token one row is read. Or NULL. */
static const param *host_table(const model *m, const device *d)
{
    return device_is_gpu(d) && !d->info.shares_ram ? block_param(m, &m->blocks[0], PARAM_LAYER_TOKENS) : NULL;
}

static uint64_t table_rows_bytes(const param *table, pt_dtype type, int64_t rows)
{
    return table ? (uint64_t)(rows * table->cols) * dtype_bytes(type) : 0;
}

uint64_t inference_host_bytes(const model *m, pt_dtype type, const device *d, int streamed)
{
    const param *table = host_table(m, d);
    return table ? table_rows_bytes(table, type, table->rows + rows_of(m, streamed)) : 0;
}

/* Sets stays[] of all parameters. */
static void find_staying(const model *m, const device *d, int streamed_n, bool *stays)
{
    memset(stays, true, (size_t)m->params_n);
    if (host_table(m, d))
        stays[host_table(m, d) - m->params] = false;
    for (int b = 0; b < m->blocks_n; b++)
        if (is_streamed(m, streamed_n, b))
            want_block(m, b, false, stays);
}

/* The offset of each parameter that stays; returns their bytes. Without `stays` all stay; `param_at` may be NULL. */
static uint64_t place_params(const model *m, pt_dtype type, const bool *stays, uint64_t *param_at)
{
    uint64_t at = 0;
    for (int i = 0; i < m->params_n; i++) {
        uint64_t offset = stays && !stays[i] ? 0 : take(&at, load_param_bytes(&m->params[i], type));
        if (param_at)
            param_at[i] = offset;
    }
    return at;
}

/* Bytes of the parameters that stay. */
static uint64_t staying_bytes(const model *m, pt_dtype type, const device *d, int streamed_n)
{
    const param *table = host_table(m, d);
    uint64_t bytes = place_params(m, type, NULL, NULL) - (table ? align_up(load_param_bytes(table, type), LINE) : 0);
    for (int b = 0; b < m->blocks_n; b++)
        for (int role = 0; role < PARAM_ROLES && is_streamed(m, streamed_n, b); role++) {
            const int i = m->blocks[b].param_of_role[role];
            bytes -= i < 0 ? 0 : align_up(load_param_bytes(&m->params[i], type), LINE);
        }
    return bytes;
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

static void layout_init(inference_layout *l, const model *m, const device *d, const step_shape *s, int streamed_n, const layer_set *layers)
{
    pt_dtype type = s->type;
    uint64_t at = staying_bytes(m, type, d, streamed_n), saved = 0, workspace = 0;
    at = align_up(at, streamed_n ? STREAM_ALIGN : LINE);
    l->slots = take(&at, stream_slot_bytes(m, type, streamed_n));
    for (int kind = 0; kind < layers->kinds_n; kind++) {
        const layer_layout *layer = &layers->layout[kind][SAVE_INPUT];
        saved = layer->saved_bytes > saved ? layer->saved_bytes : saved;
        workspace = layer->forward_workspace > workspace ? layer->forward_workspace : workspace;
    }
    l->x = take(&at, saved);
    l->stream = take(&at, residual_bytes(m, s));
    carried_layout carried;
    carried_layout_init(&carried, m, s);
    l->carried = take(&at, carried.bytes);
    l->rows = take(&at, table_rows_bytes(host_table(m, d), type, rows_of(m, streamed_n)));
    l->workspace = take(&at, workspace);
    l->normed = take(&at, (uint64_t)m->config.hidden * dtype_bytes(type));
    l->logits = take(&at, (uint64_t)m->config.vocab * sizeof(float));
    l->ids = take(&at, 2 * (uint64_t)rows_of(m, streamed_n) * sizeof(int32_t));
    l->gains = take(&at, gains_at(m, MODEL_LINEAR_MATRICES) * (uint64_t)m->config.layers);
    l->bytes = at;
}

/* Bytes of the caches of the first `n` layers. A layer that reads another's keys and values has none. */
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

static uint64_t mail_bytes(const model *m, int64_t rows)
{
    return 2 * (uint64_t)rows * sizeof(int32_t) + (uint64_t)m->config.vocab * sizeof(float);
}

uint64_t inference_bytes(const model *m, pt_dtype type, const device *d, int streamed, int64_t context)
{
    step_shape s = shape_of(m, type, rows_of(m, streamed));
    layer_set layers;
    inference_layout l;
    if (layer_set_init(&layers, m, &s, &(pt_error){0}))
        return UINT64_MAX;
    layout_init(&l, m, d, &s, streamed, &layers);
    uint64_t later = cache_layout(m, &s, &layers, context).bytes, loading = load_bytes(m, type, d->info.threads);
    layer_set_free(&layers);
    if (device_is_gpu(d)) /* the rest is in RAM */
        return l.bytes + later;
    return l.bytes + mail_bytes(m, rows_of(m, streamed)) + (later > loading ? later : loading);
}

int64_t inference_rows(const inference *x) { return x->rows; }

uint64_t inference_params_bytes(const model *m, pt_dtype type) { return place_params(m, type, NULL, NULL); }

uint64_t inference_weight_bytes(const inference *x)
{
    uint64_t bytes = 0;
    for (int i = 0; i < x->model->params_n; i++) {
        const param *p = &x->model->params[i];
        bool table = p->kind->use == USE_POSITIONS || p->role == PARAM_LAYER_TOKENS || (p->role == PARAM_TOKENS && !x->model->config.tied);
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
            w->param[role] = index < 0 || !x->stays[index] ? NULL : x->arena + x->param_at[index];
        }
        w->slices = &w->param[w->param[PARAM_TOKENS] ? PARAM_TOKENS : PARAM_HEAD];
        w->slices_n = 1;
        w->input_slices = &w->param[PARAM_LAYER_TOKENS];
        w->input_slices_n = w->param[PARAM_LAYER_TOKENS] && !x->table ? 1 : 0;
    }
    const uint64_t layer = gains_at(x->model, MODEL_LINEAR_MATRICES);
    for (int b = 1; b < x->model->blocks_n - 1 && model_has_magnitudes(x->model); b++)
        for (int i = 0; i < MODEL_LINEAR_MATRICES; i++)
            x->weights[b].gains[i] = (float *)(x->arena + x->layout.gains + layer * (uint64_t)(b - 1) + gains_at(x->model, i));
}

int inference_open(const model *m, device *d, pt_dtype type, int threads, int streamed, const stream_place *place, inference **out,
                   pt_error *e)
{
    *out = NULL;
    inference *x = calloc(1, sizeof *x);
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    *x = (inference){.model = m, .device = d, .threads = threads ? threads : d->info.threads, .rows = rows_of(m, streamed),
                     .host = place ? place->host : NULL, .streamed_n = streamed, .shape = shape_of(m, type, rows_of(m, streamed))};
    if (layer_set_init(&x->layers, m, &x->shape, e)) {
        free(x);
        return PT_FAILED;
    }
    layout_init(&x->layout, m, d, &x->shape, streamed, &x->layers);
    x->param_at = malloc((size_t)m->params_n * sizeof *x->param_at);
    x->weights = calloc((size_t)m->blocks_n, sizeof *x->weights);
    void *base;
    x->stays = malloc((size_t)m->params_n * sizeof *x->stays);
    int failed = x->param_at && x->weights && x->stays ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_DEVICE, x->layout.bytes, &base, e)))
        x->arena = base;
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, mail_bytes(m, x->rows), &base, e)))
        x->mail = base;
    const uint64_t table_bytes = inference_host_bytes(m, type, d, streamed);
    if (!failed && table_bytes && !(failed = d->table->memory_open(d, MEMORY_HOST, table_bytes, &base, e)))
        x->table = base;
    if (!failed)
        failed = d->table->queue_open(d, "generate", threads, &x->queue, e);
    if (!failed && streamed)
        failed = stream_open(m, d, type, streamed, place, x->arena + x->layout.slots, &x->streamed, e);
    if (failed) {
        inference_close(x);
        return failed;
    }
    find_staying(m, d, streamed, x->stays);
    place_params(m, type, x->stays, x->param_at);
    find_weights(x);
    *out = x;
    return 0;
}

void inference_close(inference *x)
{
    if (!x)
        return;
    const device_table *t = x->device->table;
    stream_close(x->streamed);
    if (x->queue)
        t->queue_close(x->queue);
    t->memory_close(x->device, MEMORY_DEVICE, x->arena, x->layout.bytes);
    t->memory_close(x->device, MEMORY_DEVICE, x->cache, x->cache_bytes);
    t->memory_close(x->device, MEMORY_HOST, x->mail, mail_bytes(x->model, x->rows));
    t->memory_close(x->device, MEMORY_HOST, x->table, inference_host_bytes(x->model, x->shape.type, x->device, x->streamed_n));
    layer_set_free(&x->layers);
    free(x->param_at);
    free(x->stays);
    free(x->weights);
    free(x);
}

/* The weights of a block where they are when x->queue comes to what follows; leave_block says that all of it was given to the queue. */
static block_weights enter_block(inference *x, int b)
{
    block_weights w = x->weights[b];
    if (!is_streamed(x->model, x->streamed_n, b))
        return w;
    const uint64_t *at;
    char *base = stream_next(x->streamed, x->queue, b - 1);
    stream_image(x->streamed, b - 1, &at);
    for (int role = 0; role < PARAM_ROLES; role++) {
        const int index = x->model->blocks[b].param_of_role[role];
        w.param[role] = index < 0 ? NULL : base + at[index];
    }
    return w;
}

static void leave_block(inference *x, int b)
{
    if (is_streamed(x->model, x->streamed_n, b))
        stream_done(x->streamed, x->queue);
}

/* Once, because the weights do not change: computing the gains takes as long as reading the weights. */
static int measure_gains(inference *x, pt_error *e)
{
    const block_context c = {x->model, &x->shape, x->queue};
    for (int b = 1; b < x->model->blocks_n - 1 && model_has_magnitudes(x->model); b++) {
        const block_weights w = enter_block(x, b);
        layer_gains(&c, b, layer_set_layout(&x->layers, b - 1, SAVE_INPUT), &w, x->arena + x->layout.workspace);
        leave_block(x, b);
    }
    const int failed = queue_sync(x->queue, queue_signal(x->queue), e);
    return failed || !x->streamed ? failed : stream_check(x->streamed, e);
}

/* Progress over all parts of the loading. */
typedef struct passed {
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t total, before, last;
} passed;

static void pass(void *arg, uint64_t done, uint64_t total)
{
    (void)total;
    passed *p = arg;
    p->last = p->before + done;
    p->progress(p->arg, p->last, p->total);
}

/* Loads the table that is kept in host memory. */
static int load_table(inference *x, load_job job, passed *p, pt_error *e)
{
    bool *wanted = calloc((size_t)x->model->params_n, sizeof *wanted);
    if (!wanted)
        return pt_fail(e, PT_FAILED, "out of memory while loading the weights");
    const int index = (int)(host_table(x->model, x->device) - x->model->params);
    wanted[index] = true;
    job.wanted = wanted;
    job.base = x->table;
    p->before = p->last;
    const int failed = load_weights(&job, e);
    free(wanted);
    return failed;
}

/* Loads the layers that do not stay, one after the other. */
static int load_streamed(inference *x, load_job job, passed *p, pt_error *e)
{
    bool *wanted = calloc((size_t)x->model->params_n, sizeof *wanted);
    int failed = wanted ? 0 : pt_fail(e, PT_FAILED, "out of memory while loading the weights");
    job.device = x->host;
    job.wanted = wanted;
    for (int b = 1; b < x->model->blocks_n - 1 && !failed; b++) {
        if (!is_streamed(x->model, x->streamed_n, b))
            continue;
        p->before = p->last;
        want_block(x->model, b, true, wanted);
        job.base = stream_image(x->streamed, b - 1, &job.param_at);
        failed = load_weights(&job, e);
        if (!failed)
            failed = stream_store(x->streamed, b - 1, e);
        want_block(x->model, b, false, wanted);
    }
    free(wanted);
    return failed;
}

int inference_load(inference *x, const struct safetensors *st, const struct safetensors *adapter, uint64_t seed,
                   void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, pt_error *e)
{
    passed p = {.progress = progress, .arg = arg, .total = inference_params_bytes(x->model, x->shape.type)};
    const load_job job = {.model = x->model, .st = st, .adapter = adapter, .seed = seed, .type = x->shape.type, .device = x->device,
                          .threads = x->threads, .base = x->arena, .param_at = x->param_at, .wanted = x->stays,
                          .progress = progress ? pass : NULL, .arg = &p};
    int failed = load_weights(&job, e);
    if (!failed && x->table)
        failed = load_table(x, job, &p, e);
    if (!failed && x->streamed)
        failed = load_streamed(x, job, &p, e);
    return failed ? failed : measure_gains(x, e);
}

int inference_fetch_s(inference *x, double *seconds, pt_error *e)
{
    *seconds = 0;
    return x->streamed ? stream_measure(x->streamed, x->queue, seconds, e) : 0;
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

/* Copies the rows of the table that the ids have to the device; NULL: the table is there. */
static const char *submit_rows(inference *x, const int32_t *ids, int64_t n)
{
    const param *table = host_table(x->model, x->device);
    const size_t row = (size_t)table_rows_bytes(table, x->shape.type, 1);
    if (!table)
        return NULL;
    char *rows = x->table + (size_t)table->rows * row;
    for (int64_t i = 0; i < n; i++)
        memcpy(rows + (size_t)i * row, x->table + (size_t)ids[i] * row, row);
    queue_submit(x->queue, &(op){OP_COPY, .copy = {x->arena + x->layout.rows, rows, (size_t)n * row}});
    return x->arena + x->layout.rows;
}

/* Copies the logits of row `row` of x to the host. */
static void submit_head(inference *x, int64_t row)
{
    const model_config *m = &x->model->config;
    const block_context c = {x->model, &x->shape, x->queue};
    char *logits = x->arena + x->layout.logits, *rows = x->arena + x->layout.x;
    head_logits(&c, &x->weights[x->model->blocks_n - 1], rows + (size_t)(row * m->hidden) * dtype_bytes(x->shape.type),
                x->arena + x->layout.normed, (float *)logits);
    queue_submit(x->queue, &(op){OP_COPY, .copy = {x->mail + 2 * (size_t)x->rows * sizeof(int32_t), logits,
                                                   (size_t)m->vocab * sizeof(float)}});
}

/* The logits that submit_head copied. */
static float *mailed_logits(const inference *x) { return (float *)(x->mail + 2 * (size_t)x->rows * sizeof(int32_t)); }

/* The states of the rows are in x afterwards. */
static int feed_rows(inference *x, const int32_t *ids, int64_t n, bool last, pt_error *e)
{
    const int32_t *device_ids = (const int32_t *)(x->arena + x->layout.ids);
    const block_context c = {x->model, &x->shape, x->queue};
    char *rows = x->arena + x->layout.x;
    uint64_t cache_at = 0, state_at = x->state_at;
    block_unit u = {.ids = device_ids, .positions = device_ids + n, .carried = x->arena + x->layout.carried,
                    .stream = x->shape.type == PT_F32 ? NULL : (float *)(x->arena + x->layout.stream)};
    block_unit_ropes(&u, &x->model->config, (const float *)(x->cache + x->rope_at), x->context);
    x->shape.seq_len = x->shape.unit_rows = n;
    submit_input(x, ids, n);
    u.rows = submit_rows(x, ids, n);
    embedding_forward(&c, &x->weights[0], &u, rows);
    for (int b = 1; b < x->model->blocks_n - 1; b++) {
        const layer_layout *layer = layer_set_layout(&x->layers, b - 1, SAVE_INPUT);
        const int from = model_kv_layer(&x->model->config, b - 1);
        const uint64_t rows_at = from < b - 1 ? caches_bytes(x->model, &x->shape, &x->layers, from, x->context) : cache_at;
        block_cache cache = {x->cache + rows_at, x->cache + state_at, x->length};
        const block_weights w = enter_block(x, b);
        u.cache = &cache;
        layer_forward(&c, b, layer, &w, &u, rows, x->arena + x->layout.workspace, rows);
        leave_block(x, b);
        cache_at += layer_cache_bytes(&layer->program, x->model, b - 1, &x->shape) * (uint64_t)x->context;
        state_at += layer_state_bytes(&layer->program, x->model, b - 1, &x->shape, layer->program.stages_n);
    }
    if (last)
        submit_head(x, n - 1);
    x->length += n;
    const int failed = queue_sync(x->queue, queue_signal(x->queue), e);
    return failed || !x->streamed ? failed : stream_check(x->streamed, e);
}

int inference_feed(inference *x, const int32_t *ids, int64_t n, const float **logits, pt_error *e)
{
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += x->rows) {
        int64_t rows = n - done < x->rows ? n - done : x->rows;
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
    for (int64_t done = 0; done < n && !failed; done += x->rows) {
        const int64_t rows = n - done < x->rows ? n - done : x->rows;
        failed = feed_rows(x, ids + done, rows, false, e);
        if (!failed)
            failed = rows_logits(x, rows, all + done * x->model->config.vocab, e);
    }
    return failed;
}
