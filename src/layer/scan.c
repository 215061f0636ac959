/* scan.c - the gated delta rule over a unit's sequences, and the decays and steps that it reads. In generation the state of each head is
 * kept for the rows that follow. */
#include "layer/work.h"

#include <math.h>

/* ---- decays and steps ---- */

static unsigned gates_touches(const layer_stage *s, step_pass pass)
{
    return TOUCH_IN(0) | (pass == PASS_FORWARD ? TOUCH_OUT(0) | TOUCH_OUT(1)
                                               : TOUCH_OUT_GRADIENT(0) | TOUCH_OUT_GRADIENT(1) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(0));
}

static uint64_t gates_scratch(const stage_site *at, int k)
{
    return k ? 0 : gates_backward_scratch_bytes(at->shape->unit_rows, at->model->config.delta_value_heads);
}

static op_gates gates_of(const layer_work *work, const layer_stage *s)
{
    const mix_columns at = model_mix_columns(work->config, work->layer);
    const char *in = tensor(work, s->in[0]);
    return (op_gates){.kind = SCAN_DELTA, .type = work->type, .rows = work->rows, .heads = work->config->delta_value_heads, .ld = at.all,
                      .a = column(in, at.decay, work->type), .b = column(in, at.step, work->type), .a_log = weight_of(work, s->param[0]),
                      .step_bias = weight_of(work, s->param[1])};
}

static void gates_forward(const layer_work *work, const layer_stage *s)
{
    op_gates o = gates_of(work, s);
    o.g = tensor(work, s->out[0]);
    o.beta = tensor(work, s->out[1]);
    queue_submit(work->c->queue, &(op){OP_GATES, .gates = o});
}

static void gates_input(const layer_work *work, const layer_stage *s)
{
    const mix_columns at = model_mix_columns(work->config, work->layer);
    char *d = gradient(work, s->in[0]);
    queue_submit(work->c->queue, &(op){OP_GATES_BACKWARD, .gates_backward = {
        .forward = gates_of(work, s), .accumulate = !work->first, .ldd = at.all, .dg = gradient(work, s->out[0]),
        .dbeta = gradient(work, s->out[1]), .da = column(d, at.decay, work->type), .db = column(d, at.step, work->type),
        .da_log = accumulator(work, s->param[0]), .dstep_bias = accumulator(work, s->param[1]), .scratch = scratch(work, s, 0)}});
}

const stage_type stage_gates = {.name = "gates", .by_row = true, .touches = gates_touches, .scratch = gates_scratch,
                                .pass = {gates_forward, gates_input}};

/* ---- the scan ---- */

static unsigned touches(const layer_stage *s, step_pass pass)
{
    const unsigned all = TOUCH_IN(0) | TOUCH_IN(SCAN_DECAYS) | TOUCH_IN(SCAN_STEPS) | TOUCH_OUT(1);
    if (pass == PASS_FORWARD)
        return all | TOUCH_OUT(0);
    return all | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_IN_GRADIENT(SCAN_DECAYS) | TOUCH_IN_GRADIENT(SCAN_STEPS) |
           TOUCH_SCRATCH(0);
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    const model_config *m = &at->model->config;
    return k ? 0 : scan_backward_scratch_bytes(at->shape->unit_seqs, at->shape->seq_len, m->delta_key_heads, m->delta_value_heads,
                                               m->delta_key_dim, m->delta_value_dim, at->shape->gpu);
}

/* Multiply-adds of a token and value head: the triangles of a chunk with keys, queries and values, and three products with the state. */
static double flops(const stage_site *at)
{
    const model_config *m = &at->model->config;
    const double keys = (double)m->delta_key_dim, values = (double)m->delta_value_dim;
    return 2 * (double)(m->delta_value_heads * at->shape->unit_rows) * (SCAN_CHUNK * (keys + values) + 3 * keys * values);
}

static uint64_t state_bytes(const stage_site *at)
{
    const model_config *m = &at->model->config;
    return align_up((uint64_t)(m->delta_value_heads * m->delta_key_dim * m->delta_value_dim) * sizeof(float), 64);
}

static op_scan scan_of(const layer_work *work, const layer_stage *s)
{
    const model_config *m = work->config;
    const int64_t keys = m->delta_key_heads * m->delta_key_dim;
    const char *in = tensor(work, s->in[0]);
    return (op_scan){
        .kind = SCAN_DELTA, .type = work->type, .seqs = work->c->shape->unit_seqs, .len = work->c->shape->seq_len,
        .key_heads = m->delta_key_heads, .heads = m->delta_value_heads, .key_dim = m->delta_key_dim, .dim = m->delta_value_dim,
        .ld = columns(work, s->in[0]), .ldo = columns(work, s->out[0]), .scale = (float)(1 / sqrt((double)m->delta_key_dim)),
        .norm_eps = 1e-6f, .first = work->u->first, .q = in, .k = column(in, keys, work->type), .v = column(in, 2 * keys, work->type),
        .g = tensor(work, s->in[SCAN_DECAYS]), .beta = tensor(work, s->in[SCAN_STEPS]), .states = tensor(work, s->out[1])};
}

static void forward(const layer_work *work, const layer_stage *s)
{
    op_scan o = scan_of(work, s);
    o.before = (const float *)past_state_of(work, s);
    o.after = (float *)state_of(work, s);
    o.out = tensor(work, s->out[0]);
    o.states = work->u->cache ? NULL : o.states;
    queue_submit(work->c->queue, &(op){OP_SCAN, .scan = o});
}

static void input(const layer_work *work, const layer_stage *s)
{
    const int64_t keys = work->config->delta_key_heads * work->config->delta_key_dim;
    char *d = gradient(work, s->in[0]);
    queue_submit(work->c->queue, &(op){OP_SCAN_BACKWARD, .scan_backward = {
        .forward = scan_of(work, s), .lddo = columns(work, s->out[0]), .ldd = columns(work, s->in[0]), .dout = gradient(work, s->out[0]),
        .dq = d, .dk = column(d, keys, work->type), .dv = column(d, 2 * keys, work->type), .dg = gradient(work, s->in[SCAN_DECAYS]),
        .dbeta = gradient(work, s->in[SCAN_STEPS]), .scratch = scratch(work, s, 0)}});
}

const stage_type stage_scan = {.name = "scan", .touches = touches, .scratch = scratch_bytes, .flops = flops, .state = state_bytes,
                               .pass = {forward, input}};
