/* inference_layout.c - what an inference keeps where, and how many bytes that takes. */
#include "infer/inference_parts.h"
#include "infer/load.h"
#include "model/adapter.h"

#include <string.h>

static uint64_t take(uint64_t *at, uint64_t bytes)
{
    uint64_t offset = *at;
    *at = align_up(*at + bytes, INFERENCE_LINE);
    return offset;
}

step_shape inference_shape(const model *m, pt_dtype type, int64_t rows)
{
    step_shape shape;
    step_shape_init(&shape, m, type, 1, rows);
    shape.slice_rows = m->config.vocab; /* the table is in one piece */
    shape.whole_heads = rows;           /* the cache holds all heads */
    return shape;
}

bool inference_is_streamed(const model *m, int n, int block)
{
    return n && block > 0 && block < m->blocks_n - 1 && stream_has(m, n, block - 1);
}

void inference_want_block(const model *m, int block, bool yes, bool *wanted)
{
    for (int role = 0; role < PARAM_ROLES; role++)
        if (m->blocks[block].param_of_role[role] >= 0)
            wanted[m->blocks[block].param_of_role[role]] = yes;
}

int64_t inference_rows_of(const model *m, const device *d, int streamed_n)
{
    return (streamed_n || device_is_gpu(d)) && m->config.max_positions > INFERENCE_ROWS ? INFERENCE_ROWS_FETCHED : INFERENCE_ROWS;
}

void inference_find_staying(const model *m, const device *d, int streamed_n, bool *stays)
{
    memset(stays, true, (size_t)m->params_n);
    if (host_table(m, d))
        stays[host_table(m, d) - m->params] = false;
    for (int b = 0; b < m->blocks_n; b++)
        if (inference_is_streamed(m, streamed_n, b))
            inference_want_block(m, b, false, stays);
}

uint64_t inference_place_params(const model *m, pt_dtype type, const bool *stays, uint64_t *param_at)
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
    uint64_t bytes = inference_place_params(m, type, NULL, NULL) - (table ? align_up(load_param_bytes(table, type), INFERENCE_LINE) : 0);
    for (int b = 0; b < m->blocks_n; b++)
        for (int role = 0; role < PARAM_ROLES && inference_is_streamed(m, streamed_n, b); role++) {
            const int i = m->blocks[b].param_of_role[role];
            bytes -= i < 0 ? 0 : align_up(load_param_bytes(&m->params[i], type), INFERENCE_LINE);
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

uint64_t inference_gains_at(const model *m, int matrix)
{
    uint64_t at = 0;
    for (int i = 0; i < matrix && model_has_magnitudes(m); i++)
        take(&at, 2 * (uint64_t)most_rows(m, i) * sizeof(float));
    return at;
}

void inference_layout_init(inference_layout *l, const model *m, const device *d, const step_shape *shape, int streamed_n,
                           const layer_set *layers)
{
    pt_dtype type = shape->type;
    uint64_t at = staying_bytes(m, type, d, streamed_n), saved = 0, workspace = 0;
    at = align_up(at, streamed_n ? STREAM_ALIGN : INFERENCE_LINE);
    l->slots = take(&at, stream_slot_bytes(m, type, streamed_n));
    for (int kind = 0; kind < layers->kinds_n; kind++) {
        const layer_layout *layer = &layers->layout[kind][SAVE_INPUT];
        saved = layer->saved_bytes > saved ? layer->saved_bytes : saved;
        workspace = layer->forward_workspace > workspace ? layer->forward_workspace : workspace;
    }
    l->x = take(&at, saved);
    l->stream = take(&at, residual_bytes(m, shape));
    carried_layout carried;
    carried_layout_init(&carried, m, shape);
    l->carried = take(&at, carried.bytes);
    l->rows = take(&at, host_table_rows_bytes(host_table(m, d), type, inference_rows_of(m, d, streamed_n)));
    l->workspace = take(&at, workspace);
    l->normed = take(&at, (uint64_t)m->config.hidden * dtype_bytes(type));
    l->logits = take(&at, (uint64_t)m->config.vocab * sizeof(float));
    l->ids = take(&at, 2 * (uint64_t)inference_rows_of(m, d, streamed_n) * sizeof(int32_t));
    l->gains = take(&at, inference_gains_at(m, MODEL_LINEAR_MATRICES) * (uint64_t)m->config.layers);
    l->bytes = at;
}

uint64_t inference_caches_bytes(const cache_shape *s, int n)
{
    uint64_t bytes = 0;
    for (int l = 0; l < n; l++)
        bytes += cache_is_away(s, l) ? 0 : cache_row_bytes(s, l) * (uint64_t)s->context;
    return bytes;
}

/* Bytes of the states of the first `n` layers. */
static uint64_t states_bytes(const model *m, const step_shape *shape, const layer_set *layers, int n)
{
    uint64_t bytes = 0;
    for (int l = 0; l < n; l++) {
        const layer_program *program = &layer_set_layout(layers, l, SAVE_INPUT)->program;
        bytes += layer_state_bytes(program, m, l, shape, program->stages_n);
    }
    return bytes;
}

cache_places inference_cache_places(const cache_shape *s)
{
    const model_config *config = &s->model->config;
    cache_places p = {.state_bytes = states_bytes(s->model, s->shape, s->layers, (int)config->layers)};
    take(&p.bytes, inference_caches_bytes(s, (int)config->layers));
    p.rope = take(&p.bytes, (uint64_t)model_rope_offset(config, config->ropes_n, s->context) * sizeof(float));
    p.state = take(&p.bytes, 2 * p.state_bytes);
    p.slots = take(&p.bytes, cache_slot_bytes(s));
    return p;
}

uint64_t inference_mail_bytes(const model *m, int64_t rows)
{
    return 2 * (uint64_t)rows * sizeof(int32_t) + (uint64_t)m->config.vocab * sizeof(float);
}

uint64_t inference_bytes(const model *m, pt_dtype type, const device *d, int streamed, int64_t context, cache_plan cache)
{
    const int64_t rows = inference_rows_of(m, d, streamed);
    step_shape shape = inference_shape(m, type, rows);
    layer_set layers;
    inference_layout l;
    if (layer_set_init(&layers, m, &shape, &(pt_error){0}))
        return UINT64_MAX;
    inference_layout_init(&l, m, d, &shape, streamed, &layers);
    uint64_t later = inference_cache_places(&(cache_shape){m, &shape, &layers, rows, context, cache}).bytes;
    const uint64_t loading = load_bytes(m, type, d->info.threads);
    layer_set_free(&layers);
    if (device_is_gpu(d)) /* the rest is in RAM */
        return l.bytes + later;
    return l.bytes + inference_mail_bytes(m, rows) + (later > loading ? later : loading);
}

uint64_t inference_cache_bytes(const model *m, pt_dtype type, const device *d, int64_t context, cache_plan cache, uint64_t *fetched)
{
    const int64_t rows = inference_rows_of(m, d, 0);
    const step_shape shape = inference_shape(m, type, rows);
    layer_set layers;
    *fetched = 0;
    if (!cache.away)
        return 0;
    if (layer_set_init(&layers, m, &shape, &(pt_error){0}))
        return UINT64_MAX;
    const cache_shape of = {m, &shape, &layers, rows, context, cache};
    const uint64_t bytes = cache_store_bytes(&of);
    *fetched = cache_fetch_bytes(&of);
    layer_set_free(&layers);
    return bytes;
}

int64_t inference_rows(const inference *infer) { return infer->rows; }

uint64_t inference_params_bytes(const model *m, pt_dtype type) { return inference_place_params(m, type, NULL, NULL); }

uint64_t inference_weight_bytes(const inference *infer)
{
    uint64_t bytes = 0;
    for (int i = 0; i < infer->model->params_n; i++) {
        const param *p = &infer->model->params[i];
        bool table =
            p->kind->use == USE_POSITIONS || p->role == PARAM_LAYER_TOKENS || (p->role == PARAM_TOKENS && !infer->model->config.tied);
        bytes += table ? 0 : load_param_bytes(p, infer->shape.type);
    }
    return bytes;
}
