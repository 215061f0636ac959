/* head_norm.c - the norms of q and k: of each head, or of all heads of a row together. */
#include "layer/work.h"

/* The heads of q or of k, in the shape of their norm. */
typedef struct head_group { int64_t heads, dim, col; } head_group;

static head_group q_or_k(const model_config *m, int k)
{
    const qkv_columns at = model_qkv_columns(m);
    const int64_t heads = k ? m->kv_heads : m->heads, col = k ? at.k : at.q;
    return m->qk_norm == QK_NORM_WIDE ? (head_group){1, heads * m->head_dim, col} : (head_group){heads, m->head_dim, col};
}

static unsigned touches(const layer_stage *s, step_pass pass)
{
    return TOUCH_IN(0) | (pass == PASS_FORWARD ? TOUCH_OUT(0) : TOUCH_OUT_GRADIENT(0) | TOUCH_SCRATCH(0));
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    const head_group q = q_or_k(&at->model->config, 0);
    return k ? 0 : norm_backward_scratch_bytes(at->shape->unit_rows, q.heads, q.dim);
}

static void forward(const layer_work *work, const layer_stage *s)
{
    for (int k = 0; k < 2; k++) {
        const head_group g = q_or_k(work->config, k);
        queue_submit(work->c->queue, &(op){OP_NORM, .norm = {
            .kind = work->config->norm, .type = work->type, .rows = work->rows, .heads = g.heads, .dim = g.dim,
            .ldx = columns(work, s->in[0]), .ldy = columns(work, s->out[0]), .eps = work->config->norm_eps,
            .offset = work->config->norm_offset, .x = column(tensor(work, s->in[0]), g.col, work->type),
            .weight = weight_of(work, s->param[k]), .y = column(tensor(work, s->out[0]), g.col, work->type)}});
    }
}

/* In place: the gradient of the input is the first columns of the output's. */
static void input(const layer_work *work, const layer_stage *s)
{
    const int64_t wide = columns(work, s->out[0]);
    for (int k = 0; k < 2; k++) {
        const head_group g = q_or_k(work->config, k);
        char *d = column(gradient(work, s->out[0]), g.col, work->type);
        submit_norm_backward(work->c->queue, work->c->shape, (op_norm_backward){
            .kind = work->config->norm, .type = work->type, .accumulate = !work->first, .rows = work->rows, .heads = g.heads, .dim = g.dim,
            .ldx = columns(work, s->in[0]), .lddy = wide, .lddx = wide, .eps = work->config->norm_eps, .offset = work->config->norm_offset,
            .x = column(tensor(work, s->in[0]), g.col, work->type), .weight = weight_of(work, s->param[k]), .dy = d, .dx = d,
            .dweight = accumulator(work, s->param[k]), .scratch = scratch(work, s, 0)});
    }
}

const stage_type stage_head_norm = {.name = "head_norm", .by_row = true, .touches = touches, .scratch = scratch_bytes,
                                    .pass = {forward, input}};
