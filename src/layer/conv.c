/* conv.c - short convolutions along a sequence: of some columns of a mixer's input, with SiLU (before a scan); or of the last third,
 * between the gates before it (MIXER_CONV). */
#include "layer/work.h"

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) |
           (pass == PASS_FORWARD ? TOUCH_OUT(0) : TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(0));
}

static int64_t channels_of(const stage_site *at) { return at->program->tensor[at->stage->out[0]].cols; }

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    return k ? 0 : conv_backward_scratch_bytes(at->shape->unit_rows, channels_of(at), at->model->config.taps);
}

static double flops(const stage_site *at)
{
    return 2 * (double)(channels_of(at) * at->model->config.taps) * (double)at->shape->unit_rows;
}

static uint64_t state_bytes(const stage_site *at)
{
    return align_up((uint64_t)((at->model->config.taps - 1) * channels_of(at)) * sizeof(float), 64);
}

/* Columns of the mixer's input. after: -1 without gates. */
typedef struct conv_columns { int64_t x, before, after; } conv_columns;

static conv_columns columns_of(const layer_work *work)
{
    const int64_t c = work->hidden, at = model_mix_columns(work->config, work->layer).channel;
    return work->config->mixer[work->layer] == MIXER_CONV ? (conv_columns){at, 0, c} : (conv_columns){at, -1, -1};
}

static op_conv conv_of(const layer_work *work, const layer_stage *stage)
{
    const conv_columns at = columns_of(work);
    const char *in = tensor(work, stage->in[0]);
    const bool gated = at.after >= 0;
    return (op_conv){.type = work->type,
                     .silu = !gated,
                     .seqs = work->c->shape->unit_seqs,
                     .len = work->c->shape->seq_len,
                     .channels = columns(work, stage->out[0]),
                     .taps = work->config->taps,
                     .ldx = columns(work, stage->in[0]),
                     .ldy = columns(work, stage->out[0]),
                     .first = work->u->first,
                     .x = column(in, at.x, work->type),
                     .before = gated ? column(in, at.before, work->type) : NULL,
                     .after = gated ? column(in, at.after, work->type) : NULL,
                     .weight = weight_of(work, stage->param[0]),
                     .bias = weight_of(work, stage->param[1])};
}

static void forward(const layer_work *work, const layer_stage *stage)
{
    op_conv o = conv_of(work, stage);
    o.past = (const float *)past_state_of(work, stage);
    o.last = (float *)state_of(work, stage);
    o.y = tensor(work, stage->out[0]);
    queue_submit(work->c->queue, &(op){OP_CONV, .conv = o});
}

static void input(const layer_work *work, const layer_stage *stage)
{
    const conv_columns at = columns_of(work);
    char *d = gradient(work, stage->in[0]);
    const bool gated = at.after >= 0;
    queue_submit(work->c->queue, &(op){OP_CONV_BACKWARD, .conv_backward = {.forward = conv_of(work, stage),
                                                                           .accumulate = !work->first,
                                                                           .lddy = columns(work, stage->out[0]),
                                                                           .lddx = columns(work, stage->in[0]),
                                                                           .dy = gradient(work, stage->out[0]),
                                                                           .dx = column(d, at.x, work->type),
                                                                           .dbefore = gated ? column(d, at.before, work->type) : NULL,
                                                                           .dafter = gated ? column(d, at.after, work->type) : NULL,
                                                                           .dweight = accumulator(work, stage->param[0]),
                                                                           .dbias = accumulator(work, stage->param[1]),
                                                                           .scratch = scratch(work, stage, 0)}});
}

const stage_type stage_conv = {.name = "conv", .touches = touches, .scratch = scratch_bytes, .flops = flops, .state = state_bytes,
                               .pass = {forward, input}};
