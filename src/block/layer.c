/* layer.c - a decoder layer.
 *
 *   n1 = norm(x)     qkv = n1 Wqkv + b    [q and k normed]  rotated    att = attention(q, k, v)
 *   xm = x + att Wo + bo
 *   n2 = norm(xm)    up = n2 Wup + b      act = f(up)                  out = xm + act Wdown + b
 *
 * Where the stream is kept in fp32 (block.h), both products are added to it, and out is its rounding.
 *
 * Backward first runs those stages of forward again whose results were not saved. n1, n2 and act never are: the backward of a norm or
 * an activation hands them out once more, in place of their gradients, for the weight gradient that comes after it.
 */
#include "block/block.h"

typedef struct layer {
    const block_context *c;
    const model_config *config;
    const layer_layout *l;
    const block_weights *w;
    const block_unit *u;
    char *saved, *workspace;
    float *stream; /* to which forward adds; NULL while backward computes again */
    int block;
    int64_t rows, hidden, q_cols, kv_cols, qkv_cols, up_cols;
    pt_dtype type;
} layer;

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
    y.up_cols = m->ffn * (m->gated ? 2 : 1);
    y.type = c->shape->type;
    return y;
}

static void *tensor(const layer *y, layer_tensor t) { return (y->l->saved[t] ? y->saved : y->workspace) + y->l->tensor[t]; }
static void *temp(const layer *y, layer_temp t) { return y->workspace + y->l->temp[t]; }
static char *column(void *base, int64_t col, pt_dtype type) { return (char *)base + (size_t)col * dtype_bytes(type); }

/* ---- ops ---- */

static void norm(const layer *y, const void *x, param_role weight, param_role bias, void *out)
{
    queue_submit(y->c->queue, &(op){OP_NORM, .norm = {
        .kind = y->config->norm, .type = y->type, .rows = y->rows, .heads = 1, .dim = y->hidden, .ldx = y->hidden,
        .ldy = y->hidden, .eps = y->config->norm_eps, .x = x, .weight = y->w->param[weight], .bias = y->w->param[bias], .y = out}});
}

/* out (rows, n), stride ldc = a (rows, k) . W[row0 .. row0 + n)^T + bias */
static void linear_rows(const layer *y, const void *a, int64_t k, param_role weight, param_role bias, int64_t row0,
                        int64_t n, int64_t ldc, void *out)
{
    void *w = (void *)y->w->param[weight], *b = (void *)y->w->param[bias];
    queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NT, .type = y->type, .out_type = y->type, .m = y->rows, .n = n, .k = k, .lda = k, .ldb = k,
        .ldc = ldc, .a = a, .b = column(w, row0 * k, y->type), .bias = b ? column(b, row0, y->type) : NULL,
        .c = out}});
}

/* out (rows, C) = round(residual + a (rows, k) . W^T + bias); the product is added to the stream too. Without a residual,
 * out is the stream's rounding. */
static void linear_add(const layer *y, const void *a, int64_t k, param_role weight, param_role bias, const void *residual,
                       void *out)
{
    queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NT, .type = y->type, .out_type = y->type, .m = y->rows, .n = y->hidden, .k = k, .lda = k, .ldb = k,
        .ldc = y->hidden, .a = a, .b = y->w->param[weight], .bias = y->w->param[bias], .residual = residual,
        .stream = y->stream, .c = out}});
}

static void rope(const layer *y, void *x, int64_t heads, int64_t ld, bool inverse)
{
    if (y->config->position != POSITION_ROTARY)
        return;
    queue_submit(y->c->queue, &(op){OP_ROPE, .rope = {
        .type = y->type, .inverse = inverse, .rows = y->rows, .heads = heads, .dim = y->config->head_dim, .ld = ld,
        .table = y->u->rope, .positions = y->u->positions, .x = x}});
}

static op_attention attention_of(const layer *y, char *qkv)
{
    const model_config *m = y->config;
    int index = y->c->model->blocks[y->block].layer;
    int64_t t = y->c->shape->seq_len;
    op_attention o = {
        .type = y->type, .seqs = y->c->shape->unit_seqs, .q_len = t, .kv_len = t, .heads = m->heads, .kv_heads = m->kv_heads,
        .dim = m->head_dim, .window = m->window[index], .ldq = y->qkv_cols, .ldkv = y->qkv_cols, .ldo = y->q_cols,
        .scale = m->attention_scale * m->layer_scale[index], .first = y->u->first, .q = qkv,
        .k = column(qkv, y->q_cols, y->type), .v = column(qkv, y->q_cols + y->kv_cols, y->type),
        .out = tensor(y, LAYER_ATT), .lse = tensor(y, LAYER_LSE)};
    if (y->u->cache) {
        o.kv_len += y->u->cache->past;
        o.ldkv = 2 * y->kv_cols;
        o.k = y->u->cache->rows;
        o.v = column(y->u->cache->rows, y->kv_cols, y->type);
        o.lse = NULL;
    }
    return o;
}

/* ---- forward ---- */

static void forward_n1(const layer *y) { norm(y, tensor(y, LAYER_X), PARAM_NORM1, PARAM_NORM1_BIAS, tensor(y, LAYER_N1)); }

/* q and k into a tensor of their own, where a norm follows. */
static void forward_qk(const layer *y)
{
    if (y->config->qk_norm)
        linear_rows(y, tensor(y, LAYER_N1), y->hidden, PARAM_QKV, PARAM_QKV_BIAS, 0, y->q_cols + y->kv_cols,
                    y->q_cols + y->kv_cols, tensor(y, LAYER_QK));
}

static void head_norm(const layer *y, int64_t heads, int64_t col, param_role weight)
{
    queue_submit(y->c->queue, &(op){OP_NORM, .norm = {
        .kind = y->config->norm, .type = y->type, .rows = y->rows, .heads = heads, .dim = y->config->head_dim,
        .ldx = y->q_cols + y->kv_cols, .ldy = y->qkv_cols, .eps = y->config->norm_eps,
        .x = column(tensor(y, LAYER_QK), col, y->type), .weight = y->w->param[weight],
        .y = column(tensor(y, LAYER_QKV), col, y->type)}});
}

static void forward_qkv(const layer *y)
{
    const model_config *m = y->config;
    int64_t done = m->qk_norm ? y->q_cols + y->kv_cols : 0;
    linear_rows(y, tensor(y, LAYER_N1), y->hidden, PARAM_QKV, PARAM_QKV_BIAS, done, y->qkv_cols - done, y->qkv_cols,
                column(tensor(y, LAYER_QKV), done, y->type));
    if (m->qk_norm) {
        head_norm(y, m->heads, 0, PARAM_QNORM);
        head_norm(y, m->kv_heads, y->q_cols, PARAM_KNORM);
    }
    rope(y, tensor(y, LAYER_QKV), m->heads + m->kv_heads, y->qkv_cols, false);
}

static void append_to_cache(const layer *y)
{
    const block_cache *k = y->u->cache;
    const size_t each = dtype_bytes(y->type), bytes = (size_t)(2 * y->kv_cols) * each;
    queue_submit(y->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {
        column(k->rows, k->past * 2 * y->kv_cols, y->type), column(tensor(y, LAYER_QKV), y->q_cols, y->type), y->rows, bytes, bytes,
        (size_t)y->qkv_cols * each}});
}

static void forward_attention(const layer *y)
{
    if (y->u->cache)
        append_to_cache(y);
    queue_submit(y->c->queue, &(op){OP_ATTENTION, .attention = attention_of(y, tensor(y, LAYER_QKV))});
}

static void forward_xm(const layer *y)
{
    linear_add(y, tensor(y, LAYER_ATT), y->q_cols, PARAM_OUT, PARAM_OUT_BIAS, tensor(y, LAYER_X), tensor(y, LAYER_XM));
}

static void forward_n2(const layer *y) { norm(y, tensor(y, LAYER_XM), PARAM_NORM2, PARAM_NORM2_BIAS, tensor(y, LAYER_N2)); }

static void forward_up(const layer *y)
{
    linear_rows(y, tensor(y, LAYER_N2), y->hidden, PARAM_UP, PARAM_UP_BIAS, 0, y->up_cols, y->up_cols, tensor(y, LAYER_UP));
}

static void forward_act(const layer *y)
{
    queue_submit(y->c->queue, &(op){OP_ACTIVATION, .activation = {
        .kind = y->config->activation, .gated = y->config->gated, .type = y->type, .rows = y->rows, .cols = y->config->ffn,
        .up = tensor(y, LAYER_UP), .out = tensor(y, LAYER_ACT)}});
}

/* What makes each tensor, in the order in which they are made. */
static void (*const stages[LAYER_TENSORS])(const layer *) = {
    [LAYER_N1] = forward_n1, [LAYER_QK] = forward_qk, [LAYER_QKV] = forward_qkv, [LAYER_ATT] = forward_attention,
    [LAYER_XM] = forward_xm, [LAYER_N2] = forward_n2,   [LAYER_UP] = forward_up, [LAYER_ACT] = forward_act};

void layer_forward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                   char *saved, char *workspace, void *out)
{
    layer y = layer_open(c, block, l, w, u, saved, workspace);
    y.stream = u->stream;
    for (int t = 0; t < LAYER_TENSORS; t++)
        if (stages[t])
            stages[t](&y);
    linear_add(&y, tensor(&y, LAYER_ACT), y.config->ffn, PARAM_DOWN, PARAM_DOWN_BIAS, y.stream ? NULL : tensor(&y, LAYER_XM), out);
}

/* ---- backward ---- */

typedef struct gradients { float *base; bool first; } gradients;

static float *accumulator(const layer *y, const gradients *g, param_role role)
{
    const param *p = block_param(y->c->model, &y->c->model->blocks[y->block], role);
    return p && p->trainable ? g->base + accumulator_offset(y->c->model, y->block, role) : NULL;
}

/* From dy (rows, n) and the input a (rows, k): the gradients of W (n, k) and its bias. */
static void weight_gradient(const layer *y, const gradients *g, const void *dy, int64_t n, const void *a, int64_t k,
                            param_role weight, param_role bias)
{
    float *dw = accumulator(y, g, weight), *db = accumulator(y, g, bias);
    if (dw)
        queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = {
            .layout = MATMUL_TN, .type = y->type, .out_type = PT_F32, .accumulate = !g->first, .m = n, .n = k, .k = y->rows,
            .lda = n, .ldb = k, .ldc = k, .a = dy, .b = a, .c = dw}});
    if (db)
        queue_submit(y->c->queue, &(op){OP_BIAS_BACKWARD, .bias_backward = {
            .type = y->type, .accumulate = !g->first, .rows = y->rows, .cols = n, .ld = n, .dy = dy, .acc = db}});
}

/* From dy (rows, n): that of the input, da (rows, k). */
static void input_gradient(const layer *y, const void *dy, int64_t n, int64_t k, param_role weight, void *da)
{
    queue_submit(y->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NN, .type = y->type, .out_type = y->type, .m = y->rows, .n = k, .k = n, .lda = n, .ldb = k, .ldc = k,
        .a = dy, .b = y->w->param[weight], .c = da}});
}

/* The activation's output takes the place of its gradient dact. */
static void activation_backward(const layer *y, void *dact, void *dup)
{
    queue_submit(y->c->queue, &(op){OP_ACTIVATION_BACKWARD, .activation_backward = {
        .kind = y->config->activation, .gated = y->config->gated, .type = y->type, .rows = y->rows, .cols = y->config->ffn,
        .up = tensor(y, LAYER_UP), .dout = dact, .dup = dup, .out = dact}});
}

/* dx += the norm's input gradient; in the stream where there is one, and dx is its rounding. The norm's output takes the place of its
 * gradient dn. */
static void norm_backward(const layer *y, const gradients *g, const void *x, param_role weight, param_role bias, void *dn, void *dx,
                          layer_temp sums)
{
    queue_submit(y->c->queue, &(op){OP_NORM_BACKWARD, .norm_backward = {
        .kind = y->config->norm, .type = y->type, .accumulate = !g->first, .rows = y->rows, .heads = 1, .dim = y->hidden,
        .ldx = y->hidden, .lddy = y->hidden, .lddx = y->hidden, .eps = y->config->norm_eps, .x = x,
        .weight = y->w->param[weight], .dy = dn, .dx_add = y->u->stream ? NULL : dx, .dx = dx,
        .stream_add = y->u->stream, .stream = y->u->stream, .dweight = accumulator(y, g, weight),
        .dbias = accumulator(y, g, bias), .scratch = temp(y, sums), .bias = y->w->param[bias], .y = dn}});
}

static void head_norm_backward(const layer *y, const gradients *g, int64_t heads, int64_t col, param_role weight)
{
    char *d = column(temp(y, TEMP_DQKV), col, y->type);
    queue_submit(y->c->queue, &(op){OP_NORM_BACKWARD, .norm_backward = {
        .kind = y->config->norm, .type = y->type, .accumulate = !g->first, .rows = y->rows, .heads = heads,
        .dim = y->config->head_dim, .ldx = y->q_cols + y->kv_cols, .lddy = y->qkv_cols, .lddx = y->qkv_cols,
        .eps = y->config->norm_eps, .x = column(tensor(y, LAYER_QK), col, y->type), .weight = y->w->param[weight], .dy = d,
        .dx = d, .dweight = accumulator(y, g, weight), .scratch = temp(y, TEMP_SCRATCH)}});
}

static void attention_backward(const layer *y, const gradients *g)
{
    const model_config *m = y->config;
    char *dqkv = temp(y, TEMP_DQKV);
    const step_shape *s = y->c->shape;
    bool sums = attention_sums_bytes(s->unit_seqs, s->seq_len, m->kv_heads, m->head_dim) > 0;
    queue_submit(y->c->queue, &(op){OP_ATTENTION_BACKWARD, .attention_backward = {
        .forward = attention_of(y, tensor(y, LAYER_QKV)), .lddo = y->q_cols, .dout = temp(y, TEMP_DATT), .dq = dqkv,
        .dk = column(dqkv, y->q_cols, y->type), .dv = column(dqkv, y->q_cols + y->kv_cols, y->type),
        .scratch = temp(y, TEMP_SCRATCH), .sums = sums ? temp(y, TEMP_SUMS) : NULL}});
    rope(y, dqkv, m->heads + m->kv_heads, y->qkv_cols, true);
    if (m->qk_norm) {
        head_norm_backward(y, g, m->heads, 0, PARAM_QNORM);
        head_norm_backward(y, g, m->kv_heads, y->q_cols, PARAM_KNORM);
    }
}

void layer_recompute(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                     char *saved, char *workspace)
{
    layer y = layer_open(c, block, l, w, u, saved, workspace);
    for (int t = 0; t < LAYER_TENSORS; t++)
        if (stages[t] && l->again[t])
            stages[t](&y);
}

void layer_backward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                    char *saved, char *workspace, void *dx, float *accumulators, bool first)
{
    layer y = layer_open(c, block, l, w, u, saved, workspace);
    const gradients g = {accumulators, first};
    const model_config *m = y.config;
    layer_recompute(c, block, l, w, u, saved, workspace);
    void *act = temp(&y, TEMP_DACT), *dup = temp(&y, TEMP_DUP), *n = temp(&y, TEMP_DN), *datt = temp(&y, TEMP_DATT);
    void *dqkv = temp(&y, TEMP_DQKV);
    input_gradient(&y, dx, y.hidden, m->ffn, PARAM_DOWN, act);
    activation_backward(&y, act, dup);
    weight_gradient(&y, &g, dx, y.hidden, act, m->ffn, PARAM_DOWN, PARAM_DOWN_BIAS);
    input_gradient(&y, dup, y.up_cols, y.hidden, PARAM_UP, n);
    norm_backward(&y, &g, tensor(&y, LAYER_XM), PARAM_NORM2, PARAM_NORM2_BIAS, n, dx, TEMP_NORM2);
    weight_gradient(&y, &g, dup, y.up_cols, n, y.hidden, PARAM_UP, PARAM_UP_BIAS);
    weight_gradient(&y, &g, dx, y.hidden, tensor(&y, LAYER_ATT), y.q_cols, PARAM_OUT, PARAM_OUT_BIAS);
    input_gradient(&y, dx, y.hidden, y.q_cols, PARAM_OUT, datt);
    attention_backward(&y, &g);
    input_gradient(&y, dqkv, y.qkv_cols, y.hidden, PARAM_QKV, n);
    norm_backward(&y, &g, tensor(&y, LAYER_X), PARAM_NORM1, PARAM_NORM1_BIAS, n, dx, TEMP_NORM1);
    weight_gradient(&y, &g, dqkv, y.qkv_cols, n, y.hidden, PARAM_QKV, PARAM_QKV_BIAS);
}
