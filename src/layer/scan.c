/* scan.c - the gated delta rule, or Mamba-2's scan, over a unit's sequences, and the decays and steps that it reads. In generation the
 * state of each head is kept for the rows that follow. */
#include "layer/work.h"

#include <math.h>

static scan_kind kind_of(const layer_work *work) { return work->config->mixer[work->layer] == MIXER_DELTA ? SCAN_DELTA : SCAN_SSD; }

/* ---- decays and steps ---- */

static unsigned gates_touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | (pass == PASS_FORWARD ? TOUCH_OUT(0) | TOUCH_OUT(1)
                                               : TOUCH_OUT_GRADIENT(0) | TOUCH_OUT_GRADIENT(1) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(0));
}

static uint64_t gates_scratch(const stage_site *at, int k)
{
    return k ? 0 : gates_backward_scratch_bytes(at->shape->unit_rows, at->model->config.scan_heads);
}

static op_gates gates_of(const layer_work *work, const layer_stage *stage)
{
    const mix_columns at = model_mix_columns(work->config, work->layer);
    const char *in = tensor(work, stage->in[0]);
    return (op_gates){.kind = kind_of(work), .type = work->type, .rows = work->rows, .heads = work->config->scan_heads, .ld = at.all,
                      .a = column(in, at.decay, work->type), .b = at.step < 0 ? NULL : column(in, at.step, work->type),
                      .a_log = weight_of(work, stage->param[0]), .step_bias = weight_of(work, stage->param[1]),
                      .least = work->config->step_least, .most = work->config->step_most};
}

static void gates_forward(const layer_work *work, const layer_stage *stage)
{
    op_gates o = gates_of(work, stage);
    o.g = tensor(work, stage->out[0]);
    o.beta = tensor(work, stage->out[1]);
    queue_submit(work->c->queue, &(op){OP_GATES, .gates = o});
}

static void gates_input(const layer_work *work, const layer_stage *stage)
{
    const mix_columns at = model_mix_columns(work->config, work->layer);
    char *d = gradient(work, stage->in[0]);
    queue_submit(work->c->queue, &(op){OP_GATES_BACKWARD, .gates_backward = {
        .forward = gates_of(work, stage), .accumulate = !work->first, .ldd = at.all, .dg = gradient(work, stage->out[0]),
        .dbeta = gradient(work, stage->out[1]), .da = column(d, at.decay, work->type),
        .db = at.step < 0 ? NULL : column(d, at.step, work->type), .da_log = accumulator(work, stage->param[0]),
        .dstep_bias = accumulator(work, stage->param[1]), .scratch = scratch(work, stage, 0)}});
}

const stage_type stage_gates = {.name = "gates", .by_row = true, .touches = gates_touches, .scratch = gates_scratch,
                                .pass = {gates_forward, gates_input}};

/* ---- the scan ---- */

static unsigned touches(const layer_stage *stage, step_pass pass)
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
    return k ? 0 : scan_backward_scratch_bytes(at->shape->unit_seqs, at->shape->seq_len, m->scan_key_heads, m->scan_heads,
                                               m->scan_key_dim, m->scan_dim, at->shape->gpu);
}

/* Multiply-adds of a token and value head: the triangles of a chunk with keys, queries and values, and three products with the state. */
static double flops(const stage_site *at)
{
    const model_config *m = &at->model->config;
    const double keys = (double)m->scan_key_dim, values = (double)m->scan_dim;
    return 2 * (double)(m->scan_heads * at->shape->unit_rows) * (SCAN_CHUNK * (keys + values) + 3 * keys * values);
}

static uint64_t state_bytes(const stage_site *at)
{
    const model_config *m = &at->model->config;
    return align_up((uint64_t)(m->scan_heads * m->scan_key_dim * m->scan_dim) * sizeof(float), 64);
}

/* Where q, k and v begin among the convolution's columns. */
typedef struct scan_columns { int64_t q, k, v; } scan_columns;

static scan_columns columns_of(const layer_work *work)
{
    const int64_t keys = work->config->scan_key_heads * work->config->scan_key_dim, values = model_mix_values(work->config, work->layer);
    return kind_of(work) == SCAN_DELTA ? (scan_columns){0, keys, 2 * keys} : (scan_columns){values + keys, values, 0};
}

/* The delta rule divides q and k by their lengths. */
static op_scan scan_of(const layer_work *work, const layer_stage *stage)
{
    const model_config *m = work->config;
    const bool delta = kind_of(work) == SCAN_DELTA;
    const scan_columns at = columns_of(work);
    const char *in = tensor(work, stage->in[0]);
    return (op_scan){.kind = kind_of(work),
                     .type = work->type,
                     .seqs = work->c->shape->unit_seqs,
                     .len = work->c->shape->seq_len,
                     .key_heads = m->scan_key_heads,
                     .heads = m->scan_heads,
                     .key_dim = m->scan_key_dim,
                     .dim = m->scan_dim,
                     .ld = columns(work, stage->in[0]),
                     .ldo = columns(work, stage->out[0]),
                     .scale = delta ? (float)(1 / sqrt((double)m->scan_key_dim)) : 1,
                     .norm_eps = delta ? 1e-6f : 0,
                     .first = work->u->first,
                     .q = column(in, at.q, work->type),
                     .k = column(in, at.k, work->type),
                     .v = column(in, at.v, work->type),
                     .g = tensor(work, stage->in[SCAN_DECAYS]),
                     .beta = tensor(work, stage->in[SCAN_STEPS]),
                     .skip = weight_of(work, stage->param[0]),
                     .states = tensor(work, stage->out[1])};
}

static void forward(const layer_work *work, const layer_stage *stage)
{
    op_scan o = scan_of(work, stage);
    o.before = (const float *)past_state_of(work, stage);
    o.after = (float *)state_of(work, stage);
    o.out = tensor(work, stage->out[0]);
    o.states = work->u->cache ? NULL : o.states;
    queue_submit(work->c->queue, &(op){OP_SCAN, .scan = o});
}

static void input(const layer_work *work, const layer_stage *stage)
{
    const scan_columns at = columns_of(work);
    char *d = gradient(work, stage->in[0]);
    queue_submit(work->c->queue, &(op){OP_SCAN_BACKWARD, .scan_backward = {.forward = scan_of(work, stage),
                                                                           .accumulate = !work->first,
                                                                           .lddo = columns(work, stage->out[0]),
                                                                           .ldd = columns(work, stage->in[0]),
                                                                           .dout = gradient(work, stage->out[0]),
                                                                           .dq = column(d, at.q, work->type),
                                                                           .dk = column(d, at.k, work->type),
                                                                           .dv = column(d, at.v, work->type),
                                                                           .dg = gradient(work, stage->in[SCAN_DECAYS]),
                                                                           .dbeta = gradient(work, stage->in[SCAN_STEPS]),
                                                                           .dskip = accumulator(work, stage->param[0]),
                                                                           .scratch = scratch(work, stage, 0)}});
}

const stage_type stage_scan = {.name = "scan", .touches = touches, .scratch = scratch_bytes, .flops = flops, .state = state_bytes,
                               .pass = {forward, input}};
