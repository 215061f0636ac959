/* layer.c - the stages of a layer, and the steps of its backward. */
#include "model/layer.h"

#include "model/adapter.h"
#include "model/storage.h"

#include <string.h>

/* ---- stages ---- */

static void add(layer_stages *l, layer_stage s)
{
    s.low = s.gain = LAYER_NONE;
    l->of[l->n++] = s;
}

/* A linear stage, after those of its adapter. */
static void add_linear(layer_stages *l, const model_config *c, layer_stage s)
{
    const int matrix = adapter_matrix(s.weight);
    const layer_tensor low = LAYER_LOW_QKV + matrix, gain = LAYER_GAIN_QKV + matrix;
    const bool adapted = c->adapter_width[matrix] > 0, dora = adapted && c->dora;
    if (adapted)
        add(l, (layer_stage){STAGE_LOW, s.in, low, LAYER_NONE, LAYER_NONE, s.weight, PARAM_NONE, LAYER_NONE, LAYER_NONE});
    if (dora)
        add(l, (layer_stage){STAGE_GAIN, LAYER_NONE, gain, LAYER_NONE, LAYER_NONE, s.weight, PARAM_NONE, LAYER_NONE, LAYER_NONE});
    add(l, s);
    l->of[l->n - 1].low = adapted ? low : LAYER_NONE;
    l->of[l->n - 1].gain = dora ? gain : LAYER_NONE;
}

/* The end of a branch: its last linear stage, and the sum with the residual stream. `between`: the tensor between them if there is a
 * norm. */
static void add_end(layer_stages *l, const model_config *c, layer_tensor in, layer_tensor between, layer_tensor residual, layer_tensor out)
{
    const bool mlp = in == LAYER_ACT;
    const param_role weight = mlp ? PARAM_DOWN : PARAM_OUT, bias = mlp ? PARAM_DOWN_BIAS : PARAM_OUT_BIAS;
    const param_role norm = mlp ? PARAM_POST_NORM2 : PARAM_POST_NORM1;
    if (!c->post_norm) {
        add_linear(l, c, (layer_stage){.kind = STAGE_LINEAR_ADD, .in = in, .out = out, .side = LAYER_NONE, .residual = residual,
                                       .weight = weight, .bias = bias});
        return;
    }
    add_linear(l, c, (layer_stage){.kind = STAGE_LINEAR, .in = in, .out = between, .side = LAYER_NONE, .residual = LAYER_NONE,
                                   .weight = weight, .bias = bias});
    add(l, (layer_stage){.kind = STAGE_NORM_ADD, .in = between, .out = out, .side = LAYER_NONE, .residual = residual, .weight = norm,
                         .bias = PARAM_NONE});
}

static void add_norm(layer_stages *l, layer_tensor in, layer_tensor out, param_role weight, param_role bias)
{
    add(l, (layer_stage){.kind = STAGE_NORM, .in = in, .out = out, .side = LAYER_NONE, .residual = LAYER_NONE, .weight = weight,
                         .bias = bias});
}

static void add_plain(layer_stages *l, stage_kind kind, layer_tensor in, layer_tensor out, layer_tensor side)
{
    add(l, (layer_stage){.kind = kind, .in = in, .out = out, .side = side, .residual = LAYER_NONE, .weight = PARAM_NONE,
                         .bias = PARAM_NONE});
}

/* If the branches are parallel, both ends come last: backward begins with both, before the output's gradient changes. If they share their
 * norm, it is computed twice, with the same weights, so that each branch has its own tensor and gradient. */
void layer_describe(layer_stages *l, const model_config *c)
{
    const layer_tensor middle = c->parallel ? LAYER_X : LAYER_XM;
    l->n = 0;
    if (c->pre_norm)
        add_norm(l, LAYER_X, LAYER_N1, PARAM_NORM1, PARAM_NORM1_BIAS);
    add_linear(l, c, (layer_stage){.kind = STAGE_QKV, .in = c->pre_norm ? LAYER_N1 : LAYER_X, .out = LAYER_QKV,
                                   .side = c->qk_norm ? LAYER_QK : LAYER_NONE, .residual = LAYER_NONE, .weight = PARAM_QKV,
                                   .bias = PARAM_QKV_BIAS});
    add_plain(l, STAGE_ATTENTION, LAYER_QKV, LAYER_ATT, LAYER_LSE);
    if (!c->parallel)
        add_end(l, c, LAYER_ATT, LAYER_A, LAYER_X, LAYER_XM);
    if (c->pre_norm)
        add_norm(l, middle, LAYER_N2, c->one_norm ? PARAM_NORM1 : PARAM_NORM2, c->one_norm ? PARAM_NORM1_BIAS : PARAM_NORM2_BIAS);
    add_linear(l, c, (layer_stage){.kind = STAGE_LINEAR, .in = c->pre_norm ? LAYER_N2 : middle, .out = LAYER_UP, .side = LAYER_NONE,
                                   .residual = LAYER_NONE, .weight = PARAM_UP, .bias = PARAM_UP_BIAS});
    add_plain(l, STAGE_ACTIVATION, LAYER_UP, LAYER_ACT, LAYER_NONE);
    if (c->parallel)
        add_end(l, c, LAYER_ATT, LAYER_A, LAYER_X, LAYER_XM);
    add_end(l, c, LAYER_ACT, LAYER_M, LAYER_XM, LAYER_OUT);
}

/* ---- tensors ---- */

typedef enum width { WIDTH_HIDDEN, WIDTH_QK, WIDTH_QKV, WIDTH_Q, WIDTH_HEADS, WIDTH_UP, WIDTH_FFN, WIDTH_LOW } width;

/* The lowest level from which it is saved, if backward reads it; SAVE_LEVELS: never. */
static const struct { width width; save_level saved_from; } tensors[LAYER_TENSORS] = {
    [LAYER_X] = {WIDTH_HIDDEN, SAVE_INPUT},     [LAYER_N1] = {WIDTH_HIDDEN, SAVE_LEVELS},  [LAYER_QK] = {WIDTH_QK, SAVE_ATTENTION},
    [LAYER_QKV] = {WIDTH_QKV, SAVE_ATTENTION},  [LAYER_ATT] = {WIDTH_Q, SAVE_ATTENTION},   [LAYER_LSE] = {WIDTH_HEADS, SAVE_ATTENTION},
    [LAYER_A] = {WIDTH_HIDDEN, SAVE_ATTENTION}, [LAYER_XM] = {WIDTH_HIDDEN, SAVE_ATTENTION}, [LAYER_N2] = {WIDTH_HIDDEN, SAVE_LEVELS},
    [LAYER_UP] = {WIDTH_UP, SAVE_ALL},          [LAYER_ACT] = {WIDTH_FFN, SAVE_LEVELS},    [LAYER_M] = {WIDTH_HIDDEN, SAVE_ALL},
    [LAYER_OUT] = {WIDTH_HIDDEN, SAVE_LEVELS},
    [LAYER_LOW_QKV] = {WIDTH_LOW, SAVE_ATTENTION},  [LAYER_LOW_OUT] = {WIDTH_LOW, SAVE_ATTENTION},
    [LAYER_LOW_UP] = {WIDTH_LOW, SAVE_ALL},         [LAYER_LOW_DOWN] = {WIDTH_LOW, SAVE_ATTENTION},
    [LAYER_GAIN_QKV] = {WIDTH_QKV, SAVE_ATTENTION}, [LAYER_GAIN_OUT] = {WIDTH_HIDDEN, SAVE_ATTENTION},
    [LAYER_GAIN_UP] = {WIDTH_UP, SAVE_ATTENTION},   [LAYER_GAIN_DOWN] = {WIDTH_HIDDEN, SAVE_ATTENTION},
};

static bool is_low(layer_tensor t) { return t >= LAYER_LOW_QKV && t <= LAYER_LOW_DOWN; }
static bool is_gain(layer_tensor t) { return t >= LAYER_GAIN_QKV && t <= LAYER_GAIN_DOWN; }

static int64_t columns(const model_config *c, width w)
{
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    switch (w) {
    case WIDTH_QK: return q + kv;
    case WIDTH_QKV: return q + 2 * kv;
    case WIDTH_Q: return q;
    case WIDTH_HEADS: return c->heads;
    case WIDTH_UP: return c->ffn * (c->gated ? 2 : 1);
    case WIDTH_FFN: return c->ffn;
    default: return c->hidden;
    }
}

uint64_t layer_tensor_bytes(const model_config *c, const step_shape *s, layer_tensor t)
{
    const size_t each = t == LAYER_LSE ? sizeof(float) : dtype_bytes(s->type);
    if (is_gain(t))
        return 2 * (uint64_t)columns(c, tensors[t].width) * sizeof(float);
    if (is_low(t))
        return (uint64_t)s->unit_rows * (uint64_t)c->adapter_width[t - LAYER_LOW_QKV] * each;
    return (uint64_t)s->unit_rows * (uint64_t)columns(c, tensors[t].width) * each;
}

/* ---- steps ---- */

static const layer_stage *maker_of(const layer_stages *l, layer_tensor t)
{
    for (int i = 0; i < l->n; i++)
        if (l->of[i].out == t)
            return &l->of[i];
    return NULL;
}

bool layer_is_rewritten(const layer_stages *l, layer_tensor t)
{
    const layer_stage *s = maker_of(l, t);
    return s && (s->kind == STAGE_NORM || s->kind == STAGE_ACTIVATION);
}

static int operand_region(const layer_stages *l, layer_tensor t)
{
    return layer_is_rewritten(l, t) ? REGION_GRADIENT + t : REGION_TENSOR + t;
}

static void touch(int regions[LAYER_STEP_REGIONS], int *n, int region) { regions[(*n)++] = region; }

static void touch_tensor(int regions[LAYER_STEP_REGIONS], int *n, layer_tensor t)
{
    if (t != LAYER_NONE)
        touch(regions, n, REGION_TENSOR + (int)t);
}

static void touch_gradient(int regions[LAYER_STEP_REGIONS], int *n, layer_tensor t)
{
    if (!layer_is_residual(t))
        touch(regions, n, REGION_GRADIENT + (int)t);
}

static bool has_weights(const layer_stage *s)
{
    return s->kind == STAGE_LINEAR || s->kind == STAGE_LINEAR_ADD || s->kind == STAGE_QKV;
}

static void touch_stripe(int regions[LAYER_STEP_REGIONS], int *n, const layer_stage *s, int stage)
{
    if (has_weights(s) || s->kind == STAGE_GAIN)
        touch(regions, n, REGION_STRIPE + stage);
}

int layer_step_regions(const layer_stages *l, layer_step step, int regions[LAYER_STEP_REGIONS])
{
    const layer_stage *s = &l->of[step.stage];
    int n = 0;
    if (step.pass == PASS_FORWARD) {
        touch_tensor(regions, &n, s->in);
        touch_tensor(regions, &n, s->out);
        touch_tensor(regions, &n, s->side);
        touch_tensor(regions, &n, s->residual);
        touch_tensor(regions, &n, s->low);
        touch_tensor(regions, &n, s->gain);
        touch_stripe(regions, &n, s, step.stage);
        return n;
    }
    touch_gradient(regions, &n, s->out);
    if (s->low != LAYER_NONE)
        touch(regions, &n, REGION_GRADIENT + (int)s->low);
    if (s->gain != LAYER_NONE)
        touch(regions, &n, REGION_SCRATCH + step.stage);
    if (step.pass == PASS_WEIGHTS) {
        touch(regions, &n, operand_region(l, s->in));
        touch_tensor(regions, &n, s->low);
        return n;
    }
    touch_gradient(regions, &n, s->in);
    touch_stripe(regions, &n, s, step.stage);
    if (s->gain != LAYER_NONE) { /* the sum is recomputed */
        touch_tensor(regions, &n, s->in);
        touch_tensor(regions, &n, s->low);
        touch_tensor(regions, &n, s->gain);
    }
    if (s->kind == STAGE_LINEAR || s->kind == STAGE_LINEAR_ADD)
        return n;
    touch_tensor(regions, &n, s->side);
    if (s->kind != STAGE_QKV)
        touch_tensor(regions, &n, s->in);
    touch(regions, &n, REGION_SCRATCH + step.stage);
    if (s->kind == STAGE_ATTENTION) {
        touch_tensor(regions, &n, s->out);
        touch(regions, &n, REGION_ACCUMULATORS + step.stage);
    }
    return n;
}

static void add_step(layer_layout *l, step_pass pass, int stage) { l->backward[l->backward_n++] = (layer_step){pass, stage}; }

/* The stages in reverse. If the backward of the stage before a linear stage writes the linear stage's input again, the gradient of the
 * weights comes after it. */
static void add_reversed(layer_layout *l)
{
    int waiting = -1; /* linear stage that waits for its input */
    for (int i = l->stages.n - 1; i >= 0; i--) {
        const layer_stage *s = &l->stages.of[i];
        if (s->kind == STAGE_LOW || s->kind == STAGE_GAIN)
            continue; /* backward of the linear stage */
        add_step(l, PASS_INPUT, i);
        if (waiting >= 0 && l->stages.of[waiting].in == s->out) {
            add_step(l, PASS_WEIGHTS, waiting);
            waiting = -1;
        }
        if (!has_weights(s))
            continue;
        if (layer_is_rewritten(&l->stages, s->in))
            waiting = i;
        else
            add_step(l, PASS_WEIGHTS, i);
    }
}

/* Tensors that backward reads are saved, if the level says so, or recomputed. The same holds for the inputs of the recomputation. */
static void add_again(layer_layout *l, const bool needed_by_gradients[LAYER_TENSORS], save_level level)
{
    bool needed[LAYER_TENSORS + 1] = {false}, again[LAYER_STAGES] = {false};
    memcpy(needed, needed_by_gradients, LAYER_TENSORS * sizeof *needed);
    l->saved[LAYER_X] = true;
    for (int i = l->stages.n - 1; i >= 0; i--) {
        const layer_stage *s = &l->stages.of[i];
        const layer_tensor made[2] = {s->out, s->side};
        for (int k = 0; k < 2; k++)
            if (made[k] != LAYER_NONE && needed[made[k]]) {
                l->saved[made[k]] = s->kind != STAGE_NORM_ADD && level >= tensors[made[k]].saved_from;
                again[i] |= !l->saved[made[k]];
            }
        needed[s->in] |= again[i];
        needed[s->residual] |= again[i];
        needed[s->low] |= again[i];
        needed[s->gain] |= again[i];
    }
    for (int i = 0; i < l->stages.n; i++)
        if (again[i])
            add_step(l, PASS_FORWARD, i);
    l->again_n = l->backward_n;
}

static void needed_by_gradients(const layer_stages *l, bool needed[LAYER_TENSORS])
{
    layer_layout all = {.stages = *l};
    add_reversed(&all);
    for (int i = 0; i < all.backward_n; i++) {
        int regions[LAYER_STEP_REGIONS], n = layer_step_regions(l, all.backward[i], regions);
        for (int k = 0; k < n; k++)
            if (regions[k] < REGION_GRADIENT)
                needed[regions[k]] = true;
    }
}

/* ---- places ---- */

enum { LINE = 64, PAGE = 4096 };

typedef struct place { uint64_t bytes, at; int first, last; } place; /* steps from which to which it is used; last -1: never */

/* A tensor as wide as the output of a linear stage. */
static layer_tensor as_wide_as(const layer_stage *s)
{
    return s->weight == PARAM_QKV ? LAYER_QKV : s->weight == PARAM_UP ? LAYER_UP : LAYER_X;
}

static uint64_t norm_bytes(const layer_stages *l, const model_config *c, const step_shape *s, int i)
{
    switch (l->of[i].kind) {
    case STAGE_NORM: case STAGE_NORM_ADD: return norm_backward_scratch_bytes(s->unit_rows, 1, c->hidden);
    case STAGE_QKV:
        return c->qk_norm == QK_NORM_HEAD ? norm_backward_scratch_bytes(s->unit_rows, c->heads, c->head_dim)
             : c->qk_norm == QK_NORM_WIDE ? norm_backward_scratch_bytes(s->unit_rows, 1, c->heads * c->head_dim) : 0;
    case STAGE_ATTENTION: return attention_backward_scratch_bytes(s->unit_rows, c->heads);
    default: return 0;
    }
}

static uint64_t scratch_bytes(const layer_stages *l, const model_config *c, const step_shape *s, int i)
{
    const uint64_t norm = norm_bytes(l, c, s, i), sums = l->of[i].gain == LAYER_NONE ? 0 : layer_tensor_bytes(c, s, as_wide_as(&l->of[i]));
    return norm > sums ? norm : sums;
}

static uint64_t region_bytes(const layer_stages *l, const model *m, const step_shape *s, int region)
{
    const model_config *c = &m->config;
    if (region >= REGION_STRIPE)
        return stripe_bytes(m, s, l->of[region - REGION_STRIPE].weight);
    if (region >= REGION_ACCUMULATORS)
        return l->of[region - REGION_ACCUMULATORS].kind == STAGE_ATTENTION
                   ? attention_accumulator_bytes(s->unit_seqs, s->seq_len, c->kv_heads, c->head_dim) : 0;
    if (region >= REGION_SCRATCH)
        return scratch_bytes(l, c, s, region - REGION_SCRATCH);
    return layer_tensor_bytes(c, s, (layer_tensor)(region % LAYER_TENSORS));
}

static bool collide(const place *a, const place *b)
{
    return a->first <= b->last && b->first <= a->last && a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

/* The lowest place at which it overlaps no placed one that is used at the same time. */
static void put(place *all, const int *placed, int n, place *p)
{
    p->at = 0;
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < n; i++)
            if (collide(p, &all[placed[i]])) {
                p->at = all[placed[i]].at + all[placed[i]].bytes;
                again = true;
            }
    }
}

/* Places them from the largest to the smallest; returns the end of all. */
static uint64_t put_all(place *all, int n)
{
    int order[LAYER_REGIONS], placed = 0;
    uint64_t end = 0;
    for (int i = 0; i < n; i++) {
        if (all[i].last < 0 || !all[i].bytes)
            continue;
        int k = placed++;
        for (; k > 0 && all[order[k - 1]].bytes < all[i].bytes; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < placed; i++) {
        place *p = &all[order[i]];
        put(all, order, i, p);
        end = p->at + p->bytes > end ? p->at + p->bytes : end;
    }
    return end;
}

/* The regions that these steps use, except those in the saved set or the caller's memory. */
static uint64_t place_regions(const layer_layout *l, const model *m, const step_shape *s, const layer_step *steps, int steps_n,
                              uint64_t at[LAYER_REGIONS])
{
    place all[LAYER_REGIONS];
    for (int r = 0; r < LAYER_REGIONS; r++)
        all[r] = (place){.first = steps_n, .last = -1};
    for (int i = 0; i < steps_n; i++) {
        int touched[LAYER_STEP_REGIONS], n = layer_step_regions(&l->stages, steps[i], touched);
        for (int k = 0; k < n; k++) {
            place *p = &all[touched[k]];
            if (touched[k] < LAYER_TENSORS && (l->saved[touched[k]] || touched[k] == LAYER_OUT))
                continue;
            p->first = i < p->first ? i : p->first;
            p->last = i;
        }
    }
    for (int r = 0; r < LAYER_REGIONS; r++)
        all[r].bytes = all[r].last < 0 ? 0 : align_up(region_bytes(&l->stages, m, s, r), LINE);
    const uint64_t end = put_all(all, LAYER_REGIONS);
    for (int r = 0; r < LAYER_REGIONS; r++)
        at[r] = all[r].at;
    return end;
}

static void place_saved(layer_layout *l, const model_config *c, const step_shape *s)
{
    for (int t = 0; t < LAYER_TENSORS; t++)
        if (l->saved[t]) {
            l->saved_at[t] = l->saved_bytes;
            l->saved_bytes += align_up(layer_tensor_bytes(c, s, (layer_tensor)t), LINE);
        }
    l->saved_bytes = align_up(l->saved_bytes, PAGE);
}

void layer_layout_init(layer_layout *l, const model *m, const step_shape *s, save_level level)
{
    const model_config *c = &m->config;
    bool needed[LAYER_TENSORS] = {false};
    layer_step forward[LAYER_STAGES];
    memset(l, 0, sizeof *l);
    layer_describe(&l->stages, c);
    needed_by_gradients(&l->stages, needed);
    add_again(l, needed, level);
    add_reversed(l);
    for (int i = 0; i < l->stages.n; i++)
        forward[i] = (layer_step){PASS_FORWARD, i};
    place_saved(l, c, s);
    l->forward_workspace = place_regions(l, m, s, forward, l->stages.n, l->forward_at);
    l->backward_workspace = place_regions(l, m, s, l->backward, l->backward_n, l->backward_at);
}
