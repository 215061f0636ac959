/* attention.c - causal attention over a unit's sequences, of all heads or of a group of them (groups.h). In generation it appends the
 * unit's k and v to the layer's cache and reads all of them there, perhaps in parts, of some heads each: heads do not depend on each other.
 * A layer may read another's k and v. */
#include "layer/work.h"

enum { SCRATCH_ROWS, SCRATCH_SUMS, SCRATCH_KV = ATTENTION_SCRATCH_KV };

/* Are k and v those of another layer? */
static bool reads_other(const layer_stage *stage) { return stage->in[1] != LAYER_NONE; }

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    const unsigned all = TOUCH_IN(0) | TOUCH_OUT(0) | TOUCH_OUT(1);
    return pass == PASS_FORWARD
               ? all : all | TOUCH_OUT_GRADIENT(0) | TOUCH_IN_GRADIENT(0) | TOUCH_SCRATCH(SCRATCH_ROWS) | TOUCH_SCRATCH(SCRATCH_SUMS) |
                       (reads_other(stage) ? TOUCH_SCRATCH(SCRATCH_KV) : 0);
}

static uint64_t sums_bytes(const step_shape *shape, attention_heads h)
{
    return attention_accumulator_bytes(shape->unit_seqs, shape->seq_len, h.kv_heads, h.dim);
}

static uint64_t scratch_bytes(const stage_site *at, int k)
{
    if (shape_parts(at->shape) > 1 && k != SCRATCH_KV)
        return 0; /* it lies with the heads */
    const attention_heads h = group_heads(model_heads(&at->model->config, at->layer), layer_groups(at->model, at->layer, at->shape));
    if (k == SCRATCH_KV)
        return (uint64_t)(2 * h.kv_wide * at->shape->unit_rows) * dtype_bytes(at->shape->type);
    return k == SCRATCH_ROWS ? attention_backward_scratch_bytes(at->shape->unit_rows, h.heads) : sums_bytes(at->shape, h);
}

static double flops(const stage_site *at)
{
    const model_config *m = &at->model->config;
    const double keys = model_average_keys(m->window[at->layer], shape_length(at->shape));
    return 4 * (double)model_heads(m, at->layer).q_wide * keys * (double)at->shape->unit_rows;
}

static uint64_t cache_bytes(const stage_site *at)
{
    const int64_t values = reads_other(at->stage) ? 0 : 2 * model_heads(&at->model->config, at->layer).kv_wide;
    return (uint64_t)values * dtype_bytes(at->shape->type);
}

/* The columns of the group's heads among those of attention's output or its gradient. */
static void *of_group(const layer_work *work, void *out) { return column(out, work->group * heads_of(work).q_wide, work->type); }

/* (seqs, heads, T) of each group, one behind the other. */
static float *statistics(const layer_work *work, const layer_stage *stage)
{
    return (float *)tensor(work, stage->out[1]) + work->group * heads_of(work).heads * work->c->shape->unit_rows;
}

/* kv (rows, 2, heads of k and v, dim) */
static void read_keys(op_attention *o, char *kv)
{
    const int64_t wide = o->kv_heads * o->dim;
    o->ldkv = 2 * wide;
    o->k = kv;
    o->v = column(kv, wide, o->type);
}

static op_attention attention_of(const layer_work *work, const layer_stage *stage)
{
    const model_config *m = work->config;
    const attention_heads h = heads_of(work);
    const int64_t t = work->c->shape->seq_len, past = (shape_length(work->c->shape) - t) / 2; /* a part in the middle: to be priced alone */
    const qkv_columns at = qkv_of(work);
    char *qkv = tensor(work, stage->in[0]);
    op_attention o = {
        .type = work->type, .seqs = work->c->shape->unit_seqs, .q_len = t, .kv_len = t + past, .heads = h.heads, .kv_heads = h.kv_heads,
        .dim = h.dim, .window = m->window[work->layer], .ldq = at.all, .ldkv = at.all, .ldo = columns(work, stage->out[0]),
        .scale = m->attention_scale * m->layer_scale[work->layer], .softcap = m->attention_softcap, .first = work->u->first,
        .q = column(qkv, at.q, work->type), .k = column(qkv, at.k, work->type), .v = column(qkv, at.v, work->type),
        .out = of_group(work, tensor(work, stage->out[0])), .lse = statistics(work, stage)};
    if (reads_other(stage) && !work->u->cache)
        read_keys(&o, tensor(work, stage->in[1]));
    return o;
}

static op_sink sink_of(const layer_work *work, const layer_stage *stage, const op_attention *o, int64_t head)
{
    return (op_sink){.type = o->type, .seqs = o->seqs, .q_len = o->q_len, .heads = o->heads, .dim = o->dim, .ldo = o->ldo,
                     .sinks = (const float *)weight_of(work, stage->param[0]) + head, .out = o->out, .lse = o->lse};
}

/* head: the first one. */
static void submit(const layer_work *work, const layer_stage *stage, const op_attention *o, int64_t head)
{
    queue_submit(work->c->queue, &(op){OP_ATTENTION, .attention = *o});
    if (stage->param[0] != PARAM_NONE)
        queue_submit(work->c->queue, &(op){OP_SINK, .sink = sink_of(work, stage, o, head)});
}

/* ---- generation ---- */

/* Appends the rows' k and v of some heads, which are `wide` columns of each, from column `at` of all heads' on. */
static void append(const layer_work *work, const void *qkv, cache_rows to, int64_t at, int64_t wide)
{
    const qkv_columns all = model_qkv_columns(work->config, work->layer);
    const size_t each = dtype_bytes(work->type), row = (size_t)(2 * wide) * each;
    const bool together = all.v + at == all.k + at + wide;
    for (int i = 0; i < (together ? 1 : 2); i++)
        queue_submit(work->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {
            column(to.rows, to.past * 2 * wide + i * wide, work->type), column(qkv, (i ? all.v : all.k) + at, work->type), work->rows,
            together ? row : row / 2, row, (size_t)all.all * each}});
}

/* Attention of the heads of part `part` of `parts`. */
static op_attention part_of(const op_attention *all, cache_rows kv, int part, int parts)
{
    op_attention o = *all;
    o.heads /= parts;
    o.kv_heads /= parts;
    o.kv_len = o.q_len + kv.past;
    o.q = column(all->q, part * o.heads * o.dim, o.type);
    o.out = column(all->out, part * o.heads * o.dim, o.type);
    o.lse = all->lse ? all->lse + part * o.heads * o.q_len : NULL;
    read_keys(&o, kv.rows);
    return o;
}

static void generate(const layer_work *work, const layer_stage *stage)
{
    const cache_parts *parts = &work->u->cache->parts;
    const int n = parts->n ? parts->n : 1;
    op_attention all = attention_of(work, stage);
    if (stage->param[0] == PARAM_NONE)
        all.lse = NULL;
    for (int i = 0; i < n; i++) {
        const cache_rows kv = parts->n ? parts->enter(parts->arg) : work->u->cache->all;
        const op_attention o = part_of(&all, kv, i, n);
        if (!reads_other(stage))
            append(work, tensor(work, stage->in[0]), kv, i * o.kv_heads * o.dim, o.kv_heads * o.dim);
        submit(work, stage, &o, i * o.heads);
        if (parts->n)
            parts->leave(parts->arg);
    }
}

/* ---- training ---- */

static void forward(const layer_work *work, const layer_stage *stage)
{
    const op_attention o = attention_of(work, stage);
    if (work->u->cache)
        generate(work, stage);
    else
        submit(work, stage, &o, work->group * o.heads);
}

/* In the scratch memory of attention's own backward, which comes after it. */
static void sink_gradient(const layer_work *work, const layer_stage *stage)
{
    const op_attention o = attention_of(work, stage);
    float *acc = accumulator(work, stage->param[0]);
    if (acc)
        queue_submit(work->c->queue, &(op){OP_SINK_BACKWARD, .sink_backward = {
            .forward = sink_of(work, stage, &o, work->group * o.heads), .accumulate = !work->first_of_group, .lddo = o.ldo,
            .dout = of_group(work, gradient(work, stage->out[0])), .scratch = scratch(work, stage, SCRATCH_ROWS),
            .dsinks = acc + work->group * o.heads}});
}

static void input(const layer_work *work, const layer_stage *stage)
{
    const op_attention o = attention_of(work, stage);
    const qkv_columns at = qkv_of(work);
    char *dqkv = gradient(work, stage->in[0]), *dkv = reads_other(stage) ? scratch(work, stage, SCRATCH_KV) : NULL;
    sink_gradient(work, stage);
    queue_submit(work->c->queue, &(op){OP_ATTENTION_BACKWARD, .attention_backward = {
        .forward = o, .lddo = o.ldo, .dout = of_group(work, gradient(work, stage->out[0])),
        .dq = column(dqkv, at.q, work->type), .dk = dkv ? dkv : column(dqkv, at.k, work->type),
        .dv = dkv ? column(dkv, heads_of(work).kv_wide, work->type) : column(dqkv, at.v, work->type),
        .scratch = scratch(work, stage, SCRATCH_ROWS),
        .sums = sums_bytes(work->c->shape, heads_of(work)) ? (float *)scratch(work, stage, SCRATCH_SUMS) : NULL}});
    if (dkv)
        share_add_gradient(work, dkv, stage->begins);
}

const stage_type stage_attention = {.name = "attention", .touches = touches, .scratch = scratch_bytes, .flops = flops,
                                    .cache = cache_bytes, .pass = {forward, input}};
