/* gated_norm.c - the output of a mixer times a function of gates: after the delta rule, the norm of each head times silu(gates); after
 * Mamba-2's scan, the norm of what silu(gates) has multiplied, that norm times silu(gates), or no norm; after attention, each element times
 * sigmoid(gates). */
#include "layer/work.h"

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    const unsigned in = TOUCH_IN(0) | TOUCH_IN(1);
    if (pass == PASS_FORWARD)
        return in | TOUCH_OUT(0);
    return in | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_IN_GRADIENT(1) | TOUCH_SCRATCH(0);
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    const param *weight = stage_param(at, 0);
    return k || !weight ? 0 : gated_norm_backward_scratch_bytes(at->shape->unit_rows, weight->cols);
}

/* The column of the gates in the second input. */
static int64_t gate_column(const layer_work *work)
{
    return work->config->mixer[work->layer] == MIXER_ATTENTION ? model_qkv_columns(work->config, work->layer).gate
                                                               : model_mix_columns(work->config, work->layer).gate;
}

static op_gated_norm norm_of(const layer_work *work, const layer_stage *stage)
{
    const unsigned char mixer = work->config->mixer[work->layer];
    const bool normed = stage->param[0] != PARAM_NONE, mamba = mixer == MIXER_MAMBA;
    const gated_kind kind = !normed ? GATED_ONLY : mamba && !work->config->mix_norm_first ? GATED_GATE_FIRST : GATED_NORM_FIRST;
    const int64_t wide = columns(work, stage->in[0]), dim = normed ? model_mix_norm(work->config, work->layer) : wide;
    return (op_gated_norm){
        .kind = kind, .sigmoid = mixer == MIXER_ATTENTION, .type = work->type, .rows = work->rows, .heads = wide / dim,
        .dim = dim, .ldx = wide, .ldz = columns(work, stage->in[1]), .ldy = wide,
        .weight_step = mamba ? dim : 0, .eps = work->config->norm_eps,
        .x = tensor(work, stage->in[0]), .z = column(tensor(work, stage->in[1]), gate_column(work), work->type),
        .weight = weight_of(work, stage->param[0])};
}

static void forward(const layer_work *work, const layer_stage *stage)
{
    op_gated_norm o = norm_of(work, stage);
    o.y = tensor(work, stage->out[0]);
    queue_submit(work->c->queue, &(op){OP_GATED_NORM, .gated_norm = o});
}

/* The output replaces its own gradient. */
static void input(const layer_work *work, const layer_stage *stage)
{
    const int64_t wide = columns(work, stage->in[0]);
    void *d = gradient(work, stage->out[0]);
    queue_submit(work->c->queue, &(op){OP_GATED_NORM_BACKWARD,
                                       .gated_norm_backward = {.forward = norm_of(work, stage),
                                                               .accumulate = !work->first,
                                                               .lddy = wide,
                                                               .lddx = wide,
                                                               .lddz = columns(work, stage->in[1]),
                                                               .dy = d,
                                                               .dx = gradient(work, stage->in[0]),
                                                               .dz = column(gradient(work, stage->in[1]), gate_column(work), work->type),
                                                               .y = d,
                                                               .dweight = accumulator(work, stage->param[0]),
                                                               .scratch = scratch(work, stage, 0)}});
}

const stage_type stage_gated_norm = {.name = "gated_norm", .rewrites = true, .by_row = true, .touches = touches, .scratch = scratch_bytes,
                                     .pass = {forward, input}};
