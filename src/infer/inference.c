#include "infer/inference_parts.h"
#include "model/adapter.h"

#include <stdlib.h>
#include <string.h>

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
    const uint64_t layer = inference_gains_at(x->model, MODEL_LINEAR_MATRICES);
    for (int b = 1; b < x->model->blocks_n - 1 && model_has_magnitudes(x->model); b++)
        for (int i = 0; i < MODEL_LINEAR_MATRICES; i++)
            x->weights[b].gains[i] = (float *)(x->arena + x->layout.gains + layer * (uint64_t)(b - 1) + inference_gains_at(x->model, i));
}

int inference_open(const model *m, device *d, pt_dtype type, int threads, int streamed, const stream_place *place, inference **out,
                   pt_error *e)
{
    *out = NULL;
    inference *x = calloc(1, sizeof *x);
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    *x = (inference){.model = m, .device = d, .threads = threads ? threads : d->info.threads, .rows = inference_rows_of(m, d, streamed),
                     .host = place ? place->host : NULL, .streamed_n = streamed,
                     .shape = inference_shape(m, type, inference_rows_of(m, d, streamed))};
    if (layer_set_init(&x->layers, m, &x->shape, e)) {
        free(x);
        return PT_FAILED;
    }
    inference_layout_init(&x->layout, m, d, &x->shape, streamed, &x->layers);
    x->param_at = malloc((size_t)m->params_n * sizeof *x->param_at);
    x->weights = calloc((size_t)m->blocks_n, sizeof *x->weights);
    x->rows_at = malloc((size_t)m->config.layers * sizeof *x->rows_at);
    void *base;
    x->stays = malloc((size_t)m->params_n * sizeof *x->stays);
    int failed = x->param_at && x->weights && x->rows_at && x->stays ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_DEVICE, x->layout.bytes, &base, e)))
        x->arena = base;
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, inference_mail_bytes(m, x->rows), &base, e)))
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
    inference_find_staying(m, d, streamed, x->stays);
    inference_place_params(m, type, x->stays, x->param_at);
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
    host_cache_close(x->away);
    if (x->queue)
        t->queue_close(x->queue);
    t->memory_close(x->device, MEMORY_DEVICE, x->arena, x->layout.bytes);
    t->memory_close(x->device, MEMORY_DEVICE, x->cache, x->at.bytes);
    t->memory_close(x->device, MEMORY_HOST, x->mail, inference_mail_bytes(x->model, x->rows));
    t->memory_close(x->device, MEMORY_HOST, x->table, inference_host_bytes(x->model, x->shape.type, x->device, x->streamed_n));
    layer_set_free(&x->layers);
    free(x->param_at);
    free(x->stays);
    free(x->weights);
    free(x->rows_at);
    free(x);
}

/* ---- a sequence ---- */

static int put_rope(void *arg, size_t at, const float *part, size_t bytes, pt_error *e)
{
    inference *x = arg;
    queue_submit(x->queue, &(op){OP_COPY, .copy = {x->cache + x->at.rope + at, part, bytes}});
    return queue_sync(x->queue, queue_signal(x->queue), e);
}

/* Copies the states to where they are kept, or back. */
static void copy_states(inference *x, bool back)
{
    char *now = x->cache + x->at.state, *kept = now + x->at.state_bytes;
    queue_submit(x->queue, &(op){OP_COPY, .copy = {back ? now : kept, back ? kept : now, x->at.state_bytes}});
}

/* How many of the first `kept` rows can stay. Keys and values of later rows are dropped; a state cannot be cut back, but the one at the end
 * of the last prompt was kept. */
static int64_t length_kept(inference *x, int64_t kept)
{
    if (kept >= x->length)
        return x->length;
    if (!x->at.state_bytes)
        return kept;
    if (x->marked > kept)
        return 0;
    if (x->marked)
        copy_states(x, true);
    return x->marked;
}

static void drop_cache(inference *x)
{
    host_cache_close(x->away);
    x->away = NULL;
    x->device->table->memory_close(x->device, MEMORY_DEVICE, x->cache, x->at.bytes);
    x->cache = NULL;
    x->of.context = 0;
}

static int make_cache(inference *x, int64_t context, cache_plan plan, pt_error *e)
{
    void *base;
    x->of = (cache_shape){x->model, &x->shape, &x->layers, x->rows, context, plan};
    x->at = inference_cache_places(&x->of);
    for (int l = 0; l < x->model->config.layers; l++)
        x->rows_at[l] = inference_caches_bytes(&x->of, model_kv_layer(&x->model->config, l));
    int failed = x->device->table->memory_open(x->device, MEMORY_DEVICE, x->at.bytes, &base, e);
    x->cache = failed ? NULL : base;
    if (!failed && plan.away)
        failed = host_cache_open(&x->of, x->device, x->cache + x->at.slots, &x->away, e);
    return failed ? failed : model_rope_send(&x->model->config, context, put_rope, x, e);
}

int inference_begin(inference *x, int64_t context, cache_plan cache, int64_t *kept, pt_error *e)
{
    const bool stays = context <= x->of.context;
    x->length = kept && stays ? length_kept(x, *kept) : 0;
    x->marked = x->length ? x->marked : 0;
    if (kept)
        *kept = x->length;
    if (stays)
        return 0;
    drop_cache(x);
    const int failed = make_cache(x, context, cache, e);
    if (failed)
        drop_cache(x);
    return failed;
}

int64_t inference_context(const inference *x) { return x->of.context; }

cache_plan inference_cache(const inference *x) { return x->of.plan; }

int inference_cache_s(inference *x, double *seconds, pt_error *e)
{
    *seconds = 0;
    return x->away ? host_cache_measure(x->away, x->queue, seconds, e) : 0;
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
    uint64_t state_at = x->at.state;
    block_unit u = {.ids = device_ids, .positions = device_ids + n, .carried = x->arena + x->layout.carried,
                    .stream = x->shape.type == PT_F32 ? NULL : (float *)(x->arena + x->layout.stream)};
    block_unit_ropes(&u, &x->model->config, (const float *)(x->cache + x->at.rope), x->of.context);
    x->shape.seq_len = x->shape.unit_rows = n;
    if (x->away)
        host_cache_begin(x->away, x->queue, x->length, n);
    submit_input(x, ids, n);
    u.rows = host_table_submit_rows(x, ids, n);
    embedding_forward(&c, &x->weights[0], &u, rows);
    for (int b = 1; b < x->model->blocks_n - 1; b++) {
        const layer_layout *layer = layer_set_layout(&x->layers, b - 1, SAVE_INPUT);
        block_cache cache = {.all = {x->cache + x->rows_at[b - 1], x->length}, .state = x->cache + state_at,
                             .parts = host_cache_parts(x->away, b - 1)};
        const block_weights w = inference_enter_block(x, b);
        u.cache = &cache;
        layer_forward(&c, b, layer, &w, &u, rows, x->arena + x->layout.workspace, rows);
        inference_leave_block(x, b);
        state_at += layer_state_bytes(&layer->program, x->model, b - 1, &x->shape, layer->program.stages_n);
    }
    if (last)
        submit_head(x, n - 1);
    x->length += n;
    int failed = queue_sync(x->queue, queue_signal(x->queue), e);
    if (!failed && x->away)
        failed = host_cache_check(x->away, e);
    return failed || !x->streamed ? failed : stream_check(x->streamed, e);
}

int inference_feed(inference *x, const int32_t *ids, int64_t n, const float **logits, pt_error *e)
{
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += x->rows) {
        int64_t rows = n - done < x->rows ? n - done : x->rows;
        failed = feed_rows(x, ids + done, rows, done + rows == n, e);
    }
    if (!failed && n > 1 && x->at.state_bytes) { /* the end of a prompt */
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
