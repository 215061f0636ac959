/* describe.c - from the configuration and the adapters of a model to the program of each of its layers. */
#include "layer/program.h"

#include "model/adapter.h"

#include <stdio.h>
#include <string.h>

typedef struct writer {
    layer_program *p;
    const model *model;
    const block *block;
} writer;

static int add_tensor(writer *w, const char *name, int64_t cols, save_level saved_from)
{
    layer_tensor *t = &w->p->tensor[w->p->tensors_n];
    *t = (layer_tensor){.per = ROWS_TOKENS, .times = 1, .cols = cols, .saved_from = saved_from, .gradient_in = LAYER_NONE};
    snprintf(t->name, sizeof t->name, "%s", name);
    return w->p->tensors_n++;
}

static int add_exact(writer *w, const char *name, int64_t cols, save_level saved_from)
{
    const int t = add_tensor(w, name, cols, saved_from);
    w->p->tensor[t].exact = true;
    return t;
}

static int add_residual(writer *w, const char *name, save_level saved_from)
{
    const int t = add_tensor(w, name, w->model->config.hidden, saved_from);
    w->p->tensor[t].residual = true;
    return t;
}

static layer_stage *add_stage(writer *w, stage_kind kind, int in, int out)
{
    layer_stage *stage = &w->p->stage[w->p->stages_n++];
    stage->kind = kind;
    for (int i = 0; i < STAGE_INPUTS; i++)
        stage->in[i] = i ? LAYER_NONE : in;
    for (int i = 0; i < STAGE_OUTPUTS; i++)
        stage->out[i] = i ? LAYER_NONE : out;
    for (int i = 0; i < STAGE_PARAMS; i++)
        stage->param[i] = PARAM_NONE;
    return stage;
}

static bool has(const writer *w, param_role role) { return role != PARAM_NONE && block_param(w->model, w->block, role) != NULL; }

/* ---- linear stages ---- */

/* The stages of an adapter of the matrix; the low tensor and the gains, or LAYER_NONE. */
static void add_adapter(writer *w, int in, param_role weight, save_level saved_from, int *low, int *gain)
{
    static const char *const names[MODEL_LINEAR_MATRICES][2] = {{"low_qkv", "gain_qkv"}, {"low_out", "gain_out"},
                                                         {"low_up", "gain_up"}, {"low_down", "gain_down"},
                                                         {"low_mix", "gain_mix"}, {"low_mix_out", "gain_mix_out"},
                                                         {"low_inputs", "gain_inputs"}, {"low_gate", "gain_gate"},
                                                         {"low_input_out", "gain_input_out"},
                                                         {"low_q_expand", "gain_q_expand"}, {"low_kv_expand", "gain_kv_expand"},
                                                         {"low_experts_in", "gain_experts_in"}, {"low_experts_out", "gain_experts_out"}};
    const int matrix = adapter_matrix(weight);
    const param *a = block_param(w->model, w->block, adapter_a(matrix));
    *low = *gain = LAYER_NONE;
    if (!a)
        return;
    *low = add_exact(w, names[matrix][0], a->rows, saved_from);
    layer_stage *stage = add_stage(w, STAGE_LOW, in, *low);
    stage->param[0] = weight;
    stage->drops = w->model->adapters->dropout > 0;
    if (!has(w, adapter_magnitude(matrix)))
        return;
    *gain = add_tensor(w, names[matrix][1], block_param(w->model, w->block, weight)->rows, SAVE_ATTENTION);
    w->p->tensor[*gain].per = ROWS_FIXED;
    w->p->tensor[*gain].times = 2; /* gain, 1 / norm */
    w->p->tensor[*gain].four_bytes = true;
    add_stage(w, STAGE_GAIN, LAYER_NONE, *gain)->param[0] = weight;
}

/* After the stages of its adapter. `low_from`: the level from which the adapter's low tensor is saved. */
static layer_stage *add_linear(writer *w, stage_kind kind, int in, int out, param_role weight, param_role bias, save_level low_from)
{
    int low, gain;
    add_adapter(w, in, weight, low_from, &low, &gain);
    layer_stage *stage = add_stage(w, kind, in, out);
    stage->param[0] = weight;
    stage->param[1] = has(w, bias) ? bias : PARAM_NONE;
    stage->in[LINEAR_LOW] = low;
    stage->in[LINEAR_GAIN] = gain;
    stage->drops = low != LAYER_NONE && w->model->adapters->dropout > 0;
    return stage;
}

/* ---- norms ---- */

static int add_norm(writer *w, int in, const char *name, param_role weight, param_role bias)
{
    const int out = add_tensor(w, name, w->model->config.hidden, SAVE_LEVELS);
    layer_stage *stage = add_stage(w, STAGE_NORM, in, out);
    stage->param[0] = weight;
    stage->param[1] = has(w, bias) ? bias : PARAM_NONE;
    return out;
}

/* The end of a branch: its last linear stage, and the sum with the residual stream. With a norm in between, the sum is not saved, because
 * adding costs little. */
typedef struct branch_end { param_role weight, bias, norm; const char *between; save_level between_from; } branch_end;

static void add_end(writer *w, const branch_end *e, int in, int residual, int out)
{
    if (!w->model->config.post_norm) {
        add_linear(w, STAGE_LINEAR_ADD, in, out, e->weight, e->bias, SAVE_ATTENTION)->in[LINEAR_RESIDUAL] = residual;
        return;
    }
    const int between = add_tensor(w, e->between, w->model->config.hidden, e->between_from);
    add_linear(w, STAGE_LINEAR, in, between, e->weight, e->bias, SAVE_ATTENTION);
    layer_stage *stage = add_stage(w, STAGE_NORM_ADD, between, out);
    stage->in[1] = residual;
    stage->param[0] = e->norm;
}

/* ---- attention ---- */

/* A norm of a latent among the columns of `from`, and what a matrix makes of it. */
static int add_expanded(writer *w, int from, int64_t column, const char *normed, const char *name, param_role norm, param_role weight)
{
    const param *matrix = block_param(w->model, w->block, weight);
    const int latent = add_tensor(w, normed, matrix->cols, SAVE_LEVELS), out = add_tensor(w, name, matrix->rows, SAVE_LEVELS);
    layer_stage *stage = add_stage(w, STAGE_NORM, from, latent);
    stage->param[0] = norm;
    stage->column = (int)column;
    add_linear(w, STAGE_LINEAR, latent, out, weight, PARAM_NONE, SAVE_ATTENTION);
    return out;
}

/* q, k and v of latent attention. The latents are few columns; what is made of them is made again unless everything is saved. */
static int add_latent_qkv(writer *w, int in, int layer)
{
    const model_config *config = &w->model->config;
    const int latents = add_tensor(w, "latents", model_heads(config, layer).made, SAVE_ATTENTION);
    const int qkv = add_tensor(w, "qkv", model_qkv_columns(config, layer).all, SAVE_ALL);
    add_linear(w, STAGE_LINEAR, in, latents, PARAM_QKV, PARAM_QKV_BIAS, SAVE_ATTENTION);
    const int q = config->q_latent ? add_expanded(w, latents, 0, "nq", "q", PARAM_Q_LATENT_NORM, PARAM_Q_EXPAND) : LAYER_NONE;
    const int64_t at = w->p->tensor[latents].cols - config->shared_dim - config->kv_latent;
    const int kv = add_expanded(w, latents, at, "nkv", "kv_expanded", PARAM_KV_LATENT_NORM, PARAM_KV_EXPAND);
    layer_stage *stage = add_stage(w, STAGE_HEADS, kv, qkv);
    stage->in[HEADS_LATENTS] = latents, stage->in[HEADS_QUERIES] = q;
    add_stage(w, STAGE_ROTATE, qkv, qkv);
    return qkv;
}

/* q, k and v side by side. If q and k have a norm, the matmul writes them to a tensor of their own, and the norm writes them beside the
 * rest. */
static int add_qkv(writer *w, int in, int layer)
{
    const model_config *config = &w->model->config;
    const bool normed = config->qk_norm != QK_NORM_NONE;
    const int qkv = add_tensor(w, "qkv", model_qkv_columns(config, layer).all, SAVE_ATTENTION);
    const attention_heads h = model_heads(config, layer);
    const int first = normed ? add_tensor(w, "qk", config->value_norm ? h.made : h.q_wide + h.kv_wide, SAVE_ATTENTION) : qkv;
    w->p->tensor[qkv].of_heads = w->p->tensor[first].of_heads = true;
    layer_stage *linear = add_linear(w, STAGE_LINEAR, in, first, PARAM_QKV, PARAM_QKV_BIAS, SAVE_ATTENTION);
    if (normed) {
        linear->out[1] = config->value_norm ? LAYER_NONE : qkv;
        if (h.made == w->p->tensor[qkv].cols)
            w->p->tensor[first].gradient_in = qkv;
        layer_stage *norm = add_stage(w, STAGE_HEAD_NORM, first, qkv);
        norm->param[0] = PARAM_QNORM;
        norm->param[1] = has(w, PARAM_KNORM) ? PARAM_KNORM : PARAM_NONE;
    }
    if (config->layer_rope[layer] >= 0)
        add_stage(w, STAGE_ROTATE, qkv, qkv);
    return qkv;
}

static int add_rows(writer *w, const char *name, int64_t times, int64_t cols, bool four_bytes, save_level saved_from)
{
    const int t = add_tensor(w, name, cols, saved_from);
    w->p->tensor[t].times = times;
    w->p->tensor[t].four_bytes = four_bytes;
    return t;
}

/* `in`, normed if there is a weight, times a function of the gates among the columns of `from`. */
static int add_gated(writer *w, int in, int from, param_role weight)
{
    const int out = add_tensor(w, "gated", w->p->tensor[in].cols, SAVE_LEVELS);
    layer_stage *stage = add_stage(w, STAGE_GATED_NORM, in, out);
    stage->in[1] = from;
    stage->param[0] = weight;
    return out;
}

static int add_attention(writer *w, int qkv, int layer)
{
    const model_config *config = &w->model->config;
    const int out = add_tensor(w, "attention", model_heads(config, layer).q_wide, SAVE_ATTENTION);
    const int lse = add_tensor(w, "statistics", config->heads, SAVE_ATTENTION);
    w->p->tensor[lse].four_bytes = true;
    const bool reads = model_reads_kv(config, layer);
    int kv = LAYER_NONE;
    if (reads || model_kv_is_read(config, layer)) {
        kv = add_tensor(w, "kv", 2 * model_heads(config, layer).kv_wide, SAVE_LEVELS);
        w->p->tensor[kv].carried = CARRIED_KV;
    }
    if (kv != LAYER_NONE && !reads)
        add_stage(w, STAGE_SHARE, qkv, kv);
    layer_stage *stage = add_stage(w, STAGE_ATTENTION, qkv, out);
    stage->in[1] = reads ? kv : LAYER_NONE;
    stage->begins = model_reads_kv_last(config, layer);
    stage->out[1] = lse;
    stage->param[0] = has(w, PARAM_SINKS) ? PARAM_SINKS : PARAM_NONE;
    if (config->kv_latent && config->value_dim < config->head_dim) {
        const int values = add_tensor(w, "values", model_value_columns(config, layer), SAVE_LEVELS);
        add_stage(w, STAGE_VALUES, out, values);
        return values;
    }
    return config->output_gate ? add_gated(w, out, qkv, PARAM_NONE) : out;
}

/* ---- other mixers ---- */

static void add_convolution(writer *w, int in, int out)
{
    layer_stage *stage = add_stage(w, STAGE_CONV, in, out);
    stage->param[0] = PARAM_CONV;
    stage->param[1] = has(w, PARAM_CONV_BIAS) ? PARAM_CONV_BIAS : PARAM_NONE;
}

/* Gates, decays and steps are few columns; what the convolution makes is as quickly made again. */
static int add_scan(writer *w, int in, int layer)
{
    const model_config *config = &w->model->config;
    const mix_columns at = model_mix_columns(config, layer);
    const int mix = add_exact(w, "mix", at.all, SAVE_ATTENTION), conv = add_exact(w, "conv", at.channels, SAVE_ALL);
    const int decays = add_rows(w, "decays", 1, config->scan_heads, true, SAVE_ATTENTION);
    const int steps = add_rows(w, "steps", 1, config->scan_heads, true, SAVE_ATTENTION);
    const int values = add_exact(w, "values", model_mix_values(config, layer), SAVE_ATTENTION);
    const int states = add_rows(w, "states", config->scan_heads, config->scan_key_dim * config->scan_dim, true, SAVE_ATTENTION);
    w->p->tensor[states].per = ROWS_SEGMENTS;
    w->p->tensor[states].every = SCAN_CHUNK * scan_segment(config->scan_key_dim, config->scan_dim);
    add_linear(w, STAGE_LINEAR, in, mix, PARAM_MIX_IN, PARAM_MIX_IN_BIAS, SAVE_ATTENTION);
    for (size_t i = 0; i < sizeof config->factor.mix / sizeof *config->factor.mix; i++)
        if (config->factor.mix[i] != 1) {
            add_stage(w, STAGE_MIX_FACTORS, mix, mix);
            break;
        }
    add_convolution(w, mix, conv);
    layer_stage *stage = add_stage(w, STAGE_GATES, mix, decays);
    stage->out[1] = steps;
    stage->param[0] = PARAM_DECAY, stage->param[1] = PARAM_DECAY_BIAS;
    stage = add_stage(w, STAGE_SCAN, conv, values);
    stage->in[SCAN_DECAYS] = decays, stage->in[SCAN_STEPS] = steps;
    stage->out[1] = states;
    stage->param[0] = has(w, PARAM_SKIP) ? PARAM_SKIP : PARAM_NONE;
    return add_gated(w, values, mix, has(w, PARAM_MIX_NORM) ? PARAM_MIX_NORM : PARAM_NONE);
}

static int add_conv(writer *w, int in, int layer)
{
    const int mix = add_exact(w, "mix", model_mix_columns(&w->model->config, layer).all, SAVE_ATTENTION);
    const int out = add_exact(w, "conv", w->model->config.hidden, SAVE_ALL);
    add_linear(w, STAGE_LINEAR, in, mix, PARAM_MIX_IN, PARAM_MIX_IN_BIAS, SAVE_ATTENTION);
    add_convolution(w, mix, out);
    return out;
}

static int add_mixer(writer *w, int in, int layer)
{
    switch (w->model->config.mixer[layer]) {
    case MIXER_DELTA: case MIXER_MAMBA: return add_scan(w, in, layer);
    case MIXER_CONV: return add_conv(w, in, layer);
    default: return add_attention(w, w->model->config.kv_latent ? add_latent_qkv(w, in, layer) : add_qkv(w, in, layer), layer);
    }
}

/* ---- experts ---- */

/* Some experts of a width, of which a token has k, and their parameters; `before`: in front of the tensors' names. */
typedef struct mixture {
    int64_t experts, k, ffn;
    param_role router, correction, router_bias, factors, up, up_bias, down, down_bias;
    const char *before;
} mixture;

static int add_named(writer *w, const mixture *m, const char *name, int64_t times, int64_t cols, bool four_bytes, save_level saved_from)
{
    char whole[24];
    snprintf(whole, sizeof whole, "%s%s", m->before, name);
    return add_rows(w, whole, times, cols, four_bytes, saved_from);
}

/* The stage of the matrices' adapters; its tensor, or LAYER_NONE. */
static int add_low(writer *w, const mixture *m, param_role matrices, int in, int order, int ends, int weights)
{
    const param *a = matrices == PARAM_NONE ? NULL : block_param(w->model, w->block, adapter_a(adapter_matrix(matrices)));
    if (!a)
        return LAYER_NONE;
    const int low = add_named(w, m, matrices == m->up ? "experts_low" : "experts_low_down", m->k, a->rows / m->experts, false, SAVE_ALL);
    w->p->tensor[low].exact = true;
    layer_stage *stage = add_stage(w, STAGE_EXPERTS_LOW, in, low);
    stage->in[EXPERTS_ORDER] = order, stage->in[EXPERTS_ENDS] = ends, stage->in[EXPERTS_WEIGHTS] = weights;
    stage->param[0] = matrices;
    return low;
}

/* The choice of experts is small and saved wherever attention is; the rows of experts are k times as many as tokens. */
static void add_mixture(writer *w, const mixture *m, int to_router, int in, int residual, int out)
{
    const int64_t k = m->k;
    const int logits = add_named(w, m, "logits", 1, m->experts, true, SAVE_ATTENTION);
    const int ids = add_named(w, m, "ids", 1, k, true, SAVE_ATTENTION), weights = add_named(w, m, "weights", 1, k, true, SAVE_ATTENTION);
    const int order = add_named(w, m, "order", k, 1, true, SAVE_ATTENTION), places = add_named(w, m, "places", k, 1, true, SAVE_ATTENTION);
    const int ends = add_named(w, m, "ends", 1, m->experts, true, SAVE_ATTENTION);
    const int64_t wide = (w->model->config.gated ? 2 : 1) * m->ffn;
    const int up = add_named(w, m, "experts_up", k, wide, false, SAVE_ALL);
    const int act = add_named(w, m, "experts_act", k, m->ffn, false, SAVE_LEVELS);
    w->p->tensor[ends].per = ROWS_FIXED;
    layer_stage *stage = add_stage(w, STAGE_ROUTE, to_router, logits);
    stage->out[1] = ids, stage->out[2] = weights;
    stage->param[0] = m->router;
    stage->param[1] = has(w, m->correction) ? m->correction : PARAM_NONE;
    stage->param[2] = has(w, m->router_bias) ? m->router_bias : PARAM_NONE;
    if (has(w, m->factors)) {
        stage->param[3] = m->factors;
        stage->in[EXPERTS_ORDER] = order, stage->in[EXPERTS_ENDS] = ends; /* by which their gradients are summed */
    }
    stage = add_stage(w, STAGE_DISPATCH, ids, order);
    stage->out[1] = places, stage->out[2] = ends;
    const stage_kind kinds[] = {STAGE_EXPERTS_UP, STAGE_EXPERTS_ACT, STAGE_EXPERTS_DOWN};
    const param_role matrices[] = {m->up, PARAM_NONE, m->down}, biases[] = {m->up_bias, PARAM_NONE, m->down_bias};
    const int from[] = {in, up, act}, to[] = {up, act, out};
    for (int i = 0; i < 3; i++) {
        const int low = add_low(w, m, matrices[i], from[i], order, ends, weights);
        stage = add_stage(w, kinds[i], from[i], to[i]);
        stage->in[EXPERTS_ORDER] = order, stage->in[EXPERTS_PLACES] = places, stage->in[EXPERTS_ENDS] = ends,
        stage->in[EXPERTS_WEIGHTS] = weights;
        stage->in[EXPERTS_LOW] = low;
        stage->param[0] = matrices[i];
        stage->param[1] = has(w, biases[i]) ? biases[i] : PARAM_NONE;
    }
    stage->in[EXPERTS_RESIDUAL] = residual;
}

static void add_mlp(writer *w, int in, int act)
{
    const int up = add_tensor(w, "up", block_param(w->model, w->block, PARAM_UP)->rows, SAVE_ALL);
    add_linear(w, STAGE_LINEAR, in, up, PARAM_UP, PARAM_UP_BIAS, SAVE_ALL);
    if (w->model->config.factor.gate != 1)
        add_stage(w, STAGE_GATE_FACTOR, up, up);
    add_stage(w, STAGE_ACTIVATION, up, act);
}

static int add_act(writer *w) { return add_tensor(w, "act", block_param(w->model, w->block, PARAM_DOWN)->cols, SAVE_LEVELS); }

static mixture mixture_of(const model_config *config)
{
    return (mixture){config->experts,       config->experts_used, config->expert_ffn,      PARAM_ROUTER,
                     PARAM_CORRECTION,      PARAM_ROUTER_BIAS,    PARAM_EXPERT_SCALE,      PARAM_EXPERTS_UP,
                     PARAM_EXPERTS_UP_BIAS, PARAM_EXPERTS_DOWN,   PARAM_EXPERTS_DOWN_BIAS, ""};
}

/* The router reads the layer's input, the experts what a matrix makes of it; another makes what is added of their sum. */
static void add_latent_mixture(writer *w, const mixture *all, int in, int residual, int out)
{
    static const branch_end end = {PARAM_EXPERTS_OUT, PARAM_EXPERTS_OUT_BIAS, PARAM_NONE, "", SAVE_LEVELS};
    const int64_t width = w->model->config.expert_latent;
    const int latent = add_tensor(w, "latent", width, SAVE_ALL), sum = add_tensor(w, "experts", width, SAVE_ALL);
    add_linear(w, STAGE_LINEAR, in, latent, PARAM_EXPERTS_IN, PARAM_EXPERTS_IN_BIAS, SAVE_ALL);
    add_mixture(w, all, in, latent, LAYER_NONE, sum);
    add_end(w, &end, sum, residual, out);
}

/* The shared expert comes first: an MLP, or with a gate a mixture of one expert whose weight is the gate's sigmoid. */
static void add_experts(writer *w, const branch_end *of_mlp, int in, int residual, int out)
{
    const model_config *config = &w->model->config;
    const mixture shared = {1, 1, config->shared_ffn, PARAM_SHARED_GATE, PARAM_NONE, PARAM_NONE, PARAM_NONE, PARAM_SHARED_UP, PARAM_NONE,
                            PARAM_SHARED_DOWN, PARAM_NONE, "shared_"};
    const mixture all = mixture_of(config);
    if (config->shared_ffn) {
        const int middle = add_residual(w, "xs", SAVE_LEVELS);
        if (config->shared_gate)
            add_mixture(w, &shared, in, in, residual, middle);
        else {
            const int act = add_act(w);
            add_mlp(w, in, act);
            add_end(w, of_mlp, act, residual, middle);
        }
        residual = middle;
    }
    if (config->expert_latent)
        add_latent_mixture(w, &all, in, residual, out);
    else
        add_mixture(w, &all, in, in, residual, out);
}

/* The experts read the residual stream as the MLP does, each with norms of its own; so does the router. */
static void add_beside(writer *w, int mlp_in, int residual, int out)
{
    const int64_t hidden = w->model->config.hidden;
    const mixture all = mixture_of(&w->model->config);
    const int act = add_act(w), mlp = add_tensor(w, "mlp", hidden, SAVE_ALL);
    add_mlp(w, mlp_in, act);
    add_linear(w, STAGE_LINEAR, act, mlp, PARAM_DOWN, PARAM_NONE, SAVE_ATTENTION);
    const int normed = add_norm(w, mlp, "normed", PARAM_POST_MLP, PARAM_NONE);
    const int to_router = add_norm(w, residual, "nr", PARAM_ROUTER_NORM, PARAM_NONE);
    const int in = add_norm(w, residual, "n3", PARAM_NORM3, PARAM_NONE);
    const int experts = add_tensor(w, "experts", hidden, SAVE_ALL), sum = add_tensor(w, "m", hidden, SAVE_ALL);
    add_mixture(w, &all, to_router, in, LAYER_NONE, experts);
    layer_stage *stage = add_stage(w, STAGE_NORM_ADD, experts, sum);
    stage->in[1] = normed;
    stage->param[0] = PARAM_POST_EXPERTS;
    w->p->tensor[normed].gradient_in = sum;
    stage = add_stage(w, STAGE_NORM_ADD, sum, out);
    stage->in[1] = residual;
    stage->param[0] = PARAM_POST_NORM2;
}

/* ---- inputs of layers (inputs.c) ---- */

static int add_inputs(writer *w)
{
    const int inputs = add_tensor(w, "inputs", w->model->config.layers * w->model->config.input_width, SAVE_LEVELS);
    w->p->tensor[inputs].carried = CARRIED_INPUTS;
    return inputs;
}

static void make_inputs(writer *w, int x, int inputs)
{
    const int projected = add_tensor(w, "projected", w->p->tensor[inputs].cols, SAVE_ALL);
    add_linear(w, STAGE_LINEAR, x, projected, PARAM_INPUTS, PARAM_NONE, SAVE_ALL);
    add_stage(w, STAGE_MAKE_INPUTS, projected, inputs)->param[0] = PARAM_INPUTS_NORM;
}

/* The branch that reads them. */
static void add_input_branch(writer *w, int inputs, int residual, int out)
{
    const model_config *config = &w->model->config;
    const int gate = add_tensor(w, "gate", config->input_width, SAVE_ALL), gated = add_tensor(w, "gated", config->input_width, SAVE_LEVELS);
    const int added = add_tensor(w, "input_out", config->hidden, SAVE_ALL);
    add_linear(w, STAGE_LINEAR, residual, gate, PARAM_INPUT_GATE, PARAM_NONE, SAVE_ALL);
    add_stage(w, STAGE_GATE_INPUTS, gate, gated)->in[1] = inputs;
    add_linear(w, STAGE_LINEAR, gated, added, PARAM_INPUT_OUT, PARAM_NONE, SAVE_ATTENTION);
    layer_stage *stage = add_stage(w, STAGE_NORM_ADD, added, out);
    stage->in[1] = residual;
    stage->param[0] = PARAM_INPUT_NORM;
}

/* ---- layers ---- */

/* If the branches are parallel, or attention is beside a mixer, both ends come last: backward begins with both, before the output's
 * gradient changes. If they share their norm, it is computed twice, with the same weights, so that each branch has its own tensor and
 * gradient. */
void layer_describe(layer_program *program, const model *m, int layer)
{
    static const branch_end of_attention = {PARAM_OUT, PARAM_OUT_BIAS, PARAM_POST_NORM1, "a", SAVE_ATTENTION},
                            of_mixer = {PARAM_MIX_OUT, PARAM_MIX_OUT_BIAS, PARAM_POST_NORM1, "a", SAVE_ATTENTION},
                            of_mlp = {PARAM_DOWN, PARAM_DOWN_BIAS, PARAM_POST_NORM2, "m", SAVE_ALL};
    const model_config *config = &m->config;
    memset(program, 0, sizeof *program); /* programs are compared as bytes */
    writer w = {program, m, &m->blocks[layer + 1]};
    const int x = add_residual(&w, "x", SAVE_INPUT), out = add_residual(&w, "out", SAVE_LEVELS);
    const int inputs = config->input_width ? add_inputs(&w) : LAYER_NONE;
    if (has(&w, PARAM_INPUTS))
        make_inputs(&w, x, inputs);
    const int n1 = config->pre_norm ? add_norm(&w, x, "n1", PARAM_NORM1, PARAM_NORM1_BIAS) : x;
    if (config->mixer[layer] == MIXER_NONE && config->sparse[layer]) {
        add_experts(&w, &of_mlp, n1, x, out);
        return;
    }
    if (config->mixer[layer] == MIXER_NONE) {
        const int act = add_act(&w);
        add_mlp(&w, n1, act);
        add_end(&w, &of_mlp, act, x, out);
        return;
    }
    const int attended = config->attends_beside ? add_attention(&w, add_qkv(&w, n1, layer), layer) : LAYER_NONE;
    const int nm = config->attends_beside ? add_norm(&w, x, "nm", PARAM_NORM1, PARAM_NORM1_BIAS) : n1;
    const int mixed = add_mixer(&w, nm, layer);
    const branch_end *of_first = config->mixer[layer] == MIXER_ATTENTION ? &of_attention : &of_mixer;
    if (config->one_branch) {
        add_end(&w, of_first, mixed, x, out);
        return;
    }
    const int xm = add_residual(&w, "xm", config->post_norm ? SAVE_LEVELS : SAVE_ATTENTION), middle = config->parallel ? x : xm;
    if (config->attends_beside) {
        const int xa = add_residual(&w, "xa", SAVE_LEVELS);
        add_end(&w, &of_attention, attended, x, xa);
        add_end(&w, &of_mixer, mixed, xa, xm);
    } else if (!config->parallel)
        add_end(&w, of_first, mixed, x, xm);
    const int n2 = !config->pre_norm  ? middle
                   : config->one_norm ? add_norm(&w, middle, "n2", PARAM_NORM1, PARAM_NORM1_BIAS)
                                 : add_norm(&w, middle, "n2", PARAM_NORM2, PARAM_NORM2_BIAS);
    const int end = config->input_width ? add_residual(&w, "xi", SAVE_LEVELS) : out;
    if (config->sparse[layer] && config->experts_beside)
        add_beside(&w, n2, xm, end);
    else if (config->sparse[layer])
        add_experts(&w, &of_mlp, n2, xm, end);
    else {
        const int act = add_act(&w);
        add_mlp(&w, n2, act);
        if (config->parallel)
            add_end(&w, of_first, mixed, x, xm);
        add_end(&w, &of_mlp, act, xm, end);
    }
    if (config->input_width)
        add_input_branch(&w, inputs, end, out);
    if (has(&w, PARAM_SCALE))
        add_stage(&w, STAGE_SCALE, LAYER_NONE, out)->param[0] = PARAM_SCALE;
}
