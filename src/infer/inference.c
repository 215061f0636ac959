#include "infer/inference_parts.h"
#include "model/adapter.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void find_weights(inference *infer)
{
    for (int b = 0; b < infer->model->blocks_n; b++) {
        block_weights *w = &infer->weights[b];
        for (int role = 0; role < PARAM_ROLES; role++) {
            int index = infer->model->blocks[b].param_of_role[role];
            w->param[role] = index < 0 || !infer->stays[index] ? NULL : infer->arena + infer->param_at[index];
        }
        w->slices = &w->param[w->param[PARAM_TOKENS] ? PARAM_TOKENS : PARAM_HEAD];
        w->slices_n = 1;
        w->input_slices = &w->param[PARAM_LAYER_TOKENS];
        w->input_slices_n = w->param[PARAM_LAYER_TOKENS] && !infer->table ? 1 : 0;
    }
    const uint64_t layer = inference_gains_at(infer->model, MODEL_LINEAR_MATRICES);
    for (int b = 1; b < infer->model->blocks_n - 1 && model_has_magnitudes(infer->model); b++)
        for (int i = 0; i < MODEL_LINEAR_MATRICES; i++)
            infer->weights[b].gains[i] =
                (float *)(infer->arena + infer->layout.gains + layer * (uint64_t)(b - 1) + inference_gains_at(infer->model, i));
}

int inference_open(const model *m, device *d, pt_dtype type, int threads, int streamed, const stream_place *place, inference **out,
                   pt_error *e)
{
    *out = NULL;
    inference *infer = calloc(1, sizeof *infer);
    if (!infer)
        return pt_fail(e, PT_FAILED, "out of memory");
    *infer = (inference){.model = m, .device = d, .threads = threads ? threads : d->info.threads, .rows = inference_rows_of(m, d, streamed),
                     .host = place ? place->host : NULL, .streamed_n = streamed,
                     .shape = inference_shape(m, type, inference_rows_of(m, d, streamed))};
    if (layer_set_init(&infer->layers, m, &infer->shape, e)) {
        free(infer);
        return PT_FAILED;
    }
    inference_layout_init(&infer->layout, m, d, &infer->shape, streamed, &infer->layers);
    infer->param_at = malloc((size_t)m->params_n * sizeof *infer->param_at);
    infer->weights = calloc((size_t)m->blocks_n, sizeof *infer->weights);
    infer->rows_at = malloc((size_t)m->config.layers * sizeof *infer->rows_at);
    void *base;
    infer->stays = malloc((size_t)m->params_n * sizeof *infer->stays);
    int failed = infer->param_at && infer->weights && infer->rows_at && infer->stays ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_DEVICE, infer->layout.bytes, &base, e)))
        infer->arena = base;
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, inference_mail_bytes(m, infer->rows), &base, e)))
        infer->mail = base;
    const uint64_t table_bytes = inference_host_bytes(m, type, d, streamed);
    if (!failed && table_bytes && !(failed = d->table->memory_open(d, MEMORY_HOST, table_bytes, &base, e)))
        infer->table = base;
    if (!failed)
        failed = d->table->queue_open(d, "generate", threads, &infer->queue, e);
    if (!failed && streamed)
        failed = stream_open(m, d, type, streamed, place, infer->arena + infer->layout.slots, &infer->streamed, e);
    if (failed) {
        inference_close(infer);
        return failed;
    }
    inference_find_staying(m, d, streamed, infer->stays);
    inference_place_params(m, type, infer->stays, infer->param_at);
    find_weights(infer);
    *out = infer;
    return 0;
}

void inference_close(inference *infer)
{
    if (!infer)
        return;
    const device_table *t = infer->device->table;
    stream_close(infer->streamed);
    host_cache_close(infer->away);
    if (infer->queue)
        t->queue_close(infer->queue);
    t->memory_close(infer->device, MEMORY_DEVICE, infer->arena, infer->layout.bytes);
    t->memory_close(infer->device, MEMORY_DEVICE, infer->cache, infer->at.bytes);
    t->memory_close(infer->device, MEMORY_HOST, infer->mail, inference_mail_bytes(infer->model, infer->rows));
    t->memory_close(infer->device, MEMORY_HOST, infer->table,
                    inference_host_bytes(infer->model, infer->shape.type, infer->device, infer->streamed_n));
    layer_set_free(&infer->layers);
    free(infer->param_at);
    free(infer->stays);
    free(infer->weights);
    free(infer->rows_at);
    free(infer);
}

/* ---- a sequence ---- */

static int put_rope(void *arg, size_t at, const float *part, size_t bytes, pt_error *e)
{
    inference *infer = arg;
    queue_submit(infer->queue, &(op){OP_COPY, .copy = {infer->cache + infer->at.rope + at, part, bytes}});
    return queue_sync(infer->queue, queue_signal(infer->queue), e);
}

/* Copies the states to where they are kept, or back. */
static void copy_states(inference *infer, bool back)
{
    char *now = infer->cache + infer->at.state, *kept = now + infer->at.state_bytes;
    queue_submit(infer->queue, &(op){OP_COPY, .copy = {back ? now : kept, back ? kept : now, infer->at.state_bytes}});
}

/* How many of the first `kept` rows can stay. Keys and values of later rows are dropped; a state cannot be cut back, but the one at the end
 * of the last prompt was kept. */
static int64_t length_kept(inference *infer, int64_t kept)
{
    if (kept >= infer->length)
        return infer->length;
    if (!infer->at.state_bytes)
        return kept;
    if (infer->marked > kept)
        return 0;
    if (infer->marked)
        copy_states(infer, true);
    return infer->marked;
}

static void drop_cache(inference *infer)
{
    host_cache_close(infer->away);
    infer->away = NULL;
    infer->device->table->memory_close(infer->device, MEMORY_DEVICE, infer->cache, infer->at.bytes);
    infer->cache = NULL;
    infer->of.context = 0;
}

static int make_cache(inference *infer, int64_t context, cache_plan plan, pt_error *e)
{
    void *base;
    infer->of = (cache_shape){infer->model, &infer->shape, &infer->layers, infer->rows, context, plan};
    infer->at = inference_cache_places(&infer->of);
    for (int l = 0; l < infer->model->config.layers; l++)
        infer->rows_at[l] = inference_caches_bytes(&infer->of, model_kv_layer(&infer->model->config, l));
    int failed = infer->device->table->memory_open(infer->device, MEMORY_DEVICE, infer->at.bytes, &base, e);
    infer->cache = failed ? NULL : base;
    if (!failed && plan.away)
        failed = host_cache_open(&infer->of, infer->device, infer->cache + infer->at.slots, &infer->away, e);
    return failed ? failed : model_rope_send(&infer->model->config, context, put_rope, infer, e);
}

int inference_begin(inference *infer, int64_t context, cache_plan cache, int64_t *kept, pt_error *e)
{
    const bool stays = context <= infer->of.context;
    infer->length = kept && stays ? length_kept(infer, *kept) : 0;
    infer->marked = infer->length ? infer->marked : 0;
    if (kept)
        *kept = infer->length;
    if (stays)
        return 0;
    drop_cache(infer);
    const int failed = make_cache(infer, context, cache, e);
    if (failed)
        drop_cache(infer);
    return failed;
}

int64_t inference_context(const inference *infer) { return infer->of.context; }

cache_plan inference_cache(const inference *infer) { return infer->of.plan; }

int inference_cache_s(inference *infer, double *seconds, pt_error *e)
{
    *seconds = 0;
    return infer->away ? host_cache_measure(infer->away, infer->queue, seconds, e) : 0;
}

/* Copies ids and positions of n rows to the device. */
static void submit_input(inference *infer, const int32_t *ids, int64_t n)
{
    int32_t *mail = (int32_t *)infer->mail;
    memcpy(mail, ids, (size_t)n * sizeof *mail);
    for (int64_t i = 0; i < n; i++)
        mail[n + i] = (int32_t)(infer->length + i);
    queue_submit(infer->queue, &(op){OP_COPY, .copy = {infer->arena + infer->layout.ids, mail, (size_t)(2 * n) * sizeof *mail}});
}

/* Copies the logits of row `row` of infer->layout.x to the host. */
static void submit_head(inference *infer, int64_t row)
{
    const model_config *m = &infer->model->config;
    const block_context ctx = {infer->model, &infer->shape, infer->queue};
    char *logits = infer->arena + infer->layout.logits, *rows = infer->arena + infer->layout.x;
    head_logits(&ctx, &infer->weights[infer->model->blocks_n - 1], rows + (size_t)(row * m->hidden) * dtype_bytes(infer->shape.type),
                infer->arena + infer->layout.normed, (float *)logits);
    queue_submit(infer->queue, &(op){OP_COPY, .copy = {infer->mail + 2 * (size_t)infer->rows * sizeof(int32_t), logits,
                                                   (size_t)m->vocab * sizeof(float)}});
}

/* The logits that submit_head copied. */
static float *mailed_logits(const inference *infer) { return (float *)(infer->mail + 2 * (size_t)infer->rows * sizeof(int32_t)); }

/* The states of the rows are in infer->layout.x afterwards. */
static int feed_rows(inference *infer, const int32_t *ids, int64_t n, bool last, pt_error *e)
{
    const int32_t *device_ids = (const int32_t *)(infer->arena + infer->layout.ids);
    const block_context ctx = {infer->model, &infer->shape, infer->queue};
    char *rows = infer->arena + infer->layout.x;
    uint64_t state_at = infer->at.state;
    block_unit u = {.ids = device_ids, .positions = device_ids + n, .carried = infer->arena + infer->layout.carried,
                    .stream = infer->shape.type == PT_F32 ? NULL : (float *)(infer->arena + infer->layout.stream)};
    block_unit_ropes(&u, &infer->model->config, (const float *)(infer->cache + infer->at.rope), infer->of.context);
    infer->shape.seq_len = infer->shape.unit_rows = n;
    if (infer->away)
        host_cache_begin(infer->away, infer->queue, infer->length, n);
    submit_input(infer, ids, n);
    u.rows = host_table_submit_rows(infer, ids, n);
    embedding_forward(&ctx, &infer->weights[0], &u, rows);
    for (int b = 1; b < infer->model->blocks_n - 1; b++) {
        const layer_layout *layer = layer_set_layout(&infer->layers, b - 1, SAVE_INPUT);
        block_cache cache = {.all = {infer->cache + infer->rows_at[b - 1], infer->length}, .state = infer->cache + state_at,
                             .parts = host_cache_parts(infer->away, b - 1)};
        const block_weights w = inference_enter_block(infer, b);
        u.cache = &cache;
        layer_forward(&ctx, b, layer, &w, &u, rows, infer->arena + infer->layout.workspace, rows);
        inference_leave_block(infer, b);
        state_at += layer_state_bytes(&layer->program, infer->model, b - 1, &infer->shape, layer->program.stages_n);
    }
    if (last)
        submit_head(infer, n - 1);
    infer->length += n;
    int failed = queue_sync(infer->queue, queue_signal(infer->queue), e);
    if (!failed && infer->away)
        failed = host_cache_check(infer->away, e);
    return failed || !infer->streamed ? failed : stream_check(infer->streamed, e);
}

int inference_feed(inference *infer, const int32_t *ids, int64_t n, const float **logits, pt_error *e)
{
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += infer->rows) {
        int64_t rows = n - done < infer->rows ? n - done : infer->rows;
        failed = feed_rows(infer, ids + done, rows, done + rows == n, e);
    }
    if (!failed && n > 1 && infer->at.state_bytes) { /* the end of a prompt */
        copy_states(infer, false);
        infer->marked = infer->length;
    }
    float *of_last = mailed_logits(infer);
    if (!failed && n)
        head_finish_logits(&infer->model->config, of_last);
    *logits = of_last;
    return failed;
}

static int rows_logits(inference *infer, int64_t n, float *out, pt_error *e)
{
    const int64_t vocab = infer->model->config.vocab;
    int failed = 0;
    for (int64_t i = 0; i < n && !failed; i++) {
        submit_head(infer, i);
        failed = queue_sync(infer->queue, queue_signal(infer->queue), e);
        if (!failed)
            head_finish_logits(&infer->model->config, mailed_logits(infer));
        memcpy(out + i * vocab, mailed_logits(infer), (size_t)vocab * sizeof *out);
    }
    return failed;
}

int inference_feed_all(inference *infer, const int32_t *ids, int64_t n, float *all, pt_error *e)
{
    int failed = 0;
    for (int64_t done = 0; done < n && !failed; done += infer->rows) {
        const int64_t rows = n - done < infer->rows ? n - done : infer->rows;
        failed = feed_rows(infer, ids + done, rows, false, e);
        if (!failed)
            failed = rows_logits(infer, rows, all + done * infer->model->config.vocab, e);
    }
    return failed;
}
