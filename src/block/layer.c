/* layer.c - a decoder layer: the ops of each kind of stage, forward and backward. model/layer.h has the list of stages and their order in
 * backward.
 *
 * If the stream is kept in fp32 (block.h), the ends of the branches add to it, and the layer's output is its rounding. Backward first
 * runs the forward stages again whose results it reads and which were not saved. This recomputation does not touch the stream, which
 * holds a gradient by then.
 */
#include "block/layer_parts.h"

#include "model/adapter.h"

static layer layer_open(const block_context *c, int block, const layer_layout *l, const block_weights *w,
                        const block_unit *u, char *saved, char *workspace)
{
    const model_config *m = &c->model->config;
    layer y = {.c = c, .config = m, .l = l, .w = w, .u = u, .saved = saved, .workspace = workspace, .block = block};
    y.rows = c->shape->unit_rows;
    y.hidden = m->hidden;
    y.q_cols = m->heads * m->head_dim;
    y.kv_cols = m->kv_heads * m->head_dim;
    y.qkv_cols = y.q_cols + 2 * y.kv_cols;
    y.type = c->shape->type;
    return y;
}

/* ---- norms ---- */

static void norm(const layer *y, const layer_stage *s)
{
    queue_submit(y->c->queue, &(op){OP_NORM, .norm = {
        .kind = y->config->norm, .type = y->type, .rows = y->rows, .heads = 1, .dim = y->hidden, .ldx = y->hidden,
        .ldy = y->hidden, .eps = y->config->norm_eps, .offset = y->config->norm_offset, .x = tensor(y, s->in),
        .weight = weight_of(y, s->weight), .bias = weight_of(y, s->bias), .y = tensor(y, s->out)}});
}

/* After a branch: adds its output, as linear_add does. */
static void norm_add(const layer *y, const layer_stage *s)
{
    queue_submit(y->c->queue, &(op){OP_NORM, .norm = {
        .kind = y->config->norm, .type = y->type, .rows = y->rows, .heads = 1, .dim = y->hidden, .ldx = y->hidden,
        .ldy = y->hidden, .eps = y->config->norm_eps, .offset = y->config->norm_offset, .x = tensor(y, s->in),
        .weight = weight_of(y, s->weight), .residual = residual_of(y, s), .stream = y->stream, .y = tensor(y, s->out)}});
}

static void norm_add_input(const layer *y, const layer_stage *s)
{
    queue_submit(y->c->queue, &(op){OP_NORM_BACKWARD, .norm_backward = {
        .kind = y->config->norm, .type = y->type, .accumulate = !y->first, .rows = y->rows, .heads = 1, .dim = y->hidden,
        .ldx = y->hidden, .lddy = y->hidden, .lddx = y->hidden, .eps = y->config->norm_eps, .offset = y->config->norm_offset,
        .x = tensor(y, s->in), .weight = weight_of(y, s->weight), .dy = y->out, .dx = gradient(y, s->in),
        .dweight = accumulator(y, s->weight), .scratch = scratch(y, s)}});
}

/* Is the gradient of the stage's weights added to what is there: of earlier rows, or of a later stage with the same weights? */
static bool adds(const layer *y, const layer_stage *s)
{
    for (const layer_stage *later = s + 1; later < y->l->stages.of + y->l->stages.n; later++)
        if (later->weight == s->weight)
            return true;
    return !y->first;
}

/* Before a branch: adds the input's gradient to the stream's; the output replaces its own gradient. */
static void norm_input(const layer *y, const layer_stage *s)
{
    void *d = gradient(y, s->out);
    queue_submit(y->c->queue, &(op){OP_NORM_BACKWARD, .norm_backward = {
        .kind = y->config->norm, .type = y->type, .accumulate = adds(y, s), .rows = y->rows, .heads = 1, .dim = y->hidden,
        .ldx = y->hidden, .lddy = y->hidden, .lddx = y->hidden, .eps = y->config->norm_eps, .offset = y->config->norm_offset,
        .x = tensor(y, s->in), .weight = weight_of(y, s->weight), .dy = d, .dx_add = y->u->stream ? NULL : y->out, .dx = y->out,
        .stream_add = y->u->stream, .stream = y->u->stream, .dweight = accumulator(y, s->weight),
        .dbias = accumulator(y, s->bias), .scratch = scratch(y, s), .bias = weight_of(y, s->bias), .y = d}});
}

/* ---- attention ---- */

/* `heads` of the rows of q, k and v, from column `col` on. */
static void rotate(const layer *y, int which, int64_t heads, int64_t col, void *qkv, bool inverse)
{
    queue_submit(y->c->queue, &(op){OP_ROPE, .rope = {
        .type = y->type, .inverse = inverse, .rows = y->rows, .heads = heads, .dim = y->config->head_dim, .ld = y->qkv_cols,
        .table = y->u->rope[which], .positions = y->u->positions, .x = column(qkv, col, y->type),
        .rotated = y->config->rope[which].rotated, .neighbours = y->config->rope_neighbours}});
}

static void rope(const layer *y, void *qkv, bool inverse)
{
    const model_config *m = y->config;
    const int which = m->layer_rope[y->c->model->blocks[y->block].layer];
    if (which < 0)
        return;
    if (m->query_rope < 0) {
        rotate(y, which, m->heads + m->kv_heads, 0, qkv, inverse);
        return;
    }
    rotate(y, m->query_rope, m->heads, 0, qkv, inverse);
    rotate(y, which, m->kv_heads, y->q_cols, qkv, inverse);
}

/* The heads of q or of k, in the shape of their norm. */
typedef struct head_group { int64_t heads, dim, col; param_role weight; } head_group;

static head_group q_or_k(const layer *y, bool k)
{
    const model_config *m = y->config;
    const int64_t heads = k ? m->kv_heads : m->heads, col = k ? y->q_cols : 0;
    const param_role weight = k ? PARAM_KNORM : PARAM_QNORM;
    return m->qk_norm == QK_NORM_WIDE ? (head_group){1, heads * m->head_dim, col, weight} : (head_group){heads, m->head_dim, col, weight};
}

static void head_norm(const layer *y, const layer_stage *s, head_group g)
{
    queue_submit(y->c->queue, &(op){OP_NORM, .norm = {
        .kind = y->config->norm, .type = y->type, .rows = y->rows, .heads = g.heads, .dim = g.dim,
        .ldx = y->q_cols + y->kv_cols, .ldy = y->qkv_cols, .eps = y->config->norm_eps, .offset = y->config->norm_offset,
        .x = column(tensor(y, s->side), g.col, y->type), .weight = weight_of(y, g.weight),
        .y = column(tensor(y, s->out), g.col, y->type)}});
}

static void head_norm_backward(const layer *y, const layer_stage *s, head_group g)
{
    char *d = column(gradient(y, s->out), g.col, y->type);
    queue_submit(y->c->queue, &(op){OP_NORM_BACKWARD, .norm_backward = {
        .kind = y->config->norm, .type = y->type, .accumulate = !y->first, .rows = y->rows, .heads = g.heads,
        .dim = g.dim, .ldx = y->q_cols + y->kv_cols, .lddy = y->qkv_cols, .lddx = y->qkv_cols,
        .eps = y->config->norm_eps, .offset = y->config->norm_offset, .x = column(tensor(y, s->side), g.col, y->type),
        .weight = weight_of(y, g.weight), .dy = d,
        .dx = d, .dweight = accumulator(y, g.weight), .scratch = scratch(y, s)}});
}

/* q and k get a separate tensor if a norm follows. */
static void qkv(const layer *y, const layer_stage *s)
{
    const int64_t normed = s->side == LAYER_NONE ? 0 : y->q_cols + y->kv_cols;
    if (normed)
        linear_rows(y, s, linear_op(y, s, normed, normed, tensor(y, s->side)), 0);
    linear_rows(y, s, linear_op(y, s, y->qkv_cols - normed, y->qkv_cols, column(tensor(y, s->out), normed, y->type)), normed);
    for (int k = 0; k < 2 && normed; k++)
        head_norm(y, s, q_or_k(y, k));
    rope(y, tensor(y, s->out), false);
}

static void qkv_input(const layer *y, const layer_stage *s)
{
    rope(y, gradient(y, s->out), true);
    for (int k = 0; k < 2 && s->side != LAYER_NONE; k++)
        head_norm_backward(y, s, q_or_k(y, k));
    linear_input(y, s);
}

static op_attention attention_of(const layer *y, const layer_stage *s)
{
    const model_config *m = y->config;
    char *qkv = tensor(y, s->in);
    int index = y->c->model->blocks[y->block].layer;
    int64_t t = y->c->shape->seq_len;
    op_attention o = {
        .type = y->type, .seqs = y->c->shape->unit_seqs, .q_len = t, .kv_len = t, .heads = m->heads, .kv_heads = m->kv_heads,
        .dim = m->head_dim, .window = m->window[index], .ldq = y->qkv_cols, .ldkv = y->qkv_cols, .ldo = y->q_cols,
        .scale = m->attention_scale * m->layer_scale[index], .softcap = m->attention_softcap, .first = y->u->first, .q = qkv,
        .k = column(qkv, y->q_cols, y->type), .v = column(qkv, y->q_cols + y->kv_cols, y->type),
        .out = tensor(y, s->out), .lse = tensor(y, s->side)};
    if (y->u->cache) {
        o.kv_len += y->u->cache->past;
        o.ldkv = 2 * y->kv_cols;
        o.k = y->u->cache->rows;
        o.v = column(y->u->cache->rows, y->kv_cols, y->type);
        o.lse = NULL;
    }
    return o;
}

static void append_to_cache(const layer *y, const void *qkv)
{
    const block_cache *k = y->u->cache;
    const size_t each = dtype_bytes(y->type), bytes = (size_t)(2 * y->kv_cols) * each;
    queue_submit(y->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {
        column(k->rows, k->past * 2 * y->kv_cols, y->type), column(qkv, y->q_cols, y->type), y->rows, bytes, bytes,
        (size_t)y->qkv_cols * each}});
}

static void attention(const layer *y, const layer_stage *s)
{
    if (y->u->cache)
        append_to_cache(y, tensor(y, s->in));
    queue_submit(y->c->queue, &(op){OP_ATTENTION, .attention = attention_of(y, s)});
}

static void attention_input(const layer *y, const layer_stage *s)
{
    const model_config *m = y->config;
    const step_shape *h = y->c->shape;
    char *dqkv = gradient(y, s->in);
    const bool sums = attention_accumulator_bytes(h->unit_seqs, h->seq_len, m->kv_heads, m->head_dim) > 0;
    queue_submit(y->c->queue, &(op){OP_ATTENTION_BACKWARD, .attention_backward = {
        .forward = attention_of(y, s), .lddo = y->q_cols, .dout = gradient(y, s->out), .dq = dqkv,
        .dk = column(dqkv, y->q_cols, y->type), .dv = column(dqkv, y->q_cols + y->kv_cols, y->type),
        .scratch = scratch(y, s), .sums = sums ? (float *)(y->workspace + y->at[REGION_ACCUMULATORS + (s - y->l->stages.of)]) : NULL}});
}

/* ---- activation ---- */

static void activation(const layer *y, const layer_stage *s)
{
    queue_submit(y->c->queue, &(op){OP_ACTIVATION, .activation = {
        .kind = y->config->activation, .gated = y->config->gated, .type = y->type, .rows = y->rows, .cols = y->config->ffn,
        .up = tensor(y, s->in), .out = tensor(y, s->out)}});
}

/* The output replaces its own gradient. */
static void activation_input(const layer *y, const layer_stage *s)
{
    void *d = gradient(y, s->out);
    queue_submit(y->c->queue, &(op){OP_ACTIVATION_BACKWARD, .activation_backward = {
        .kind = y->config->activation, .gated = y->config->gated, .type = y->type, .rows = y->rows, .cols = y->config->ffn,
        .up = tensor(y, s->in), .dout = d, .dup = gradient(y, s->in), .out = d}});
}

/* ---- all stages ---- */

static const struct stage_ops { void (*forward)(const layer *, const layer_stage *), (*input)(const layer *, const layer_stage *);
                               } ops[] = {
    [STAGE_NORM] = {norm, norm_input},
    [STAGE_NORM_ADD] = {norm_add, norm_add_input},
    [STAGE_LINEAR] = {linear, linear_input},
    [STAGE_LINEAR_ADD] = {linear_add, linear_input},
    [STAGE_QKV] = {qkv, qkv_input},
    [STAGE_ATTENTION] = {attention, attention_input},
    [STAGE_ACTIVATION] = {activation, activation_input},
    [STAGE_LOW] = {adapter_low, NULL},
    [STAGE_GAIN] = {adapter_gain, NULL},
};

static void run_step(const layer *y, layer_step step)
{
    const layer_stage *s = &y->l->stages.of[step.stage];
    if (step.pass == PASS_FORWARD)
        ops[s->kind].forward(y, s);
    else if (step.pass == PASS_INPUT)
        ops[s->kind].input(y, s);
    else
        linear_weights(y, s);
}

void layer_forward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                   char *saved, char *workspace, void *out)
{
    layer y = layer_open(c, block, l, w, u, saved, workspace);
    y.at = l->forward_at;
    y.stream = u->stream;
    y.out = out;
    for (int i = 0; i < l->stages.n; i++)
        run_step(&y, (layer_step){PASS_FORWARD, i});
}

void layer_gains(const block_context *c, int block, const layer_layout *l, const block_weights *w, char *workspace)
{
    layer y = layer_open(c, block, l, w, NULL, NULL, workspace);
    y.at = l->forward_at;
    for (int i = 0; i < l->stages.n; i++)
        if (l->stages.of[i].kind == STAGE_GAIN)
            adapter_measure_gain(&y, &l->stages.of[i], w->gains[adapter_matrix(l->stages.of[i].weight)]);
}

void layer_recompute(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                     char *saved, char *workspace)
{
    layer y = layer_open(c, block, l, w, u, saved, workspace);
    y.at = l->backward_at;
    for (int i = 0; i < l->again_n; i++)
        run_step(&y, l->backward[i]);
}

void layer_backward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                    char *saved, char *workspace, void *dx, float *accumulators, bool first)
{
    layer y = layer_open(c, block, l, w, u, saved, workspace);
    y.at = l->backward_at;
    y.out = dx;
    y.accumulators = accumulators;
    y.first = first;
    for (int i = 0; i < l->backward_n; i++)
        run_step(&y, l->backward[i]);
}
