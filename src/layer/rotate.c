/* rotate.c - rotary positions of q and k, in place. */
#include "layer/work.h"

static unsigned touches(const layer_stage *stage, step_pass pass) { return pass == PASS_FORWARD ? TOUCH_OUT(0) : TOUCH_OUT_GRADIENT(0); }

/* `heads` of the rows of q, k and v, from column `col` on: their first elements, or with latent attention their last ones. */
static void rotate(const layer_work *work, const layer_stage *stage, int which, int64_t heads, int64_t col, void *qkv, bool inverse)
{
    const int64_t dim = model_heads(work->config, work->layer).dim, rotated = work->config->rope[which].rotated;
    const int64_t first = work->config->kv_latent ? dim - rotated : 0;
    queue_submit(work->c->queue, &(op){OP_ROPE, .rope = {
        .type = work->type, .inverse = inverse, .rows = work->rows, .heads = heads, .dim = dim,
        .ld = columns(work, stage->out[0]), .table = work->u->rope[which], .positions = work->u->positions,
        .x = column(qkv, col + first, work->type), .rotated = rotated, .neighbours = work->config->rope_neighbours}});
}

static void rotate_both(const layer_work *work, const layer_stage *stage, void *qkv, bool inverse)
{
    const model_config *m = work->config;
    const attention_heads h = heads_of(work);
    const int which = m->layer_rope[work->layer];
    if (m->query_rope < 0) {
        rotate(work, stage, which, h.heads + (model_reads_kv(m, work->layer) ? 0 : h.kv_heads), 0, qkv, inverse);
        return;
    }
    const qkv_columns at = qkv_of(work);
    rotate(work, stage, m->query_rope, h.heads, at.q, qkv, inverse);
    rotate(work, stage, which, h.kv_heads, at.k, qkv, inverse);
}

static void forward(const layer_work *work, const layer_stage *stage) { rotate_both(work, stage, tensor(work, stage->out[0]), false); }
static void input(const layer_work *work, const layer_stage *stage) { rotate_both(work, stage, gradient(work, stage->out[0]), true); }

const stage_type stage_rotate = {.name = "rotate", .by_row = true, .touches = touches, .pass = {forward, input}};
