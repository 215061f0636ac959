/* head_norm.c - the norms of q and k: of each head, or of all heads of a row together. Values may have one without a weight, and may be
 * made from the same columns as keys. */
#include "layer/work.h"

enum { QUERIES, KEYS, VALUES };

/* The heads of q, k or v, in the shape of their norm; the columns where they begin before and after it. */
typedef struct head_group { int64_t heads, dim, from, to; } head_group;

static int groups_n(const layer_work *work)
{
    return model_reads_kv(work->config, work->layer) ? QUERIES + 1 : work->config->value_norm ? VALUES + 1 : KEYS + 1;
}

static head_group group_of(const model_config *m, int layer, int k, int groups)
{
    const qkv_columns at = group_columns(m, layer, groups);
    const attention_heads h = group_heads(model_heads(m, layer), groups);
    const int64_t heads = k == QUERIES ? h.heads : h.kv_heads, to = k == QUERIES ? at.q : k == KEYS ? at.k : at.v;
    const int64_t from = k == VALUES && h.made < at.all ? at.k : to;
    return m->qk_norm == QK_NORM_WIDE ? (head_group){1, heads * h.dim, from, to} : (head_group){heads, h.dim, from, to};
}

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | (pass == PASS_FORWARD ? TOUCH_OUT(0) : TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(0));
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    const head_group q = group_of(&at->model->config, at->layer, QUERIES, layer_groups(at->model, at->layer, at->shape));
    return k ? 0 : norm_backward_scratch_bytes(at->shape->unit_rows, q.heads, q.dim);
}

/* The norm of values has no weight: the offset alone. */
static const void *weight_of_group(const layer_work *work, const layer_stage *stage, int k)
{
    return k == VALUES ? NULL : weight_of(work, stage->param[k]);
}

static float offset_of_group(const layer_work *work, int k) { return k == VALUES ? 1 : work->config->norm_offset; }

static void forward(const layer_work *work, const layer_stage *stage)
{
    for (int k = 0; k < groups_n(work); k++) {
        const head_group g = group_of(work->config, work->layer, k, work->groups);
        queue_submit(work->c->queue, &(op){OP_NORM, .norm = {
            .kind = work->config->norm, .type = work->type, .rows = work->rows, .heads = g.heads, .dim = g.dim,
            .ldx = columns(work, stage->in[0]), .ldy = columns(work, stage->out[0]), .eps = work->config->norm_eps,
            .offset = offset_of_group(work, k), .x = column(tensor(work, stage->in[0]), g.from, work->type),
            .weight = weight_of_group(work, stage, k), .y = column(tensor(work, stage->out[0]), g.to, work->type)}});
    }
}

/* The gradient of the input is the output's, in place, unless values come from the columns of keys: there it has its own place, and both
 * gradients are added. */
static void input(const layer_work *work, const layer_stage *stage)
{
    const int64_t wide = columns(work, stage->out[0]);
    const bool in_place = work->l->program.tensor[stage->in[0]].gradient_in == stage->out[0];
    for (int k = 0; k < groups_n(work); k++) {
        const head_group g = group_of(work->config, work->layer, k, work->groups);
        char *dx = column(gradient(work, stage->in[0]), g.from, work->type);
        submit_norm_backward(work->c->queue, work->c->shape,
                             (op_norm_backward){.kind = work->config->norm,
                                                .type = work->type,
                                                .accumulate = !work->first,
                                                .rows = work->rows,
                                                .heads = g.heads,
                                                .dim = g.dim,
                                                .ldx = columns(work, stage->in[0]),
                                                .lddy = wide,
                                                .lddx = in_place ? wide : columns(work, stage->in[0]),
                                                .eps = work->config->norm_eps,
                                                .offset = offset_of_group(work, k),
                                                .x = column(tensor(work, stage->in[0]), g.from, work->type),
                                                .weight = weight_of_group(work, stage, k),
                                                .dy = column(gradient(work, stage->out[0]), g.to, work->type),
                                                .dx_add = g.from != g.to ? dx : NULL,
                                                .dx = dx,
                                                .dweight = k == VALUES ? NULL : accumulator(work, stage->param[k]),
                                                .scratch = scratch(work, stage, 0)});
    }
}

const stage_type stage_head_norm = {.name = "head_norm", .by_row = true, .touches = touches, .scratch = scratch_bytes,
                                    .pass = {forward, input}};
