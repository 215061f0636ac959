/* latent.c - latent attention (DeepSeek-AI, "DeepSeek-V2", 2024): q, k and v from what its matrices make of latents, and its values.
 *
 *   latents        of queries (or queries) | of keys and values | shared keys         H heads of D elements, S of which are shared
 *   kv             of each head: keys (D - S) | values (V)
 *   q, k, v        as in other attention, H heads of D elements each; the values have D - V zeros behind them
 *
 * Attention's kernels know one size of heads. So values are computed in D columns, and a stage behind attention takes the V columns of each
 * head that hold them. */
#include "layer/work.h"

/* The sizes of heads; the columns of the shared keys among the latents, and of keys and values among q, k and v. */
typedef struct latent_heads { int64_t heads, dim, own, shared, value, each, shared_at, k, v, wide; } latent_heads;

static latent_heads heads_in(const layer_work *work, const layer_stage *stage)
{
    const model_config *config = work->config;
    const qkv_columns at = model_qkv_columns(config, work->layer);
    const int64_t own = config->head_dim - config->shared_dim, last = columns(work, stage->in[HEADS_LATENTS]) - config->shared_dim;
    return (latent_heads){
        config->heads, config->head_dim, own, config->shared_dim, config->value_dim, own + config->value_dim, last, at.k, at.v, at.all};
}

static void move(const layer_work *work, op_heads o)
{
    o.type = work->type, o.rows = work->rows, o.heads = work->config->heads;
    queue_submit(work->c->queue, &(op){OP_HEADS, .heads = o});
}

/* ---- q, k and v ---- */

static unsigned heads_touches(const layer_stage *stage, step_pass pass)
{
    return pass == PASS_FORWARD
               ? TOUCH_IN(0) | TOUCH_IN(HEADS_LATENTS) | TOUCH_IN(HEADS_QUERIES) | TOUCH_OUT(0)
               : TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_IN_GRADIENT(HEADS_LATENTS) | TOUCH_IN_GRADIENT(HEADS_QUERIES);
}

/* The queries, or the latents, which begin with them. */
static int queries(const layer_stage *stage) { return stage->in[stage->in[HEADS_QUERIES] == LAYER_NONE ? HEADS_LATENTS : HEADS_QUERIES]; }

static void heads_forward(const layer_work *work, const layer_stage *stage)
{
    const latent_heads h = heads_in(work, stage);
    const int q = queries(stage), latents = stage->in[HEADS_LATENTS];
    const int64_t kv_wide = columns(work, stage->in[0]), latents_wide = columns(work, latents);
    char *kv = tensor(work, stage->in[0]), *out = tensor(work, stage->out[0]);
    move(work, (op_heads){.cols = h.dim, .given = h.dim, .ld_from = columns(work, q), .head_from = h.dim, .ld_to = h.wide, .head_to = h.dim,
                          .from = tensor(work, q), .to = out});
    move(work, (op_heads){.cols = h.own, .given = h.own, .ld_from = kv_wide, .head_from = h.each, .ld_to = h.wide, .head_to = h.dim,
                          .from = kv, .to = column(out, h.k, work->type)});
    move(work, (op_heads){.cols = h.shared, .given = h.shared, .ld_from = latents_wide, .ld_to = h.wide, .head_to = h.dim,
                          .from = column(tensor(work, latents), h.shared_at, work->type),
                          .to = column(out, h.k + h.own, work->type)});
    move(work, (op_heads){.cols = h.dim, .given = h.value, .ld_from = kv_wide, .head_from = h.each, .ld_to = h.wide, .head_to = h.dim,
                          .from = column(kv, h.own, work->type), .to = column(out, h.v, work->type)});
}

/* The gradient of the shared keys is the sum over the heads. */
static void heads_input(const layer_work *work, const layer_stage *stage)
{
    const latent_heads h = heads_in(work, stage);
    const int q = queries(stage), latents = stage->in[HEADS_LATENTS];
    const int64_t kv_wide = columns(work, stage->in[0]), latents_wide = columns(work, latents);
    char *dkv = gradient(work, stage->in[0]), *d = gradient(work, stage->out[0]);
    move(work, (op_heads){.cols = h.dim, .given = h.dim, .ld_from = h.wide, .head_from = h.dim, .ld_to = columns(work, q), .head_to = h.dim,
                          .from = d, .to = gradient(work, q)});
    move(work, (op_heads){.cols = h.own, .given = h.own, .ld_from = h.wide, .head_from = h.dim, .ld_to = kv_wide, .head_to = h.each,
                          .from = column(d, h.k, work->type), .to = dkv});
    move(work, (op_heads){.cols = h.shared, .given = h.shared, .ld_from = h.wide, .head_from = h.dim, .ld_to = latents_wide,
                          .from = column(d, h.k + h.own, work->type),
                          .to = column(gradient(work, latents), h.shared_at, work->type)});
    move(work, (op_heads){.cols = h.value, .given = h.value, .ld_from = h.wide, .head_from = h.dim, .ld_to = kv_wide, .head_to = h.each,
                          .from = column(d, h.v, work->type), .to = column(dkv, h.own, work->type)});
}

const stage_type stage_heads = {.name = "heads", .by_row = true, .touches = heads_touches, .pass = {heads_forward, heads_input}};

/* ---- values ---- */

static unsigned values_touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | (pass == PASS_FORWARD ? TOUCH_OUT(0) : TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0));
}

static void take_values(const layer_work *work, const layer_stage *stage, void *to)
{
    const model_config *config = work->config;
    move(work, (op_heads){.cols = config->value_dim,
                          .given = config->value_dim,
                          .ld_from = columns(work, stage->in[0]),
                          .head_from = config->head_dim,
                          .ld_to = columns(work, stage->out[0]),
                          .head_to = config->value_dim,
                          .from = tensor(work, stage->in[0]),
                          .to = to});
}

static void values_forward(const layer_work *work, const layer_stage *stage) { take_values(work, stage, tensor(work, stage->out[0])); }

/* The output replaces its own gradient. */
static void values_input(const layer_work *work, const layer_stage *stage)
{
    const model_config *config = work->config;
    void *d = gradient(work, stage->out[0]);
    move(work, (op_heads){.cols = config->head_dim,
                          .given = config->value_dim,
                          .ld_from = columns(work, stage->out[0]),
                          .head_from = config->value_dim,
                          .ld_to = columns(work, stage->in[0]),
                          .head_to = config->head_dim,
                          .from = d,
                          .to = gradient(work, stage->in[0])});
    take_values(work, stage, d);
}

const stage_type stage_values = {.name = "values", .rewrites = true, .by_row = true, .touches = values_touches,
                                 .pass = {values_forward, values_input}};
