#include "layer/block.h"

#include "device/dropout.h"

enum { NOISE_PART = 1 << 30 /* the noise's part of a step's key: no layer has so many modules */ };

/* The rows of all layers' inputs, to which the first layer adds (inputs.c): those that were looked up before, then those of slices, which
 * also take the place of rows that nothing has looked up. */
static void look_up_inputs(const block_context *ctx, const block_weights *w, const block_unit *u)
{
    const step_shape *shape = ctx->shape;
    const model_config *m = &ctx->model->config;
    carried_layout l;
    carried_layout_init(&l, ctx->model, shape);
    op_embedding o = {.type = shape->type, .rows = shape->unit_rows, .cols = m->layers * m->input_width, .table_rows = shape->unit_rows,
                      .positions = u->positions, .table = u->rows, .out = u->carried + l.inputs, .scale = model_input_scale(m)};
    if (u->rows)
        queue_submit(ctx->queue, &(op){OP_EMBEDDING, .embedding = o});
    o.ids = u->ids;
    for (int i = 0; i < w->input_slices_n; i++) {
        const int64_t left = m->vocab - i * shape->slice_rows;
        o.row0 = i * shape->slice_rows;
        o.table_rows = left < shape->slice_rows ? left : shape->slice_rows;
        o.table = w->input_slices[i];
        if (o.table)
            queue_submit(ctx->queue, &(op){OP_EMBEDDING, .embedding = o});
    }
}

void embedding_forward(const block_context *ctx, const block_weights *w, const block_unit *u, void *x)
{
    const step_shape *shape = ctx->shape;
    const model_config *m = &ctx->model->config;
    const char *table = w->param[PARAM_POSITIONS];
    const void *positions = table ? table + (size_t)(m->position_offset * m->hidden) * dtype_bytes(shape->type) : NULL;
    for (int i = 0; i < w->slices_n; i++) {
        int64_t row0 = i * shape->slice_rows, left = m->vocab - row0;
        queue_submit(ctx->queue, &(op){OP_EMBEDDING, .embedding = {.type = shape->type,
                                                                   .rows = shape->unit_rows,
                                                                   .cols = m->hidden,
                                                                   .row0 = row0,
                                                                   .table_rows = left < shape->slice_rows ? left : shape->slice_rows,
                                                                   .ids = u->ids,
                                                                   .positions = u->positions,
                                                                   .table = w->slices[i],
                                                                   .position_table = positions,
                                                                   .out = x,
                                                                   .stream = u->stream,
                                                                   .scale = m->embedding_scale,
                                                                   .noise = u->dropout ? shape->noise : 0,
                                                                   .key = dropout_key(u->dropout, NOISE_PART),
                                                                   .first = u->row}});
    }
    look_up_inputs(ctx, w, u);
}
