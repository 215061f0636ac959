/* share.c - keys and values that later layers read, too. Forward copies them to where layers hand them on. Backward adds the sum of the
 * readers' gradients to the layer's own: the last reader begins the sum, and the layer that made them adds it to its own gradient last. */
#include "layer/work.h"

static int64_t both(const layer_work *work) { return 2 * model_heads(work->config, work->layer).kv_wide; }

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    return pass == PASS_FORWARD ? TOUCH_IN(0) : TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(0);
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    const int64_t values = 2 * model_heads(&at->model->config, at->layer).kv_wide;
    return k ? 0 : (uint64_t)(at->shape->unit_rows * values) * dtype_bytes(at->shape->type);
}

/* The columns of keys and values among those of q, k and v. */
static char *keys_in(const layer_work *work, void *qkv)
{
    return column(qkv, model_qkv_columns(work->config, work->layer).k, work->type);
}

static void copy(const layer_work *work, void *to, int64_t to_wide, const void *from, int64_t from_wide)
{
    const size_t each = dtype_bytes(work->type);
    queue_submit(work->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {to, from, work->rows, (size_t)both(work) * each,
                                                                   (size_t)to_wide * each, (size_t)from_wide * each}});
}

/* In generation the cache has them. */
static void forward(const layer_work *work, const layer_stage *stage)
{
    if (!work->u->cache)
        copy(work, tensor(work, stage->out[0]), both(work), keys_in(work, tensor(work, stage->in[0])), columns(work, stage->in[0]));
}

static float *sums_of(const layer_work *work) { return carried_gradient(work) + work->row * both(work); }

void share_add_gradient(const layer_work *work, const void *dkv, bool begins)
{
    queue_submit(work->c->queue, &(op){OP_COMBINE, .combine = {
        .type = work->type, .rows = work->rows, .cols = both(work), .k = 1, .y_at = AT_ROW, .y = dkv, .sums = sums_of(work),
        .continues = !begins}});
}

static void input(const layer_work *work, const layer_stage *stage)
{
    char *own = scratch(work, stage, 0), *dk = keys_in(work, gradient(work, stage->in[0]));
    const int64_t wide = columns(work, stage->in[0]);
    copy(work, own, both(work), dk, wide);
    queue_submit(work->c->queue, &(op){OP_COMBINE, .combine = {
        .type = work->type, .rows = work->rows, .cols = both(work), .k = 1, .y_at = AT_ROW, .y = own, .sums = sums_of(work),
        .continues = true, .out = own}});
    copy(work, dk, wide, own, both(work));
}

const stage_type stage_share = {.name = "share", .by_row = true, .touches = touches, .scratch = scratch_bytes, .pass = {forward, input}};
