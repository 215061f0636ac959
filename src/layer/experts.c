/* experts.c - a mixture of experts instead of an MLP, on the ops of device.h.
 *
 *   route        logits = n . Wr^T in fp32; ids and weights of each token's k experts
 *   dispatch     the slots (token, j) sorted by expert: rows
 *   experts_up   row r of expert e = n[token of r] . Wup[e]^T
 *   experts_act  as in an MLP
 *   experts_down y[r] = act[r] . Wdown[e]^T; out[token] = residual + sum over its slots of weight * y, in the order of slots
 *
 * Backward does not need y. The gradient of act, before the weights, is dout[token] . Wdown[e]. Its product with act is the gradient of the
 * weight; experts_act writes weight * act in its place, which the gradient of Wdown reads. The number of rows is fixed, so all sizes are;
 * where an expert's rows begin is data.
 */
#include "layer/work.h"

#include "model/storage.h"

enum { SCRATCH_DECODED = LINEAR_DECODED, SCRATCH_ROWS = 1 };

static int64_t rows_n(const layer_work *work) { return work->rows * work->config->experts_used; }

/* ---- route ---- */

static unsigned route_touches(const layer_stage *s, step_pass pass)
{
    const unsigned all = TOUCH_OUT(0) | TOUCH_OUT(1);
    switch (pass) {
    case PASS_FORWARD: return all | TOUCH_IN(0) | TOUCH_OUT(2);
    case PASS_INPUT: return all | TOUCH_OUT_GRADIENT(2) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(SCRATCH_ROWS);
    default: return TOUCH_OPERAND | TOUCH_SCRATCH(SCRATCH_ROWS);
    }
}

static uint64_t route_scratch(const stage_site *at, int k) /* the gradient of the logits, in the compute type */
{
    return k == SCRATCH_ROWS ? (uint64_t)(at->shape->unit_rows * at->model->config.experts) * dtype_bytes(at->shape->type) : 0;
}

static double route_flops(const stage_site *at)
{
    return 2 * (double)at->model->config.experts * (double)at->model->config.hidden * (double)at->shape->unit_rows;
}

static op_route route_of(const layer_work *work, const layer_stage *s)
{
    const model_config *c = work->config;
    return (op_route){.kind = ROUTE_SOFTMAX, .norm = c->router_norm, .rows = work->rows, .experts = c->experts, .k = c->experts_used,
                      .logits = tensor(work, s->out[0]), .ids = tensor(work, s->out[1])};
}

static void route_forward(const layer_work *work, const layer_stage *s)
{
    const model_config *c = work->config;
    queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NT, .type = work->type, .out_type = PT_F32, .m = work->rows, .n = c->experts, .k = c->hidden, .lda = c->hidden,
        .ldb = c->hidden, .ldc = c->experts, .a = tensor(work, s->in[0]), .b = weight_of(work, s->param[0]),
        .c = tensor(work, s->out[0])}});
    op_route o = route_of(work, s);
    o.weights = tensor(work, s->out[2]);
    queue_submit(work->c->queue, &(op){OP_ROUTE, .route = o});
}

static void route_input(const layer_work *work, const layer_stage *s)
{
    const model_config *c = work->config;
    void *dlogits = scratch(work, s, SCRATCH_ROWS), *d = gradient(work, s->in[0]);
    queue_submit(work->c->queue, &(op){OP_ROUTE_BACKWARD, .route_backward = {
        .forward = route_of(work, s), .type = work->type, .dweights = gradient(work, s->out[2]), .dlogits = dlogits}});
    queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NN, .type = work->type, .out_type = work->type, .m = work->rows, .n = c->hidden, .k = c->experts,
        .lda = c->experts, .ldb = c->hidden, .ldc = c->hidden, .a = dlogits, .b = weight_of(work, s->param[0]),
        .residual = gradient_begun(work, s, s->in[0]) ? d : NULL, .c = d}});
}

static void route_weights(const layer_work *work, const layer_stage *s)
{
    const model_config *c = work->config;
    float *acc = accumulator(work, s->param[0]);
    if (acc)
        matrix_gradient(work, c->experts, c->hidden, c->experts, c->hidden, scratch(work, s, SCRATCH_ROWS), operand(work, s), 1, acc);
}

const stage_type stage_route = {.name = "route", .by_row = true, .touches = route_touches, .scratch = route_scratch, .flops = route_flops,
                                .pass = {route_forward, route_input, route_weights}};

/* ---- dispatch ---- */

static unsigned dispatch_touches(const layer_stage *s, step_pass pass) { return TOUCH_IN(0) | TOUCH_OUT(0) | TOUCH_OUT(1) | TOUCH_OUT(2); }

static void dispatch(const layer_work *work, const layer_stage *s)
{
    queue_submit(work->c->queue, &(op){OP_DISPATCH, .dispatch = {
        .slots = rows_n(work), .experts = work->config->experts, .ids = tensor(work, s->in[0]), .order = tensor(work, s->out[0]),
        .place = tensor(work, s->out[1]), .ends = tensor(work, s->out[2])}});
}

const stage_type stage_dispatch = {.name = "dispatch", .touches = dispatch_touches, .pass = {dispatch}};

/* ---- the matrices of experts, which may be in few bits ---- */

enum { DECODED_VALUES = 4 << 20 };

/* How many experts' matrices are decoded at a time. */
static int64_t experts_at_once(const param *p, const model_config *c)
{
    const int64_t one = p->rows / c->experts * p->cols, most = DECODED_VALUES / one;
    return p->storage == STORAGE_PLAIN || most >= c->experts ? c->experts : most > 1 ? most : 1;
}

static uint64_t decoded_bytes(const stage_site *at)
{
    const param *p = stage_param(at, 0);
    const model_config *c = &at->model->config;
    if (p->storage == STORAGE_PLAIN)
        return 0;
    return (uint64_t)(experts_at_once(p, c) * (p->rows / c->experts) * p->cols) * dtype_bytes(at->shape->type);
}

/* The grouped matmul `o` with the matrices of all experts as operand b. */
static void experts_matmul(const layer_work *work, const layer_stage *s, op_grouped_matmul o)
{
    const param *p = matrix_of(work, s);
    const model_config *c = work->config;
    const int64_t each = experts_at_once(p, c), rows = p->rows / c->experts;
    o.b_step = rows * p->cols;
    o.order = tensor(work, s->in[EXPERTS_ORDER]);
    o.k = c->experts_used;
    for (int64_t first = 0; first < c->experts; first += each) {
        const int64_t n = c->experts - first < each ? c->experts - first : each;
        o.range = (expert_range){first, n, rows_n(work) * n / c->experts, tensor(work, s->in[EXPERTS_ENDS])};
        o.of.b = column(weight_of(work, s->param[0]), first * o.b_step, work->type);
        if (p->storage != STORAGE_PLAIN) {
            matrix_decode(work, s, first * rows, n * rows);
            o.of.b = scratch(work, s, SCRATCH_DECODED);
        }
        queue_submit(work->c->queue, &(op){OP_GROUPED_MATMUL, .grouped_matmul = o});
    }
}

/* Adds dy^T . x of each expert's rows to the accumulator of its matrix. */
static void experts_gradient(const layer_work *work, const layer_stage *s, const void *dy, row_place dy_at, const void *x, row_place x_at)
{
    const param *p = matrix_of(work, s);
    const model_config *c = work->config;
    const int64_t rows = p->rows / c->experts;
    float *acc = accumulator(work, s->param[0]);
    if (!acc)
        return;
    queue_submit(work->c->queue, &(op){OP_GROUPED_MATMUL, .grouped_matmul = {
        .of = {.layout = MATMUL_TN, .type = work->type, .out_type = PT_F32, .accumulate = !work->first, .m = rows, .n = p->cols,
               .lda = rows, .ldb = p->cols, .ldc = p->cols, .a = dy, .b = x, .c = acc},
        .range = {0, c->experts, rows_n(work), tensor(work, s->in[EXPERTS_ENDS])}, .a_at = dy_at, .b_at = x_at,
        .order = tensor(work, s->in[EXPERTS_ORDER]), .k = c->experts_used, .c_step = rows * p->cols}});
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    const model_config *c = &at->model->config;
    return k == SCRATCH_DECODED ? decoded_bytes(at)
                                : (uint64_t)(at->shape->unit_rows * c->experts_used * c->hidden) * dtype_bytes(at->shape->type);
}

static double flops(const stage_site *at)
{
    const param *p = stage_param(at, 0);
    const model_config *c = &at->model->config;
    return 2 * (double)p->rows * (double)p->cols / (double)c->experts * (double)(c->experts_used * at->shape->unit_rows);
}

/* ---- up ---- */

static unsigned up_touches(const layer_stage *s, step_pass pass)
{
    const unsigned sorted = TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS);
    switch (pass) {
    case PASS_FORWARD: return sorted | TOUCH_IN(0) | TOUCH_OUT(0) | TOUCH_SCRATCH(SCRATCH_DECODED);
    case PASS_INPUT:
        return sorted | TOUCH_IN(EXPERTS_PLACES) | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(SCRATCH_DECODED) |
               TOUCH_SCRATCH(SCRATCH_ROWS);
    default: return sorted | TOUCH_OUT_GRADIENT(0) | TOUCH_OPERAND;
    }
}

static void up_forward(const layer_work *work, const layer_stage *s)
{
    const int64_t hidden = work->hidden, wide = columns(work, s->out[0]);
    experts_matmul(work, s, (op_grouped_matmul){
        .of = {.layout = MATMUL_NT, .type = work->type, .out_type = work->type, .n = wide, .k = hidden, .lda = hidden, .ldb = hidden,
               .ldc = wide, .a = tensor(work, s->in[0]), .c = tensor(work, s->out[0])}, .a_at = AT_TOKEN});
}

static void up_input(const layer_work *work, const layer_stage *s)
{
    const int64_t hidden = work->hidden, wide = columns(work, s->out[0]);
    void *rows = scratch(work, s, SCRATCH_ROWS), *d = gradient(work, s->in[0]);
    experts_matmul(work, s, (op_grouped_matmul){
        .of = {.layout = MATMUL_NN, .type = work->type, .out_type = work->type, .n = hidden, .k = wide, .lda = wide, .ldb = hidden,
               .ldc = hidden, .a = gradient(work, s->out[0]), .c = rows}});
    queue_submit(work->c->queue, &(op){OP_COMBINE, .combine = {
        .type = work->type, .rows = work->rows, .cols = hidden, .k = work->config->experts_used, .y = rows,
        .place = tensor(work, s->in[EXPERTS_PLACES]), .residual = gradient_begun(work, s, s->in[0]) ? d : NULL, .out = d}});
}

static void up_weights(const layer_work *work, const layer_stage *s)
{
    experts_gradient(work, s, gradient(work, s->out[0]), AT_ROW, operand(work, s), AT_TOKEN);
}

const stage_type stage_experts_up = {.name = "experts_up", .touches = up_touches, .scratch = scratch_bytes, .flops = flops,
                                     .pass = {up_forward, up_input, up_weights}};

/* ---- activation ---- */

static unsigned act_touches(const layer_stage *s, step_pass pass)
{
    if (pass == PASS_FORWARD)
        return TOUCH_IN(0) | TOUCH_OUT(0);
    return TOUCH_IN(0) | TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS) | TOUCH_IN(EXPERTS_WEIGHTS) | TOUCH_OUT_GRADIENT(0) |
           TOUCH_IN_GRADIENT(0) | TOUCH_IN_GRADIENT(EXPERTS_WEIGHTS);
}

static void act_forward(const layer_work *work, const layer_stage *s)
{
    queue_submit(work->c->queue, &(op){OP_ACTIVATION, .activation = {
        .kind = work->config->activation, .gated = true, .type = work->type, .rows = rows_n(work), .cols = columns(work, s->out[0]),
        .up = tensor(work, s->in[0]), .out = tensor(work, s->out[0])}});
}

/* weight * output replaces the output's gradient. */
static void act_input(const layer_work *work, const layer_stage *s)
{
    void *d = gradient(work, s->out[0]);
    queue_submit(work->c->queue, &(op){OP_GROUPED_ACTIVATION_BACKWARD, .grouped_activation_backward = {
        .of = {.kind = work->config->activation, .gated = true, .type = work->type, .cols = columns(work, s->out[0]),
               .up = tensor(work, s->in[0]), .dout = d, .dup = gradient(work, s->in[0]), .out = d},
        .range = {0, work->config->experts, rows_n(work), tensor(work, s->in[EXPERTS_ENDS])},
        .order = tensor(work, s->in[EXPERTS_ORDER]), .weights = tensor(work, s->in[EXPERTS_WEIGHTS]),
        .dweights = gradient(work, s->in[EXPERTS_WEIGHTS])}});
}

const stage_type stage_experts_act = {.name = "experts_act", .rewrites = true, .touches = act_touches, .pass = {act_forward, act_input}};

/* ---- down ---- */

static unsigned down_touches(const layer_stage *s, step_pass pass)
{
    const unsigned sorted = TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS);
    switch (pass) {
    case PASS_FORWARD:
        return sorted | TOUCH_IN(0) | TOUCH_IN(EXPERTS_RESIDUAL) | TOUCH_IN(EXPERTS_PLACES) | TOUCH_IN(EXPERTS_WEIGHTS) | TOUCH_OUT(0) |
               TOUCH_SCRATCH(SCRATCH_DECODED) | TOUCH_SCRATCH(SCRATCH_ROWS);
    case PASS_INPUT: return sorted | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(SCRATCH_DECODED);
    default: return sorted | TOUCH_OUT_GRADIENT(0) | TOUCH_OPERAND;
    }
}

static void down_forward(const layer_work *work, const layer_stage *s)
{
    const int64_t hidden = work->hidden, wide = columns(work, s->in[0]);
    void *rows = scratch(work, s, SCRATCH_ROWS);
    experts_matmul(work, s, (op_grouped_matmul){
        .of = {.layout = MATMUL_NT, .type = work->type, .out_type = work->type, .n = hidden, .k = wide, .lda = wide, .ldb = wide,
               .ldc = hidden, .a = tensor(work, s->in[0]), .c = rows}});
    queue_submit(work->c->queue, &(op){OP_COMBINE, .combine = {
        .type = work->type, .rows = work->rows, .cols = hidden, .k = work->config->experts_used, .y = rows,
        .place = tensor(work, s->in[EXPERTS_PLACES]), .weights = tensor(work, s->in[EXPERTS_WEIGHTS]), .residual = residual_of(work, s),
        .stream = work->stream, .out = tensor(work, s->out[0])}});
}

static void down_input(const layer_work *work, const layer_stage *s)
{
    const int64_t hidden = work->hidden, wide = columns(work, s->in[0]);
    experts_matmul(work, s, (op_grouped_matmul){
        .of = {.layout = MATMUL_NN, .type = work->type, .out_type = work->type, .n = wide, .k = hidden, .lda = hidden, .ldb = wide,
               .ldc = wide, .a = gradient(work, s->out[0]), .c = gradient(work, s->in[0])}, .a_at = AT_TOKEN});
}

static void down_weights(const layer_work *work, const layer_stage *s)
{
    experts_gradient(work, s, gradient(work, s->out[0]), AT_TOKEN, operand(work, s), AT_ROW);
}

const stage_type stage_experts_down = {.name = "experts_down", .touches = down_touches, .scratch = scratch_bytes, .flops = flops,
                                       .pass = {down_forward, down_input, down_weights}};
