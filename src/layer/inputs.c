/* inputs.c - inputs of layers beside the residual stream: each layer's columns of rows that are looked up in a table of tokens, plus the
 * norm of a projection of the embedding's output. The first layer makes those of all layers from the rows that the embedding has put
 * there; each layer multiplies a gate of the stream by its own. Gradients of a layer's columns have this layer as their only source; the
 * first layer, whose backward comes last, reads all of them, and so does the table's own gradient. */
#include "layer/work.h"

/* ---- the first layer: norm of the projection, for each layer's columns ---- */

static unsigned make_touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | (pass == PASS_FORWARD ? 0 : TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(0));
}

static uint64_t make_scratch_bytes(const stage_site *at, int k)
{
    const model_config *config = &at->model->config;
    return k ? 0 : norm_backward_scratch_bytes(at->shape->unit_rows * config->layers, 1, config->input_width);
}

/* A layer's columns of a row as a row. */
static void make(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = work->config->input_width;
    char *inputs = tensor(work, stage->out[0]);
    queue_submit(work->c->queue, &(op){OP_NORM, .norm = {
        .kind = work->config->norm, .type = work->type, .rows = work->rows * work->config->layers, .heads = 1, .dim = width, .ldx = width,
        .ldy = width, .eps = work->config->norm_eps, .offset = work->config->norm_offset, .x = tensor(work, stage->in[0]),
        .weight = weight_of(work, stage->param[0]), .y = inputs, .residual = inputs}});
}

static void make_input(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = work->config->input_width;
    submit_norm_backward(work->c->queue, work->c->shape, (op_norm_backward){
        .kind = work->config->norm, .type = work->type, .accumulate = !work->first, .rows = work->rows * work->config->layers, .heads = 1,
        .dim = width, .ldx = width, .lddy = width, .lddx = width, .eps = work->config->norm_eps, .offset = work->config->norm_offset,
        .x = tensor(work, stage->in[0]), .weight = weight_of(work, stage->param[0]), .dy = inputs_gradient(work, stage->out[0]),
        .dx = gradient(work, stage->in[0]), .dweight = accumulator(work, stage->param[0]), .scratch = scratch(work, stage, 0)});
}

const stage_type stage_make_inputs = {.name = "make_inputs", .by_row = true, .touches = make_touches, .scratch = make_scratch_bytes,
                                      .pass = {make, make_input}};

/* ---- every layer: activation of the gate, times the layer's columns ---- */

enum { SCRATCH_PAIR, SCRATCH_GRADIENT };

static unsigned gate_touches(const layer_stage *stage, step_pass pass)
{
    const unsigned both = TOUCH_IN(0) | TOUCH_SCRATCH(SCRATCH_PAIR);
    return pass == PASS_FORWARD ? both | TOUCH_OUT(0)
                                : both | TOUCH_SCRATCH(SCRATCH_GRADIENT) | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0);
}

static uint64_t gate_scratch_bytes(const stage_site *at, int k)
{
    const int64_t values = 2 * at->model->config.input_width * at->shape->unit_rows;
    return k > SCRATCH_GRADIENT ? 0 : (uint64_t)values * dtype_bytes(at->shape->type);
}

/* Copies as many columns as a layer has of its inputs. */
static void copy(const layer_work *work, void *to, int64_t to_wide, const void *from, int64_t from_wide)
{
    const size_t each = dtype_bytes(work->type);
    queue_submit(work->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {to, from, work->rows, (size_t)work->config->input_width * each,
                                                                   (size_t)to_wide * each, (size_t)from_wide * each}});
}

static char *own_columns(const layer_work *work, void *inputs)
{
    return column(inputs, work->layer * work->config->input_width, work->type);
}

/* Gate and inputs side by side, as the two halves of a gated MLP. */
static void pair(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = work->config->input_width;
    char *both = scratch(work, stage, SCRATCH_PAIR);
    copy(work, both, 2 * width, tensor(work, stage->in[0]), width);
    copy(work, column(both, width, work->type), 2 * width, own_columns(work, tensor(work, stage->in[1])), columns(work, stage->in[1]));
}

static void gate(const layer_work *work, const layer_stage *stage)
{
    pair(work, stage);
    queue_submit(work->c->queue, &(op){OP_ACTIVATION, .activation = {
        .kind = work->config->activation, .gated = true, .type = work->type, .rows = work->rows, .cols = work->config->input_width,
        .up = scratch(work, stage, SCRATCH_PAIR), .out = tensor(work, stage->out[0])}});
}

/* The output replaces its own gradient. */
static void gate_input(const layer_work *work, const layer_stage *stage)
{
    const int64_t width = work->config->input_width;
    char *d = gradient(work, stage->out[0]), *both = scratch(work, stage, SCRATCH_GRADIENT);
    pair(work, stage);
    queue_submit(work->c->queue, &(op){OP_ACTIVATION_BACKWARD, .activation_backward = {
        .kind = work->config->activation, .gated = true, .type = work->type, .rows = work->rows, .cols = width,
        .up = scratch(work, stage, SCRATCH_PAIR), .dout = d, .dup = both, .out = d}});
    copy(work, gradient(work, stage->in[0]), width, both, 2 * width);
    copy(work, own_columns(work, inputs_gradient(work, stage->in[1])), columns(work, stage->in[1]), column(both, width, work->type),
         2 * width);
}

const stage_type stage_gate_inputs = {.name = "gate_inputs", .rewrites = true, .by_row = true, .touches = gate_touches,
                                      .scratch = gate_scratch_bytes, .pass = {gate, gate_input}};
