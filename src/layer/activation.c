/* activation.c - the MLP's activation function, with or without a gate. */
#include "layer/work.h"

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | (pass == PASS_FORWARD ? TOUCH_OUT(0) : TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0));
}

static void forward(const layer_work *work, const layer_stage *stage)
{
    queue_submit(work->c->queue, &(op){OP_ACTIVATION, .activation = {
        .kind = work->config->activation, .gated = work->config->gated, .type = work->type, .rows = work->rows,
        .cols = columns(work, stage->out[0]), .up = tensor(work, stage->in[0]), .out = tensor(work, stage->out[0])}});
}

/* The output replaces its own gradient. */
static void input(const layer_work *work, const layer_stage *stage)
{
    void *d = gradient(work, stage->out[0]);
    queue_submit(work->c->queue, &(op){OP_ACTIVATION_BACKWARD, .activation_backward = {
        .kind = work->config->activation, .gated = work->config->gated, .type = work->type, .rows = work->rows,
        .cols = columns(work, stage->out[0]), .up = tensor(work, stage->in[0]), .dout = d, .dup = gradient(work, stage->in[0]), .out = d}});
}

const stage_type stage_activation = {.name = "activation", .rewrites = true, .by_row = true, .touches = touches, .pass = {forward, input}};
