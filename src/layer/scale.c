/* scale.c - the layer's output times a number of the checkpoint, which is not trained.
 * Forward multiplies the stream and its rounding, backward their gradients. */
#include "layer/work.h"

static unsigned touches(const layer_stage *stage, step_pass pass) { return pass == PASS_FORWARD ? TOUCH_OUT(0) : 0; }

/* The output, or its gradient: with the stream, if there is one. */
static void scale(const layer_work *work, const layer_stage *stage)
{
    queue_submit(work->c->queue, &(op){OP_SCALE, .scale = {
        .type = work->type, .rows = 1, .cols = work->rows * work->hidden, .factor = weight_of(work, stage->param[0]), .x = work->out,
        .stream = work->u->stream}});
}

/* No gradient: the number is a constant of the model, but lies among its trained parameters. */
static void weights(const layer_work *work, const layer_stage *stage)
{
    float *acc = accumulator(work, stage->param[0]);
    if (acc && work->first)
        queue_submit(work->c->queue, &(op){OP_ZERO, .copy = {.dst = acc, .bytes = sizeof *acc}});
}

const stage_type stage_scale = {.name = "scale", .by_row = true, .touches = touches, .pass = {scale, scale, weights}};
