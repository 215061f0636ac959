/* experts.c - a mixture of experts, on the ops of device.h.
 *
 *   route        logits = n . Wr^T in fp32; ids and weights of each token's k experts
 *   dispatch     the slots (token, j) sorted by expert: rows
 *   experts_up   row r of expert e = n[token of r] . Wup[e]^T
 *   experts_act  as in an MLP
 *   experts_down y[r] = act[r] . Wdown[e]^T; out[token] = residual + sum over its slots of weight * y, in the order of slots
 *
 * Backward does not need y. The gradient of act, before the weights, is dout[token] . Wdown[e]. Its product with act is the gradient of the
 * weight; experts_act writes weight * act in its place, which the gradient of Wdown reads. The number of rows is fixed, so all sizes are;
 * where an expert's rows begin is data. The loss that balances routers adds to the gradient of the logits. Biases are added before the
 * weights; that of Wdown adds to the gradient of a weight.
 */
#include "layer/work.h"

#include "model/adapter.h"
#include "model/storage.h"

#include <math.h>

enum { SCRATCH_DECODED = LINEAR_DECODED, SCRATCH_ROWS = 1 };

/* The sizes of a stage's mixture, from the program: a shared expert with a gate is a mixture of one expert. */
static int64_t experts_of(const layer_program *program, const layer_stage *stage) { return program->tensor[stage->in[EXPERTS_ENDS]].cols; }
static int64_t used_of(const layer_program *program, const layer_stage *stage) { return program->tensor[stage->in[EXPERTS_WEIGHTS]].cols; }
static int64_t experts_n(const layer_work *work, const layer_stage *stage) { return experts_of(&work->l->program, stage); }
static int64_t used_n(const layer_work *work, const layer_stage *stage) { return used_of(&work->l->program, stage); }
static int64_t rows_n(const layer_work *work, const layer_stage *stage) { return work->rows * used_n(work, stage); }

/* ---- route ---- */

/* Routers with factors have no balance (architectures.h). */
enum { SCRATCH_FACTORS = 0, SCRATCH_USE = 0 };

static unsigned factors(const layer_stage *stage) { return stage->param[3] == PARAM_NONE ? 0 : TOUCH_SCRATCH(SCRATCH_FACTORS); }

static unsigned route_touches(const layer_stage *stage, step_pass pass)
{
    const unsigned all = TOUCH_OUT(0) | TOUCH_OUT(1);
    switch (pass) {
    case PASS_FORWARD: return all | TOUCH_IN(0) | TOUCH_OUT(2) | TOUCH_SCRATCH(SCRATCH_USE);
    case PASS_INPUT: return all | TOUCH_SCRATCH(SCRATCH_USE) | TOUCH_OUT_GRADIENT(2) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(SCRATCH_ROWS);
    default: return factors(stage) | TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS) | TOUCH_OPERAND | TOUCH_SCRATCH(SCRATCH_ROWS);
    }
}

static bool is_balanced(const step_shape *shape, const layer_stage *stage)
{
    return shape->router_aux > 0 && stage->param[0] != PARAM_SHARED_GATE;
}

/* The gradient of the logits, in the compute type, and those of the experts' factors for each slot; or the use of experts (op_route). */
static uint64_t route_scratch(const stage_site *at, int k)
{
    const layer_tensor *of = at->program->tensor;
    const int64_t rows = at->shape->unit_rows, experts = of[at->stage->out[0]].cols;
    if (k == SCRATCH_ROWS)
        return (uint64_t)(rows * experts) * dtype_bytes(at->shape->type);
    if (is_balanced(at->shape, at->stage))
        return (uint64_t)(2 * rows * experts) * sizeof(float);
    return at->stage->param[3] == PARAM_NONE ? 0 : (uint64_t)(rows * of[at->stage->out[2]].cols) * sizeof(float);
}

static double route_flops(const stage_site *at)
{
    const param *p = stage_param(at, 0);
    return 2 * (double)p->rows * (double)p->cols * (double)at->shape->unit_rows;
}

/* The layer's part of what the unit keeps of the choice of experts. */
static int32_t *routing_of(const layer_work *work)
{
    return work->u->routing + routing_offset(work->c->model, work->c->shape, work->layer);
}

/* Backward computes again what was not saved. */
static bool is_again(const layer_work *work) { return work->at == work->l->backward_at; }

static bool keeps_use(const layer_work *work, const layer_stage *stage) { return work->u->routing && is_balanced(work->c->shape, stage); }

/* Adds what the rows used to the layer's sums over the unit. */
static void sum_use(const layer_work *work, const float *use, int64_t experts)
{
    submit_bias_gradient(work->c->queue, work->c->shape, (op_bias_backward){
        .type = PT_F32, .accumulate = work->row > 0, .rows = work->rows, .cols = 2 * experts, .ld = 2 * experts, .dy = use,
        .acc = (float *)(routing_of(work) + experts)});
}

/* loss = router_aux * mean over the units of E * sum over the experts of F * P: the rows of an expert, and the sum of its probabilities, in
 * all layers of a unit, each by the number of tokens times layers. Sets what backward needs of it. */
static void set_balance(const layer_work *work, const layer_stage *stage, op_route_backward *o)
{
    const model *m = work->c->model;
    const step_shape *shape = work->c->shape;
    const int64_t experts = m->config.experts, entries = routing_entries(m, shape);
    if (!keeps_use(work, stage))
        return;
    float *used = scratch(work, stage, SCRATCH_USE);
    queue_submit(work->c->queue, &(op){OP_BIAS_BACKWARD, .bias_backward = {
        .type = PT_F32, .rows = routing_offset(m, shape, (int)m->config.layers) / entries, .cols = experts, .ld = entries,
        .dy = (const float *)(work->u->routing + experts), .acc = used}});
    o->used = used;
    o->balance = (float)((double)shape->router_aux * (double)experts / (double)(shape->units_n * shape_ranks(shape)));
}

static op_route route_of(const layer_work *work, const layer_stage *stage)
{
    const model_config *config = work->config;
    op_route o = {.kind = ROUTE_SIGMOID, .scale = config->residual_scale, .rows = work->rows, .experts = columns(work, stage->out[0]),
                  .k = columns(work, stage->out[1]), .logits = tensor(work, stage->out[0]), .ids = tensor(work, stage->out[1])};
    if (stage->param[0] == PARAM_SHARED_GATE)
        return o;
    o.kind = config->router;
    o.norm = config->router_norm;
    o.groups = config->router_groups, o.groups_used = config->router_groups_used;
    o.scale *= config->router_scale;
    o.eps = config->router_eps;
    o.least = config->router_least;
    o.bias = weight_of(work, stage->param[1]);
    o.expert_scale = weight_of(work, stage->param[3]);
    o.targets = work->u->targets ? work->u->targets + work->row : NULL;
    return o;
}

/* A router with a norm of its own reads it divided by the root of its width. */
static float logits_factor(const layer_work *work) { return work->config->experts_beside ? 1 / sqrtf((float)work->hidden) : 1; }

static void route_forward(const layer_work *work, const layer_stage *stage)
{
    const int64_t experts = columns(work, stage->out[0]), hidden = work->hidden;
    queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NT, .type = work->type, .out_type = PT_F32, .m = work->rows, .n = experts, .k = hidden, .lda = hidden,
        .ldb = hidden, .ldc = experts, .a = tensor(work, stage->in[0]), .b = weight_of(work, stage->param[0]),
        .bias = weight_of(work, stage->param[2]), .c = tensor(work, stage->out[0]), .alpha = logits_factor(work)}});
    op_route o = route_of(work, stage);
    o.weights = tensor(work, stage->out[2]);
    o.use = keeps_use(work, stage) && !is_again(work) ? scratch(work, stage, SCRATCH_USE) : NULL;
    queue_submit(work->c->queue, &(op){OP_ROUTE, .route = o});
    if (o.use)
        sum_use(work, o.use, experts);
}

static void route_input(const layer_work *work, const layer_stage *stage)
{
    const int64_t experts = columns(work, stage->out[0]), hidden = work->hidden;
    void *dlogits = scratch(work, stage, SCRATCH_ROWS), *d = gradient(work, stage->in[0]);
    op_route_backward o = {.forward = route_of(work, stage),
                           .type = work->type,
                           .dweights = gradient(work, stage->out[2]),
                           .dlogits = dlogits,
                           .dexpert_scale = factors(stage) ? scratch(work, stage, SCRATCH_FACTORS) : NULL};
    set_balance(work, stage, &o);
    queue_submit(work->c->queue, &(op){OP_ROUTE_BACKWARD, .route_backward = o});
    queue_submit(work->c->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NN, .type = work->type, .out_type = work->type, .m = work->rows, .n = hidden, .k = experts,
        .lda = experts, .ldb = hidden, .ldc = hidden, .a = dlogits, .b = weight_of(work, stage->param[0]),
        .residual = gradient_begun(work, stage, stage->in[0]) ? d : NULL, .c = d, .alpha = logits_factor(work)}});
}

/* Of the experts' factors, from those of all slots, which are sorted by expert. */
static void factors_gradient(const layer_work *work, const layer_stage *stage)
{
    float *acc = accumulator(work, stage->param[3]);
    if (acc)
        queue_submit(work->c->queue, &(op){OP_GROUPED_BIAS_BACKWARD, .grouped_bias_backward = {
            .type = PT_F32, .accumulate = !work->first,
            .range = {0, columns(work, stage->out[0]), work->rows * columns(work, stage->out[2]), tensor(work, stage->in[EXPERTS_ENDS])},
            .cols = 1, .ld = 1, .k = 1, .dy_at = AT_TOKEN, .order = tensor(work, stage->in[EXPERTS_ORDER]),
            .dy = scratch(work, stage, SCRATCH_FACTORS), .acc = acc}});
}

static void route_weights(const layer_work *work, const layer_stage *stage)
{
    const int64_t experts = columns(work, stage->out[0]), hidden = work->hidden;
    float *acc = accumulator(work, stage->param[0]);
    if (acc)
        matrix_gradient(work, experts, hidden, experts, hidden, scratch(work, stage, SCRATCH_ROWS), operand(work, stage),
                        logits_factor(work), acc);
    if (accumulator(work, stage->param[2]))
        submit_bias_gradient(work->c->queue, work->c->shape, (op_bias_backward){
            .type = work->type, .accumulate = !work->first, .rows = work->rows, .cols = experts, .ld = experts,
            .dy = scratch(work, stage, SCRATCH_ROWS), .acc = accumulator(work, stage->param[2])});
    factors_gradient(work, stage);
}

/* The gradients of factors are summed by expert. */
static bool route_whole(const layer_stage *stage) { return stage->param[3] != PARAM_NONE; }

const stage_type stage_route = {.name = "route", .by_row = true, .whole = route_whole, .touches = route_touches,
                                .scratch = route_scratch, .flops = route_flops,
                                .pass = {route_forward, route_input, route_weights}};

/* ---- dispatch ---- */

static unsigned dispatch_touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | TOUCH_OUT(0) | TOUCH_OUT(1) | TOUCH_OUT(2);
}

/* A shared expert with a gate has no choice. */
static void dispatch(const layer_work *work, const layer_stage *stage)
{
    const int64_t experts = columns(work, stage->out[2]);
    queue_submit(work->c->queue, &(op){OP_DISPATCH, .dispatch = {
        .slots = work->rows * columns(work, stage->in[0]), .experts = experts, .ids = tensor(work, stage->in[0]),
        .order = tensor(work, stage->out[0]), .place = tensor(work, stage->out[1]), .ends = tensor(work, stage->out[2])}});
    if (work->u->routing && experts == work->config->experts && !is_again(work))
        queue_submit(work->c->queue, &(op){OP_COPY, .copy = {routing_of(work), tensor(work, stage->out[2]),
                                                             (size_t)experts * sizeof(int32_t)}});
}

const stage_type stage_dispatch = {.name = "dispatch", .touches = dispatch_touches, .pass = {dispatch}};

/* ---- the matrices of experts, which may be in few bits ---- */

enum { DECODED_VALUES = 4 << 20 };

/* How many experts' matrices are decoded at a time. */
static int64_t experts_at_once(const param *p, int64_t experts)
{
    const int64_t one = p->rows / experts * p->cols, most = DECODED_VALUES / one;
    return p->storage == STORAGE_PLAIN || most >= experts ? experts : most > 1 ? most : 1;
}

static uint64_t decoded_bytes(const stage_site *at)
{
    const param *p = stage_param(at, 0);
    const int64_t experts = experts_of(at->program, at->stage);
    if (p->storage == STORAGE_PLAIN)
        return 0;
    return (uint64_t)(experts_at_once(p, experts) * (p->rows / experts) * p->cols) * dtype_bytes(at->shape->type);
}

/* The piece of a stage's matrix with some expert: its address, its first expert, and how many it has. */
typedef struct expert_piece { const char *at; int64_t first, n; } expert_piece;

static expert_piece piece_of(const layer_work *work, const layer_stage *stage, int64_t expert)
{
    const int64_t experts = experts_n(work, stage);
    const expert_pieces none = {0}, *of = stage->param[0] == PARAM_EXPERTS_UP     ? &work->w->up
                                          : stage->param[0] == PARAM_EXPERTS_DOWN ? &work->w->down
                                                                              : &none;
    if (!of->each)
        return (expert_piece){weight_of(work, stage->param[0]), 0, experts};
    const int64_t first = expert / of->each * of->each;
    return (expert_piece){of->piece[expert / of->each], first, experts - first < of->each ? experts - first : of->each};
}

/* Decodes experts first .. first + n of a piece into the stage's scratch. */
static void decode(const layer_work *work, const layer_stage *stage, const expert_piece *from, int64_t first, int64_t n)
{
    const param *p = matrix_of(work, stage);
    const int64_t rows = p->rows / experts_n(work, stage);
    op_dequantize o = {.type = work->type, .cols = p->cols, .ld = p->cols};
    for (int64_t done = 0, run; done < n * rows; done += run) {
        run = storage_run(p, (storage_rows){from->first * rows, from->n * rows}, from->at, first * rows + done, n * rows - done, &o);
        o.out = column(scratch(work, stage, SCRATCH_DECODED), done * p->cols, work->type);
        queue_submit(work->c->queue, &(op){OP_DEQUANTIZE, .dequantize = o});
    }
}

/* `o` with experts whose matrices are at `b`, one module of outputs after the other if there are adapters. */
static void modules_matmul(const layer_work *work, const layer_stage *stage, op_grouped_matmul o, const char *b, const char *bias)
{
    const int modules = experts_modules(work, stage);
    const int64_t cols = matrix_of(work, stage)->cols;
    void *c = o.of.c;
    o.of.b = b, o.of.bias = bias;
    for (int k = 0; k < modules; k++) {
        const adapter_part a = experts_module(work, stage, k);
        op_grouped_matmul part = o;
        part.of = experts_add_low(work, stage, o.of, &a);
        part.of.n = a.end - a.row0;
        part.of.b = column(b, a.row0 * cols, work->type);
        part.of.c = column(c, a.row0, work->type);
        part.more_b_step = part.of.n * a.rank;
        part.of.more_b = a.rank ? column(part.of.more_b, o.range.first * part.more_b_step, work->type) : NULL;
        queue_submit(work->c->queue, &(op){OP_GROUPED_MATMUL, .grouped_matmul = part});
    }
    if (!modules)
        queue_submit(work->c->queue, &(op){OP_GROUPED_MATMUL, .grouped_matmul = o});
}

/* Are the first experts computed, and the last? What goes before the matmuls and after them is computed once. */
static bool begins(const layer_work *work) { return !work->expert0; }
static bool ends(const layer_work *work, const layer_stage *stage)
{
    return !work->experts || work->expert0 + work->experts == experts_n(work, stage);
}

/* The grouped matmul `o` with the matrices of the experts as operand b, and in forward their biases and the adapters' products. */
static void experts_matmul(const layer_work *work, const layer_stage *stage, op_grouped_matmul o)
{
    const bool forward = o.of.layout == MATMUL_NT;
    const void *bias = forward ? weight_of(work, stage->param[1]) : NULL, *more = o.of.more_b;
    const param *p = matrix_of(work, stage);
    const int64_t experts = experts_n(work, stage), each = experts_at_once(p, experts), rows = p->rows / experts;
    o.b_step = rows * p->cols;
    o.order = tensor(work, stage->in[EXPERTS_ORDER]);
    o.k = used_n(work, stage);
    const int64_t end = work->experts ? work->expert0 + work->experts : experts;
    for (int64_t first = work->expert0, n; first < end; first += n) {
        const expert_piece from = piece_of(work, stage, first);
        const int64_t left = from.first + from.n < end ? from.first + from.n - first : end - first;
        n = left < each ? left : each;
        const char *b = column(from.at, (first - from.first) * o.b_step, work->type);
        o.range = (expert_range){first, n, rows_n(work, stage) * n / experts, tensor(work, stage->in[EXPERTS_ENDS])};
        if (p->storage != STORAGE_PLAIN) {
            decode(work, stage, &from, first, n);
            b = scratch(work, stage, SCRATCH_DECODED);
        }
        if (forward) {
            modules_matmul(work, stage, o, b, bias ? column(bias, first * o.of.n, work->type) : NULL);
            continue;
        }
        o.of.b = b;
        o.of.more_b = more ? column(more, first * o.more_b_step, work->type) : NULL;
        queue_submit(work->c->queue, &(op){OP_GROUPED_MATMUL, .grouped_matmul = o});
    }
}

/* The gradient of the rows that the matrices multiply, from dy (leading dimension `wide`), the gradient of their outputs. */
static op_grouped_matmul input_gradient(const layer_work *work, const layer_stage *stage, const void *dy, row_place dy_at, int64_t wide,
                                        void *to)
{
    const int64_t cols = matrix_of(work, stage)->cols, width = experts_low_gradient(work, stage, dy, dy_at, begins(work));
    return (op_grouped_matmul){
        .of = {.layout = MATMUL_NN, .type = work->type, .out_type = work->type, .n = cols, .k = wide, .lda = wide, .ldb = cols,
               .ldc = cols, .a = dy, .c = to, .more_k = width, .more_lda = width, .more_ldb = cols,
               .more_a = width ? gradient(work, stage->in[EXPERTS_LOW]) : NULL,
               .more_b = width ? weight_of(work, adapter_a(adapter_matrix(stage->param[0]))) : NULL},
        .a_at = dy_at, .more_b_step = width * cols};
}

/* Adds dy^T . x of each expert's rows to the accumulator of its matrix. */
static void experts_gradient(const layer_work *work, const layer_stage *stage, const void *dy, row_place dy_at, const void *x,
                             row_place x_at)
{
    const param *p = matrix_of(work, stage);
    const int64_t experts = experts_n(work, stage), rows = p->rows / experts;
    float *acc = accumulator(work, stage->param[0]);
    if (!acc)
        return;
    queue_submit(work->c->queue, &(op){OP_GROUPED_MATMUL, .grouped_matmul = {
        .of = {.layout = MATMUL_TN, .type = work->type, .out_type = PT_F32, .accumulate = !work->first, .m = rows, .n = p->cols,
               .lda = rows, .ldb = p->cols, .ldc = p->cols, .a = dy, .b = x, .c = acc},
        .range = {0, experts, rows_n(work, stage), tensor(work, stage->in[EXPERTS_ENDS])}, .a_at = dy_at, .b_at = x_at,
        .order = tensor(work, stage->in[EXPERTS_ORDER]), .k = used_n(work, stage), .c_step = rows * p->cols}});
}

/* The gradient of the experts' biases, from rows of dy. With weights, those of the slots: the gradient of the weights is added, too. */
static void bias_gradient(const layer_work *work, const layer_stage *stage, const void *dy, row_place dy_at, int64_t cols, bool weighted)
{
    op_grouped_bias_backward o = {
        .type = work->type, .accumulate = !work->first,
        .range = {0, experts_n(work, stage), rows_n(work, stage), tensor(work, stage->in[EXPERTS_ENDS])},
        .cols = cols, .ld = cols, .k = used_n(work, stage), .dy_at = dy_at, .order = tensor(work, stage->in[EXPERTS_ORDER]), .dy = dy,
        .acc = accumulator(work, stage->param[1])};
    if (stage->param[1] == PARAM_NONE || !(o.acc || weighted))
        return;
    if (weighted) {
        o.weights = tensor(work, stage->in[EXPERTS_WEIGHTS]);
        o.bias = weight_of(work, stage->param[1]);
        o.dots = gradient(work, stage->in[EXPERTS_WEIGHTS]);
    }
    queue_submit(work->c->queue, &(op){OP_GROUPED_BIAS_BACKWARD, .grouped_bias_backward = o});
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    const int64_t rows = at->shape->unit_rows * used_of(at->program, at->stage);
    const param *p = stage_param(at, 0);
    const bool up = at->stage->kind == STAGE_EXPERTS_UP;
    const int64_t hidden = up ? p->cols : p->rows / experts_of(at->program, at->stage);
    const int low = at->stage->in[EXPERTS_LOW];
    const int64_t width = low == LAYER_NONE ? 0 : at->program->tensor[low].cols;
    return k == SCRATCH_DECODED ? decoded_bytes(at) : (uint64_t)(rows * (width > hidden ? width : hidden)) * dtype_bytes(at->shape->type);
}

static double flops(const stage_site *at)
{
    const param *p = stage_param(at, 0);
    const int64_t rows = used_of(at->program, at->stage) * at->shape->unit_rows;
    return 2 * (double)p->rows * (double)p->cols / (double)experts_of(at->program, at->stage) * (double)rows;
}

/* ---- up ---- */

static unsigned up_touches(const layer_stage *stage, step_pass pass)
{
    const unsigned sorted = TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS);
    switch (pass) {
    case PASS_FORWARD: return sorted | TOUCH_IN(0) | TOUCH_IN(EXPERTS_LOW) | TOUCH_OUT(0) | TOUCH_SCRATCH(SCRATCH_DECODED);
    case PASS_INPUT:
        return sorted | TOUCH_IN(EXPERTS_PLACES) | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_IN_GRADIENT(EXPERTS_LOW) |
               TOUCH_SCRATCH(SCRATCH_DECODED) | TOUCH_SCRATCH(SCRATCH_ROWS);
    default: return sorted | TOUCH_OUT_GRADIENT(0) | TOUCH_OPERAND | TOUCH_IN(EXPERTS_LOW) | TOUCH_IN_GRADIENT(EXPERTS_LOW);
    }
}

static void up_forward(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = columns(work, stage->in[0]), wide = columns(work, stage->out[0]);
    experts_matmul(work, stage, (op_grouped_matmul){
        .of = {.layout = MATMUL_NT, .type = work->type, .out_type = work->type, .n = wide, .k = width, .lda = width, .ldb = width,
               .ldc = wide, .a = tensor(work, stage->in[0]), .c = tensor(work, stage->out[0])}, .a_at = AT_TOKEN});
}

static void up_input(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = columns(work, stage->in[0]), wide = columns(work, stage->out[0]);
    void *rows = scratch(work, stage, SCRATCH_ROWS), *d = gradient(work, stage->in[0]);
    experts_matmul(work, stage, input_gradient(work, stage, gradient(work, stage->out[0]), AT_ROW, wide, rows));
    if (!ends(work, stage))
        return;
    queue_submit(work->c->queue, &(op){OP_COMBINE, .combine = {
        .type = work->type, .rows = work->rows, .cols = width, .k = used_n(work, stage), .y = rows,
        .place = tensor(work, stage->in[EXPERTS_PLACES]), .residual = gradient_begun(work, stage, stage->in[0]) ? d : NULL, .out = d}});
}

static void up_weights(const layer_work *work, const layer_stage *stage)
{
    experts_gradient(work, stage, gradient(work, stage->out[0]), AT_ROW, operand(work, stage), AT_TOKEN);
    bias_gradient(work, stage, gradient(work, stage->out[0]), AT_ROW, columns(work, stage->out[0]), false);
    experts_adapter_gradients(work, stage, gradient(work, stage->out[0]), AT_ROW, NULL);
}

const stage_type stage_experts_up = {.name = "experts_up", .touches = up_touches, .scratch = scratch_bytes, .flops = flops,
                                     .pass = {up_forward, up_input, up_weights}};

/* ---- activation ---- */

static unsigned act_touches(const layer_stage *stage, step_pass pass)
{
    if (pass == PASS_FORWARD)
        return TOUCH_IN(0) | TOUCH_IN(EXPERTS_ENDS) | TOUCH_OUT(0);
    return TOUCH_IN(0) | TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS) | TOUCH_IN(EXPERTS_WEIGHTS) | TOUCH_OUT_GRADIENT(0) |
           TOUCH_IN_GRADIENT(0) | TOUCH_IN_GRADIENT(EXPERTS_WEIGHTS);
}

static void act_forward(const layer_work *work, const layer_stage *stage)
{
    const model_config *config = work->config;
    const op_activation o = {.kind = config->activation, .gated = config->gated, .type = work->type, .rows = rows_n(work, stage),
                             .cols = columns(work, stage->out[0]), .up = tensor(work, stage->in[0]), .out = tensor(work, stage->out[0])};
    if (!config->expert_limit) {
        queue_submit(work->c->queue, &(op){OP_ACTIVATION, .activation = o});
        return;
    }
    queue_submit(work->c->queue,
                 &(op){OP_GROUPED_ACTIVATION, .grouped_activation = {.of = o,
                                                                     .range = {0, experts_n(work, stage), rows_n(work, stage),
                                                                               tensor(work, stage->in[EXPERTS_ENDS])},
                                                                     .alpha = config->expert_alpha,
                                                                     .limit = config->expert_limit}});
}

/* weight * output replaces the output's gradient. */
static void act_input(const layer_work *work, const layer_stage *stage)
{
    void *d = gradient(work, stage->out[0]);
    queue_submit(work->c->queue, &(op){OP_GROUPED_ACTIVATION_BACKWARD,
                                       .grouped_activation_backward = {
                                           .of = {.kind = work->config->activation,
                                                  .gated = work->config->gated,
                                                  .type = work->type,
                                                  .cols = columns(work, stage->out[0]),
                                                  .up = tensor(work, stage->in[0]),
                                                  .dout = d,
                                                  .dup = gradient(work, stage->in[0]),
                                                  .out = d},
                                           .range = {0, experts_n(work, stage), rows_n(work, stage), tensor(work, stage->in[EXPERTS_ENDS])},
                                           .alpha = work->config->expert_alpha,
                                           .limit = work->config->expert_limit,
                                           .order = tensor(work, stage->in[EXPERTS_ORDER]),
                                           .weights = tensor(work, stage->in[EXPERTS_WEIGHTS]),
                                           .dweights = gradient(work, stage->in[EXPERTS_WEIGHTS])}});
}

const stage_type stage_experts_act = {.name = "experts_act", .rewrites = true, .touches = act_touches, .pass = {act_forward, act_input}};

/* ---- down ---- */

static unsigned down_touches(const layer_stage *stage, step_pass pass)
{
    const unsigned sorted = TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS);
    switch (pass) {
    case PASS_FORWARD:
        return sorted | TOUCH_IN(0) | TOUCH_IN(EXPERTS_RESIDUAL) | TOUCH_IN(EXPERTS_PLACES) | TOUCH_IN(EXPERTS_WEIGHTS) |
               TOUCH_IN(EXPERTS_LOW) | TOUCH_OUT(0) | TOUCH_SCRATCH(SCRATCH_DECODED) | TOUCH_SCRATCH(SCRATCH_ROWS);
    case PASS_INPUT:
        return sorted | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_IN_GRADIENT(EXPERTS_LOW) | TOUCH_SCRATCH(SCRATCH_DECODED);
    default: /* a bias adds to the gradient of the weights, which experts_act began */
        return sorted | TOUCH_OUT_GRADIENT(0) | TOUCH_OPERAND |
               (stage->in[EXPERTS_LOW] == LAYER_NONE ? 0 : TOUCH_IN_GRADIENT(EXPERTS_LOW) | TOUCH_SCRATCH(SCRATCH_ROWS)) |
               (stage->param[1] == PARAM_NONE ? 0 : TOUCH_IN(EXPERTS_WEIGHTS) | TOUCH_IN_GRADIENT(EXPERTS_WEIGHTS));
    }
}

static void down_forward(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = columns(work, stage->out[0]), wide = columns(work, stage->in[0]);
    void *rows = scratch(work, stage, SCRATCH_ROWS);
    experts_matmul(work, stage, (op_grouped_matmul){
        .of = {.layout = MATMUL_NT, .type = work->type, .out_type = work->type, .n = width, .k = wide, .lda = wide, .ldb = wide,
               .ldc = width, .a = tensor(work, stage->in[0]), .c = rows}});
    if (!ends(work, stage))
        return;
    queue_submit(work->c->queue, &(op){OP_COMBINE, .combine = {.type = work->type,
                                                               .rows = work->rows,
                                                               .cols = width,
                                                               .k = used_n(work, stage),
                                                               .y = rows,
                                                               .place = tensor(work, stage->in[EXPERTS_PLACES]),
                                                               .weights = tensor(work, stage->in[EXPERTS_WEIGHTS]),
                                                               .residual = residual_of(work, stage),
                                                               .stream = stream_of(work, stage),
                                                               .out = tensor(work, stage->out[0])}});
}

static void down_input(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = columns(work, stage->out[0]);
    experts_matmul(work, stage, input_gradient(work, stage, gradient(work, stage->out[0]), AT_TOKEN, width, gradient(work, stage->in[0])));
}

static void down_weights(const layer_work *work, const layer_stage *stage)
{
    experts_gradient(work, stage, gradient(work, stage->out[0]), AT_TOKEN, operand(work, stage), AT_ROW);
    bias_gradient(work, stage, gradient(work, stage->out[0]), AT_TOKEN, columns(work, stage->out[0]), true);
    experts_adapter_gradients(work, stage, gradient(work, stage->out[0]), AT_TOKEN, scratch(work, stage, SCRATCH_ROWS));
}

const stage_type stage_experts_down = {.name = "experts_down", .touches = down_touches, .scratch = scratch_bytes, .flops = flops,
                                       .pass = {down_forward, down_input, down_weights}};
