/* factors.c - factors of some columns of what a matrix made, in place: of a Mamba-2 mixer's five kinds of columns, of an MLP's gate. */
#include "layer/work.h"

static unsigned touches(const layer_stage *stage, step_pass pass) { return pass == PASS_FORWARD ? TOUCH_OUT(0) : TOUCH_OUT_GRADIENT(0); }

static void multiply(const layer_work *work, const layer_stage *stage, void *x, int64_t first, int64_t cols, float factor)
{
    if (factor != 1)
        queue_submit(work->c->queue, &(op){OP_SCALE, .scale = {
            .type = work->type, .rows = work->rows, .cols = cols, .ld = columns(work, stage->out[0]), .times = factor,
            .x = column(x, first, work->type)}});
}

/* gate | v k q | decay */
static void multiply_mix(const layer_work *work, const layer_stage *stage, void *x)
{
    const model_config *config = work->config;
    const int64_t values = model_mix_values(config, work->layer), keys = config->scan_key_heads * config->scan_key_dim;
    const int64_t wide[] = {values, values, keys, keys, config->scan_heads};
    for (int64_t i = 0, first = 0; i < 5; first += wide[i++])
        multiply(work, stage, x, first, wide[i], config->factor.mix[i]);
}

static void multiply_gate(const layer_work *work, const layer_stage *stage, void *x)
{
    multiply(work, stage, x, 0, columns(work, stage->out[0]) / 2, work->config->factor.gate);
}

static void mix_forward(const layer_work *work, const layer_stage *stage) { multiply_mix(work, stage, tensor(work, stage->out[0])); }
static void mix_input(const layer_work *work, const layer_stage *stage) { multiply_mix(work, stage, gradient(work, stage->out[0])); }
static void gate_forward(const layer_work *work, const layer_stage *stage) { multiply_gate(work, stage, tensor(work, stage->out[0])); }
static void gate_input(const layer_work *work, const layer_stage *stage) { multiply_gate(work, stage, gradient(work, stage->out[0])); }

const stage_type stage_mix_factors = {.name = "mix_factors", .by_row = true, .touches = touches, .pass = {mix_forward, mix_input}};
const stage_type stage_gate_factor = {.name = "gate_factor", .by_row = true, .touches = touches, .pass = {gate_forward, gate_input}};
