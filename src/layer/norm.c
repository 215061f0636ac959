/* norm.c - the norms of whole rows, before a branch, and after a branch with the sum; and of some columns, which make a latent. */
#include "layer/work.h"

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    if (pass == PASS_FORWARD)
        return TOUCH_IN(0) | TOUCH_IN(1) | TOUCH_OUT(0);
    return TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_IN(0) | TOUCH_SCRATCH(0);
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    return k ? 0 : norm_backward_scratch_bytes(at->shape->unit_rows, 1, at->program->tensor[at->stage->out[0]].cols);
}

/* Of latents it is that of Transformers' module, whatever the config says. */
static float eps_of(const layer_work *work, const layer_stage *stage)
{
    return stage->param[0] == PARAM_Q_LATENT_NORM || stage->param[0] == PARAM_KV_LATENT_NORM ? 1e-6f : work->config->norm_eps;
}

static op_norm norm_of(const layer_work *work, const layer_stage *stage)
{
    const int64_t dim = columns(work, stage->out[0]);
    return (op_norm){.kind = work->config->norm,
                     .type = work->type,
                     .rows = work->rows,
                     .heads = 1,
                     .dim = dim,
                     .ldx = columns(work, stage->in[0]),
                     .ldy = dim,
                     .eps = eps_of(work, stage),
                     .offset = work->config->norm_offset,
                     .x = column(tensor(work, stage->in[0]), stage->column, work->type),
                     .weight = weight_of(work, stage->param[0]),
                     .y = tensor(work, stage->out[0])};
}

static op_norm_backward backward_of(const layer_work *work, const layer_stage *stage)
{
    const int64_t dim = columns(work, stage->out[0]), wide = columns(work, stage->in[0]);
    return (op_norm_backward){
        .kind = work->config->norm, .type = work->type, .accumulate = !work->first, .rows = work->rows, .heads = 1, .dim = dim,
        .ldx = wide, .lddy = dim, .lddx = wide, .eps = eps_of(work, stage), .offset = work->config->norm_offset,
        .x = column(tensor(work, stage->in[0]), stage->column, work->type), .weight = weight_of(work, stage->param[0]),
        .dweight = accumulator(work, stage->param[0]), .scratch = scratch(work, stage, 0)};
}

/* ---- before a branch, or of a tensor inside one ---- */

static void norm_forward(const layer_work *work, const layer_stage *stage)
{
    op_norm o = norm_of(work, stage);
    o.bias = weight_of(work, stage->param[1]);
    queue_submit(work->c->queue, &(op){OP_NORM, .norm = o});
}

/* Is the gradient of the stage's weights added to what is there: of earlier rows, or of a later stage with the same weights? */
static bool adds(const layer_work *work, const layer_stage *stage)
{
    for (const layer_stage *later = stage + 1; later < work->l->program.stage + work->l->program.stages_n; later++)
        if (later->kind == STAGE_NORM && later->param[0] == stage->param[0])
            return true;
    return !work->first;
}

/* Adds the input's gradient to the stream's, if the input is of the stream; the output replaces its own gradient. */
static void norm_input(const layer_work *work, const layer_stage *stage)
{
    void *d = gradient(work, stage->out[0]);
    op_norm_backward o = backward_of(work, stage);
    o.accumulate = adds(work, stage);
    o.dy = o.y = d;
    o.dx = column(gradient(work, stage->in[0]), stage->column, work->type);
    if (is_residual(work, stage->in[0])) {
        o.dx_add = work->u->stream ? NULL : work->out;
        o.stream_add = o.stream = work->u->stream;
    }
    o.bias = weight_of(work, stage->param[1]);
    o.dbias = accumulator(work, stage->param[1]);
    submit_norm_backward(work->c->queue, work->c->shape, o);
}

const stage_type stage_norm = {.name = "norm", .rewrites = true, .by_row = true, .touches = touches, .scratch = scratch_bytes,
                               .pass = {norm_forward, norm_input}};

/* ---- after a branch: adds its output, as the end of a branch without a norm does ---- */

static void add_forward(const layer_work *work, const layer_stage *stage)
{
    op_norm o = norm_of(work, stage);
    o.residual = residual_of(work, stage);
    o.stream = stream_of(work, stage);
    queue_submit(work->c->queue, &(op){OP_NORM, .norm = o});
}

static void add_input(const layer_work *work, const layer_stage *stage)
{
    op_norm_backward o = backward_of(work, stage);
    o.dy = gradient(work, stage->out[0]);
    o.dx = gradient(work, stage->in[0]);
    submit_norm_backward(work->c->queue, work->c->shape, o);
}

const stage_type stage_norm_add = {.name = "norm_add", .by_row = true, .touches = touches, .scratch = scratch_bytes,
                                   .pass = {add_forward, add_input}};
