#include "layer/sequence.h"

#include "base/units.h"
#include "layer/work.h"

enum { LINE = 64 };

/* Heads of one sharer: of k and v from `first` on, and what comes before them in memory that has all sharers' side by side. */
typedef struct share { int64_t first, n; } share;

typedef struct heads_layout {
    attention_heads all;
    qkv_columns at;
    int sharers, me;
    int64_t together, rows, own_rows, length; /* units; rows of a unit, of this rank, of the sequence */
    int64_t group, q_each, kv_each;           /* of one head of k and v: heads of q that read it, columns of q, of k */
    size_t e;
    bool kept;                                /* backward finds q, k, v, output and statistics of the heads */
    uint64_t edge, edge_out, edge_gradient, edge_statistics, first, qkv, out, statistics, out_gradient, qkv_gradient, rows_scratch, sums,
        bytes;
} heads_layout;

/* What comes back from attention lies where its inputs did, unless backward needs these again. */
static uint64_t back_of(const heads_layout *h, bool backward, step_pass pass)
{
    return backward && pass == PASS_FORWARD ? h->edge : h->qkv;
}

static share share_of(const heads_layout *h, int sharer)
{
    const int64_t first = h->all.kv_heads * sharer / h->sharers;
    return (share){first, h->all.kv_heads * (sharer + 1) / h->sharers - first};
}

static int64_t most_heads(const heads_layout *h) { return (h->all.kv_heads + h->sharers - 1) / h->sharers; }

static int64_t qkv_each(const heads_layout *h) { return h->q_each + 2 * h->kv_each; }

static uint64_t take(uint64_t *at, uint64_t bytes)
{
    const uint64_t offset = *at;
    *at = align_up(*at + bytes, LINE);
    return offset;
}

static int attention_stage(const layer_program *program)
{
    for (int i = 0; i < program->stages_n; i++)
        if (program->stage[i].kind == STAGE_ATTENTION)
            return i;
    return LAYER_NONE;
}

/* Has backward computed attention again, and are its gradients computed from just that? */
static bool is_kept(const layer_layout *layout)
{
    const int attention = attention_stage(&layout->program);
    const layer_stage *stage = &layout->program.stage[attention];
    bool again = false;
    for (int i = 0; i < layout->backward_n; i++)
        again = again || (layout->backward[i].pass == PASS_FORWARD && layout->backward[i].stage == attention);
    return again && !layout->rounded[stage->in[0]] && !layout->rounded[stage->out[0]];
}

/* What is sent is no longer needed when attention writes what it makes, so both lie in one place. Returns the end of the former. */
static uint64_t place_edge(heads_layout *h, bool backward, uint64_t at)
{
    const uint64_t rows = h->sharers > 1 ? (uint64_t)h->own_rows : 0, heads = (uint64_t)h->all.kv_heads;
    const uint64_t qkv = rows * heads * (uint64_t)qkv_each(h) * h->e, out = rows * heads * (uint64_t)h->q_each * h->e;
    h->edge = take(&at, qkv > out ? qkv : out);
    h->edge_out = take(&at, backward ? out : 0);
    h->edge_gradient = take(&at, backward ? out : 0);
    return at;
}

static heads_layout layout_of_heads(const layer_layout *layout, const model *m, int layer, const step_shape *shape, bool backward)
{
    heads_layout h = {.all = model_heads(&m->config, layer), .at = model_qkv_columns(&m->config, layer), .sharers = shape_sharers(shape),
                      .me = shape_sharer(shape), .together = shape_together(shape), .rows = shape->unit_rows,
                      .length = shape_length(shape), .e = dtype_bytes(shape->type), .kept = backward && is_kept(layout)};
    h.own_rows = h.together * h.rows;
    h.group = h.all.heads / h.all.kv_heads;
    h.q_each = h.all.q_wide / h.all.kv_heads;
    h.kv_each = h.all.kv_wide / h.all.kv_heads;
    const uint64_t most = (uint64_t)most_heads(&h), rows = (uint64_t)h.length, out = rows * most * (uint64_t)h.q_each * h.e,
                   qkv = rows * most * (uint64_t)qkv_each(&h) * h.e;
    uint64_t at = 0, end;
    h.edge_statistics = take(&at, h.sharers > 1 ? (uint64_t)(h.own_rows * h.all.heads) * sizeof(float) : 0);
    h.first = take(&at, shape->documents ? rows * sizeof(int32_t) : 0);
    h.qkv = take(&at, qkv);
    h.statistics = take(&at, rows * most * (uint64_t)h.group * sizeof(float));
    if (backward) {
        h.out = take(&at, out);
        h.out_gradient = take(&at, out);
        h.rows_scratch = take(&at, attention_backward_scratch_bytes(h.length, (int64_t)most * h.group));
        h.sums = take(&at, attention_accumulator_bytes(1, h.length, (int64_t)most, h.all.dim));
    }
    end = place_edge(&h, backward, at);
    *(backward ? &h.qkv_gradient : &h.out) = take(&at, backward ? qkv : out);
    at = at > end ? at : end;
    h.bytes = at;
    return h;
}

uint64_t sequence_bytes(const layer_layout *layout, const model *m, int layer, const step_shape *shape, bool backward)
{
    const uint64_t together = (uint64_t)shape_together(shape);
    if (shape_parts(shape) == 1 || attention_stage(&layout->program) == LAYER_NONE)
        return 0;
    return align_up((layout_of_heads(layout, m, layer, shape, backward).bytes + together - 1) / together, 4096);
}

/* Are there stages before and after attention with the same weights? Their gradients would have to be added lane by lane. */
static bool shares_weights(const model *m, int layer)
{
    layer_program p;
    layer_describe(&p, m, layer);
    const int attention = attention_stage(&p);
    bool before[PARAM_ROLES] = {false}, shared = false;
    for (int i = 0; i < p.stages_n; i++)
        for (int k = 0; k < STAGE_PARAMS; k++) {
            const param_role role = p.stage[i].param[k];
            if (role != PARAM_NONE && i < attention)
                before[role] = true;
            shared = shared || (role != PARAM_NONE && i > attention && before[role]);
        }
    return shared;
}

int sequence_check(const model *m, const step_shape *shape, int lanes, const char *option, pt_error *e)
{
    const char *why = NULL;
    for (int i = 0; i < m->config.layers; i++)
        if (m->config.mixer[i] != MIXER_ATTENTION)
            why = "layers of this model have a state that passes from token to token";
        else if (shares_weights(m, i))
            why = "attention and MLP of this model share the weights of a norm";
    if (shape_compares(shape))
        why = "the task compares whole replies";
    if (!why || lanes <= shape_sequences(shape))
        return 0;
    return pt_fail(e, PT_USAGE, "`%s` %d would divide the %lld sequence%s of a step into parts, but %s: give `%s` %lld or `batch_size` %d",
                   option, lanes, (long long)shape_sequences(shape), plural((uint64_t)shape_sequences(shape)), why, option,
                   (long long)shape_sequences(shape), lanes);
}

/* ---- parts ---- */

static double flops_of_steps(const stage_site *at, const layer_step *steps, int begin, int end)
{
    double flops = 0;
    for (int i = begin; i < end; i++) {
        const stage_type *type = step_is_of_tensor(steps[i]) ? NULL : stage_type_of(at->program->stage[steps[i].stage].kind);
        flops += type && type->flops
                     ? type->flops(&(stage_site){at->model, at->shape, at->program, &at->program->stage[steps[i].stage], at->layer}) : 0;
    }
    return flops;
}

static bool is_attention(const layer_program *program, layer_step step)
{
    return !step_is_of_tensor(step) && program->stage[step.stage].kind == STAGE_ATTENTION;
}

static uint64_t bytes_exchanged(const heads_layout *h, step_pass pass, bool before)
{
    const uint64_t rows = (uint64_t)(h->rows * h->all.kv_heads), statistics = rows * (uint64_t)h->group * sizeof(float),
                   qkv = rows * (uint64_t)qkv_each(h) * h->e, out = rows * (uint64_t)h->q_each * h->e;
    if (pass == PASS_FORWARD)
        return before ? qkv : out + statistics;
    return before ? out + (h->kept ? 0 : qkv + out + statistics) : qkv;
}

static void add_exchange(layer_parts *out, const heads_layout *h, step_pass pass, layer_part p)
{
    p.kind = PART_EXCHANGE;
    p.bytes = bytes_exchanged(h, pass, p.gives);
    if (h->sharers > 1)
        out->part[out->n++] = p;
}

void sequence_parts(layer_parts *out, const model *m, int layer, const step_shape *shape, const layer_layout *layout, bool backward)
{
    const layer_program *program = &layout->program;
    const layer_step *steps = backward ? layout->backward : layout->forward;
    const int n = backward ? layout->backward_n : layout->forward_n;
    const stage_site at = {.model = m, .shape = shape, .program = program, .layer = layer};
    const heads_layout h = layout_of_heads(layout, m, layer, shape, backward);
    const double all = flops_of_steps(&at, steps, 0, n);
    int begun = 0, taken = 0;
    *out = (layer_parts){0};
    for (int i = 0; i <= n; i++) {
        const bool attends = i < n && is_attention(program, steps[i]);
        if (i < n && !attends)
            continue;
        const int gives = attends ? i + 1 : 0;
        if (taken && gives && !h.kept && h.sharers > 1) { /* all units take what the edge has before one gives */
            out->part[out->n++] = (layer_part){.kind = PART_UNITS, .first = begun, .end = begun, .takes = taken, .matrix = PARAM_NONE};
            taken = 0;
        }
        out->part[out->n++] = (layer_part){.kind = PART_UNITS, .first = begun, .end = i, .takes = taken, .gives = gives,
                                           .matrix = PARAM_NONE, .whole = true, .share = flops_of_steps(&at, steps, begun, i) / all};
        begun = i + 1;
        taken = gives;
        if (!attends)
            continue;
        add_exchange(out, &h, steps[i].pass, (layer_part){.gives = gives});
        out->part[out->n++] = (layer_part){.kind = PART_ATTEND, .first = i, .end = i + 1, .matrix = PARAM_NONE,
                                           .whole = program->stage[steps[i].stage].param[0] != PARAM_NONE, /* sinks */
                                           .share = flops_of_steps(&at, steps, i, i + 1) / all};
        add_exchange(out, &h, steps[i].pass, (layer_part){.takes = gives});
    }
}

/* ---- rows to heads and back ---- */

/* Columns that belong to heads of k and v, of a unit's tensors: each range has so many columns for each such head. */
typedef struct head_range { char *at; int64_t ld, column, each; } head_range;
typedef struct head_columns { int ranges; head_range range[3]; int64_t all; } head_columns;

/* Of q, k and v, or their gradients. kv: k and v side by side, if they are another layer's; else NULL. */
static head_columns columns_of_qkv(const heads_layout *h, void *qkv, void *kv)
{
    const int64_t wide = h->all.kv_wide;
    return (head_columns){3, {{qkv, h->at.all, h->at.q, h->q_each},
                              {kv ? kv : qkv, kv ? 2 * wide : h->at.all, kv ? 0 : h->at.k, h->kv_each},
                              {kv ? kv : qkv, kv ? 2 * wide : h->at.all, kv ? wide : h->at.v, h->kv_each}}, qkv_each(h)};
}

static head_columns columns_of_out(const heads_layout *h, void *out, int64_t ld)
{
    return (head_columns){1, {{out, ld, 0, h->q_each}}, h->q_each};
}

/* The memory of a unit's rows of a sharer's heads, one row behind the other: of this rank's own heads among those of all rows (`heads`),
 * else in the edge. */
static char *rows_of_sharer(const heads_layout *h, const layer_work *work, const head_columns *c, int sharer, uint64_t heads, uint64_t edge)
{
    const share s = share_of(h, sharer);
    const int64_t row = work->u->part * h->rows;
    if (sharer == h->me)
        return work->u->heads + heads + (size_t)((h->me * h->own_rows + row) * s.n * c->all) * h->e;
    return work->u->heads + edge + (size_t)((h->own_rows * s.first + row * s.n) * c->all) * h->e;
}

static void copy_rows(const layer_work *work, void *to, const void *from, int64_t rows, size_t bytes, size_t ldto, size_t ldfrom)
{
    if (bytes)
        queue_submit(work->c->queue, &(op){OP_COPY_ROWS, .copy_rows = {to, from, rows, bytes, ldto, ldfrom}});
}

/* Copies the columns to the sharers' memory, or back. */
static void move_columns(const heads_layout *h, const layer_work *work, head_columns c, uint64_t heads, uint64_t edge, bool to_heads)
{
    for (int sharer = 0; sharer < h->sharers; sharer++) {
        const share s = share_of(h, sharer);
        char *there = rows_of_sharer(h, work, &c, sharer, heads, edge);
        const size_t wide = (size_t)(s.n * c.all) * h->e;
        for (int i = 0; i < c.ranges; i++) {
            const head_range *r = &c.range[i];
            char *here = column(r->at, r->column + s.first * r->each, work->type);
            const size_t bytes = (size_t)(s.n * r->each) * h->e, row = (size_t)r->ld * h->e;
            copy_rows(work, to_heads ? there : here, to_heads ? here : there, h->rows, bytes, to_heads ? wide : row, to_heads ? row : wide);
            there += bytes;
        }
    }
}

/* The same of statistics: a unit's are (heads, rows), those of this rank's heads (heads, length), those in the edge for each sharer (units,
 * heads, rows) before they are sent, and (heads, this rank's rows) after they have come. */
static void move_statistics(const heads_layout *h, const layer_work *work, float *of_unit, bool to_heads)
{
    for (int sharer = 0; sharer < h->sharers; sharer++) {
        const share s = share_of(h, sharer);
        const int64_t n = s.n * h->group, row = work->u->part * h->rows;
        float *here = of_unit + s.first * h->group * h->rows, *there = (float *)(work->u->heads + h->edge_statistics);
        int64_t ld = to_heads ? h->rows : h->own_rows;
        there += s.first * h->group * h->own_rows + (to_heads ? row * n : row);
        if (sharer == h->me) {
            there = (float *)(work->u->heads + h->statistics) + h->me * h->own_rows + row;
            ld = h->length;
        }
        const size_t row_bytes = (size_t)h->rows * sizeof(float), wide = (size_t)ld * sizeof(float);
        copy_rows(work, to_heads ? there : here, to_heads ? here : there, n, row_bytes, to_heads ? wide : row_bytes,
                  to_heads ? row_bytes : wide);
    }
}

static bool is_backward(const layer_work *work) { return work->at == work->l->backward_at; }

static heads_layout heads_of_work(const layer_work *work)
{
    return layout_of_heads(work->l, work->c->model, work->layer, work->c->shape, is_backward(work));
}

static layer_work work_of_step(const layer_work *work, int step, const layer_stage **stage)
{
    const layer_step s = (is_backward(work) ? work->l->backward : work->l->forward)[step - 1];
    layer_work of = *work;
    of.pass = s.pass;
    *stage = &work->l->program.stage[s.stage];
    return of;
}

/* Are k and v those of another layer? */
static bool reads_other(const layer_stage *stage) { return stage->in[1] != LAYER_NONE; }

void sequence_give(const layer_work *work, const layer_part *part)
{
    const layer_stage *stage;
    const layer_work of = work_of_step(work, part->gives, &stage);
    const heads_layout h = heads_of_work(work);
    const int64_t wide = columns(&of, stage->out[0]);
    if (of.pass != PASS_FORWARD)
        move_columns(&h, &of, columns_of_out(&h, gradient(&of, stage->out[0]), wide), h.out_gradient, h.edge_gradient, true);
    if (of.pass != PASS_FORWARD && h.kept)
        return;
    void *kv = reads_other(stage) ? tensor(&of, stage->in[1]) : NULL;
    move_columns(&h, &of, columns_of_qkv(&h, tensor(&of, stage->in[0]), kv), h.qkv, h.edge, true);
    if (of.c->shape->documents)
        queue_submit(of.c->queue, &(op){OP_COPY, .copy = {
            (int32_t *)(of.u->heads + h.first) + h.me * h.own_rows + of.u->part * h.rows, of.u->first, (size_t)h.rows * sizeof(int32_t)}});
    if (of.pass == PASS_FORWARD)
        return;
    move_columns(&h, &of, columns_of_out(&h, tensor(&of, stage->out[0]), wide), h.out, h.edge_out, true);
    move_statistics(&h, &of, tensor(&of, stage->out[1]), true);
}

void sequence_take(const layer_work *work, const layer_part *part)
{
    const layer_stage *stage;
    const layer_work of = work_of_step(work, part->takes, &stage);
    const heads_layout h = heads_of_work(work);
    const uint64_t back = back_of(&h, is_backward(work), of.pass);
    if (of.pass == PASS_FORWARD) {
        move_columns(&h, &of, columns_of_out(&h, tensor(&of, stage->out[0]), columns(&of, stage->out[0])), h.out, back, false);
        move_statistics(&h, &of, tensor(&of, stage->out[1]), false);
        return;
    }
    void *dkv = reads_other(stage) ? scratch(&of, stage, ATTENTION_SCRATCH_KV) : NULL;
    move_columns(&h, &of, columns_of_qkv(&h, gradient(&of, stage->in[0]), dkv), h.qkv_gradient, back, false);
    if (dkv)
        share_add_gradient(&of, dkv, stage->begins);
}

/* ---- attention ---- */

static op_attention attention_of(const layer_work *work, const heads_layout *h, share own)
{
    const model_config *m = work->config;
    const int64_t q = own.n * h->q_each, kv = own.n * h->kv_each;
    char *base = work->u->heads, *qkv = base + h->qkv;
    return (op_attention){
        .type = work->type, .seqs = 1, .q_len = h->length, .kv_len = h->length, .heads = own.n * h->group, .kv_heads = own.n,
        .dim = h->all.dim, .window = m->window[work->layer], .ldq = q + 2 * kv, .ldkv = q + 2 * kv, .ldo = q,
        .scale = m->attention_scale * m->layer_scale[work->layer], .softcap = m->attention_softcap,
        .first = work->c->shape->documents ? (const int32_t *)(base + h->first) : NULL, .q = qkv, .k = column(qkv, q, work->type),
        .v = column(qkv, q + kv, work->type), .out = base + h->out, .lse = (float *)(base + h->statistics)};
}

/* The gradients of sinks are sums over all rows: a rank has them of its heads, in its first lane of the sequence. */
static void sink_gradients(const layer_work *work, const heads_layout *h, share own, const op_sink *forward, float *acc)
{
    if (!acc)
        return;
    queue_submit(work->c->queue, &(op){OP_ZERO, .copy = {.dst = acc, .bytes = (size_t)h->all.heads * sizeof *acc}});
    if (!work->u->part && own.n)
        queue_submit(work->c->queue, &(op){OP_SINK_BACKWARD, .sink_backward = {
            .forward = *forward, .lddo = forward->ldo, .dout = work->u->heads + h->out_gradient,
            .scratch = work->u->heads + h->rows_scratch, .dsinks = acc + own.first * h->group}});
}

void sequence_attend(const layer_work *work, const layer_part *part)
{
    const heads_layout h = heads_of_work(work);
    const share own = share_of(&h, h.me);
    const layer_stage *stage;
    const step_pass pass = work_of_step(work, part->first + 1, &stage).pass;
    const param_role sinks = stage->param[0];
    const op_attention o = attention_of(work, &h, own);
    const op_sink sink = {.type = o.type, .seqs = 1, .q_len = o.q_len, .heads = o.heads, .dim = o.dim, .ldo = o.ldo, .out = o.out,
                          .lse = o.lse, .sinks = sinks == PARAM_NONE ? NULL
                                                                     : (const float *)weight_of(work, sinks) + own.first * h.group};
    char *gradients = work->u->heads + h.qkv_gradient;
    if (pass != PASS_FORWARD)
        sink_gradients(work, &h, own, &sink, accumulator(work, sinks));
    if (work->u->part || !own.n)
        return;
    if (pass == PASS_FORWARD) {
        queue_submit(work->c->queue, &(op){OP_ATTENTION, .attention = o});
        if (sinks != PARAM_NONE)
            queue_submit(work->c->queue, &(op){OP_SINK, .sink = sink});
        return;
    }
    queue_submit(work->c->queue, &(op){OP_ATTENTION_BACKWARD, .attention_backward = {
        .forward = o, .lddo = o.ldo, .dout = work->u->heads + h.out_gradient, .dq = gradients,
        .dk = column(gradients, own.n * h.q_each, work->type), .dv = column(gradients, own.n * (h.q_each + h.kv_each), work->type),
        .scratch = work->u->heads + h.rows_scratch,
        .sums = attention_accumulator_bytes(1, h.length, own.n, h.all.dim) ? (float *)(work->u->heads + h.sums) : NULL}});
}

/* ---- exchanges ---- */

typedef struct mover { const heads_layout *h; char *heads; void (*move)(void *arg, sequence_move m); void *arg; } mover;

static void move(const mover *to, int sharer, bool sends, uint64_t at, uint64_t bytes)
{
    if (bytes)
        to->move(to->arg, (sequence_move){sharer, sends, to->heads + at, bytes});
}

/* Rows of `each` columns for each head of k and v: in the edge those of this rank's rows, for each sharer; with the heads those of all
 * rows, for this rank's heads. */
static void move_rows(const mover *to, int sharer, int64_t each, uint64_t edge, uint64_t heads, bool to_heads)
{
    const heads_layout *h = to->h;
    const share own = share_of(h, h->me), there = share_of(h, sharer);
    const uint64_t row = (uint64_t)each * h->e, rows = (uint64_t)h->own_rows;
    move(to, sharer, to_heads, edge + rows * (uint64_t)there.first * row, rows * (uint64_t)there.n * row);
    move(to, sharer, !to_heads, heads + (uint64_t)sharer * rows * (uint64_t)own.n * row, rows * (uint64_t)own.n * row);
}

/* Both sides in pieces of the same sizes, because NCCL wants pairs: (units, heads) to the heads, (heads) back. */
static void move_statistics_of(const mover *to, int sharer, bool to_heads)
{
    const heads_layout *h = to->h;
    const share own = share_of(h, h->me), there = share_of(h, sharer);
    const int64_t units = to_heads ? h->together : 1, rows = to_heads ? h->rows : h->own_rows;
    const uint64_t f = sizeof(float), bytes = (uint64_t)rows * f,
                   edge = h->edge_statistics + (uint64_t)(there.first * h->group * h->own_rows) * f;
    for (int64_t piece = 0; piece < units * there.n * h->group; piece++)
        move(to, sharer, to_heads, edge + (uint64_t)piece * bytes, bytes);
    for (int64_t unit = 0; unit < units; unit++)
        for (int64_t head = 0; head < own.n * h->group; head++)
            move(to, sharer, !to_heads, h->statistics + (uint64_t)(head * h->length + sharer * h->own_rows + unit * rows) * f, bytes);
}

static void move_first(const mover *to, int sharer)
{
    const uint64_t bytes = (uint64_t)to->h->own_rows * sizeof(int32_t);
    move(to, sharer, true, to->h->first + (uint64_t)to->h->me * bytes, bytes);
    move(to, sharer, false, to->h->first + (uint64_t)sharer * bytes, bytes);
}

void sequence_moves(const layer_layout *layout, const model *m, int layer, const step_shape *shape, bool backward, const layer_part *part,
                    char *heads, void (*each)(void *arg, sequence_move m), void *arg)
{
    const heads_layout h = layout_of_heads(layout, m, layer, shape, backward);
    const mover to = {&h, heads, each, arg};
    const bool before = part->gives;
    const step_pass pass = (backward ? layout->backward : layout->forward)[(before ? part->gives : part->takes) - 1].pass;
    const bool gradients = pass != PASS_FORWARD, all = !gradients || !h.kept;
    const uint64_t back = back_of(&h, backward, pass);
    for (int sharer = 0; sharer < h.sharers; sharer++) {
        if (sharer == h.me)
            continue;
        if (before && gradients)
            move_rows(&to, sharer, h.q_each, h.edge_gradient, h.out_gradient, true);
        if (before && all)
            move_rows(&to, sharer, qkv_each(&h), h.edge, h.qkv, true);
        if (before && all && shape->documents)
            move_first(&to, sharer);
        if (before && all && gradients) {
            move_rows(&to, sharer, h.q_each, h.edge_out, h.out, true);
            move_statistics_of(&to, sharer, true);
        }
        if (!before && gradients)
            move_rows(&to, sharer, qkv_each(&h), back, h.qkv_gradient, false);
        if (!before && !gradients) {
            move_rows(&to, sharer, h.q_each, back, h.out, false);
            move_statistics_of(&to, sharer, false);
        }
    }
}
