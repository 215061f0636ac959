#include "gguf/tensors_parts.h"

#include "model/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gguf_tensor *add(gguf_lister *l, gguf_tensor tensor, const char *kind, int layer, const char *ending)
{
    gguf_tensors *t = l->t;
    if (t->n == t->capacity) {
        const int capacity = t->capacity ? 2 * t->capacity : 64;
        gguf_tensor *more = realloc(t->list, (size_t)capacity * sizeof *more);
        if (!more) {
            l->failed = pt_fail(l->e, PT_FAILED, "no memory for a table of %d tensors", capacity);
            return NULL;
        }
        t->list = more;
        t->capacity = capacity;
    }
    tensor.layer = layer;
    tensor.stride = 1;
    if (layer < 0)
        snprintf(tensor.name, sizeof tensor.name, "%s.%s", kind, ending);
    else
        snprintf(tensor.name, sizeof tensor.name, "blk.%d.%s%s%s", layer, kind, *ending ? "." : "", ending);
    t->list[t->n] = tensor;
    return &t->list[t->n++];
}

gguf_tensor *gguf_add_part(gguf_lister *l, int i, int layer, const char *kind, int64_t row0, int64_t rows)
{
    const param *p = &l->m->params[i];
    const param_use use = p->kind->use;
    const bool vector = p->part[0].vector;
    const bool bare = p->role == PARAM_DECAY || p->role == PARAM_SKIP || (p->role == PARAM_NORM2 && l->f->bare_norm);
    const bool bias = use == USE_BIAS || use == USE_NORM_BIAS || use == USE_CORRECTION || (use == USE_MIXER && !bare);
    const int64_t all = vector ? p->cols : p->rows, n = rows ? rows : all;
    gguf_tensor x = {.param = i, .row0 = row0, .rows = vector ? 1 : n, .cols = vector ? n : p->cols, .vector = vector,
                     .whole = vector || p->role == PARAM_POSITIONS || p->role == PARAM_CONV};
    if (p->kind->use == USE_NORM && p->role != PARAM_MIX_NORM)
        x.offset = l->m->config.norm_offset;
    const bool factor = p->role == PARAM_ROUTER_NORM || p->role == PARAM_EXPERT_SCALE;
    x.plain = p->role == PARAM_INPUTS;
    return add(l, x, kind, layer, bare ? "" : factor ? "scale" : bias ? "bias" : "weight");
}

/* A bias that llama.cpp needs and the model has not. */
static void add_zeros(gguf_lister *l, const char *kind, int layer, int64_t n)
{
    add(l, (gguf_tensor){.param = -1, .vector = true, .rows = 1, .cols = n, .whole = true}, kind, layer, "bias");
}

static void set_turn(gguf_tensor *x, int64_t first, int64_t slow, int64_t fast, int64_t run)
{
    if (x && slow > 1 && fast > 1)
        x->turn = (gguf_turn){first, slow, fast, run, 0};
}

/* The pairs of a head's first elements, which are rotated, become neighbours. */
static void pair_up(const gguf_lister *l, gguf_tensor *x, int layer)
{
    const model_config *config = &l->m->config;
    set_turn(x, 0, 2, config->rope[config->layer_rope[layer]].rotated / 2, 1);
    if (x)
        x->turn.period = model_heads(config, layer).dim;
}

void gguf_multiply(gguf_tensor *t, int64_t n, float times)
{
    int i = 0;
    while (t && i < GGUF_FACTORS && t->factor[i].end)
        i++;
    if (t && i < GGUF_FACTORS)
        t->factor[i] = (gguf_factor){(i ? t->factor[i - 1].end : 0) + n, times};
}

/* A factor of the model that llama.cpp does not know. */
static float times_of(const gguf_lister *l, param_role role)
{
    const model_config *config = &l->m->config;
    switch (role) {
    case PARAM_OUT: return config->factor.out;
    case PARAM_DOWN: return config->factor.down;
    case PARAM_MIX_OUT: return config->factor.mix_out;
    case PARAM_TOKENS: return l->f->vocabulary_scaled ? config->embedding_scale : 1;
    case PARAM_HEAD: return l->f->vocabulary_scaled ? config->logit_scale : 1;
    default: return 1;
    }
}

/* Adds q, k and v, which are one parameter here. A rope pair is element j of a head's first half and element j of its second half here;
 * where pairs are adjacent in the file, the two are. With gates, each head's follow its queries there. */
static void add_qkv(gguf_lister *l, int i, int layer)
{
    const model_config *config = &l->m->config;
    const attention_heads h = model_heads(config, layer);
    const qkv_columns at = model_qkv_columns(config, layer);
    const bool adjacent = l->f->pairs_adjacent && !config->rope_neighbours && config->layer_rope[layer] >= 0;
    gguf_tensor *of_q = gguf_add_part(l, i, layer, "attn_q", at.q, config->output_gate ? 2 * h.q_wide : h.q_wide);
    if (!of_q)
        return;
    if (adjacent)
        pair_up(l, of_q, layer);
    if (config->output_gate)
        set_turn(of_q, 0, 2, h.heads, h.dim);
    const float scale = config->qk_norm == QK_NORM_NONE ? gguf_query_scale(l->f, config, layer) : 1, all = config->factor.qkv;
    gguf_multiply(of_q, h.q_wide, l->f->keys_scaled ? all : all * scale);
    if (model_reads_kv(config, layer))
        return;
    gguf_tensor *of_k = gguf_add_part(l, i, layer, "attn_k", at.k, h.kv_wide);
    if (adjacent)
        pair_up(l, of_k, layer);
    gguf_multiply(of_k, h.kv_wide, l->f->keys_scaled ? all * scale : all);
    if (h.made == at.all) /* else values are made by keys' matrix, there too */
        gguf_multiply(gguf_add_part(l, i, layer, "attn_v", at.v, h.kv_wide), h.kv_wide, all);
}

/* ---- layers with a state ---- */

/* llama.cpp orders the heads of values by their place among those of a key, Qwen 3.5's files by their key. */
static void turn_heads(const gguf_lister *l, gguf_tensor *x, int64_t first, int64_t run)
{
    const model_config *config = &l->m->config;
    if (l->f->tiled_heads)
        set_turn(x, first, config->scan_key_heads, config->scan_heads / config->scan_key_heads, run);
}

static void add_delta_matrix(gguf_lister *l, int i, int layer)
{
    const model_config *config = &l->m->config;
    const mix_columns at = model_mix_columns(config, layer);
    const int64_t keys = 2 * config->scan_key_heads * config->scan_key_dim, heads = config->scan_heads;
    turn_heads(l, gguf_add_part(l, i, layer, "attn_qkv", at.channel, at.channels), keys, config->scan_dim);
    turn_heads(l, gguf_add_part(l, i, layer, "attn_gate", at.gate, heads * config->scan_dim), 0, config->scan_dim);
    if (!l->f->tiled_heads) { /* steps and decays of a key head's heads together, as in the checkpoint */
        set_turn(gguf_add_part(l, i, layer, "ssm_ba", at.step, 2 * heads), 0, 2, config->scan_key_heads, heads / config->scan_key_heads);
        return;
    }
    turn_heads(l, gguf_add_part(l, i, layer, "ssm_beta", at.step, heads), 0, 1);
    turn_heads(l, gguf_add_part(l, i, layer, "ssm_alpha", at.decay, heads), 0, 1);
}

/* gate | v k q | decay */
static void add_mamba_matrix(gguf_lister *l, int i, int layer)
{
    const model_config *config = &l->m->config;
    const int64_t values = model_mix_values(config, layer), keys = config->scan_key_heads * config->scan_key_dim;
    const int64_t wide[] = {values, values, keys, keys, config->scan_heads};
    gguf_tensor *x = gguf_add_part(l, i, layer, "ssm_in", 0, 0);
    for (int k = 0; k < GGUF_FACTORS; k++)
        gguf_multiply(x, wide[k], config->factor.mix_in * config->factor.mix[k]);
}

static void add_scan_vector(gguf_lister *l, int i, int layer, const char *kind, int64_t split)
{
    gguf_tensor *x = gguf_add_part(l, i, layer, kind, 0, 0);
    if (!x)
        return;
    x->negative_exp = l->m->params[i].role == PARAM_DECAY;
    if (l->m->config.mixer[layer] == MIXER_DELTA && l->m->params[i].role != PARAM_MIX_NORM)
        turn_heads(l, x, 0, 1);
    else if (l->m->config.mixer[layer] == MIXER_MAMBA)
        x->split = split;
}

/* The parameters of a mixer that is not attention; false: it is another one. */
static bool add_mixer(gguf_lister *l, int i, int layer)
{
    const model_config *config = &l->m->config;
    const bool conv = config->mixer[layer] == MIXER_CONV, delta = config->mixer[layer] == MIXER_DELTA;
    gguf_tensor *x;
    switch (l->m->params[i].role) {
    case PARAM_MIX_IN:
        if (delta)
            add_delta_matrix(l, i, layer);
        else if (conv)
            gguf_add_part(l, i, layer, "shortconv.in_proj", 0, 0);
        else
            add_mamba_matrix(l, i, layer);
        return true;
    case PARAM_CONV:
        x = gguf_add_part(l, i, layer, conv ? "shortconv.conv" : "ssm_conv1d", 0, 0);
        if (delta)
            turn_heads(l, x, 2 * config->scan_key_heads * config->scan_key_dim, config->scan_dim);
        else if (!conv && !config->conv_bias)
            add_zeros(l, "ssm_conv1d", layer, l->m->params[i].rows);
        return true;
    case PARAM_CONV_BIAS: gguf_add_part(l, i, layer, "ssm_conv1d", 0, 0); return true;
    case PARAM_DECAY: add_scan_vector(l, i, layer, "ssm_a", 1); return true;
    case PARAM_DECAY_BIAS: add_scan_vector(l, i, layer, "ssm_dt", 0); return true;
    case PARAM_SKIP: add_scan_vector(l, i, layer, "ssm_d", 1); return true;
    case PARAM_MIX_NORM: add_scan_vector(l, i, layer, "ssm_norm", model_mix_norm(config, layer)); return true;
    case PARAM_MIX_OUT:
        x = gguf_add_part(l, i, layer, conv ? "shortconv.out_proj" : "ssm_out", 0, 0);
        if (x && delta) {
            turn_heads(l, x, 0, config->scan_dim);
            x->columns = true;
        }
        gguf_multiply(x, config->hidden, times_of(l, PARAM_MIX_OUT));
        return true;
    default: return false;
    }
}

static void add_up(gguf_lister *l, int i, int layer)
{
    const param *p = &l->m->params[i];
    const int64_t half = (p->part[0].vector ? p->cols : p->rows) / 2;
    if (!l->m->config.gated || l->f->fused_up) {
        gguf_add_part(l, i, layer, "ffn_up", 0, 0);
        return;
    }
    gguf_multiply(gguf_add_part(l, i, layer, "ffn_gate", 0, half), half, l->m->config.factor.gate);
    gguf_add_part(l, i, layer, "ffn_up", half, half);
}

static const char *const plain_names[PARAM_ROLES] = {
    [PARAM_TOKENS] = "token_embd", [PARAM_POSITIONS] = "position_embd",
    [PARAM_NORM1] = "attn_norm", [PARAM_NORM1_BIAS] = "attn_norm",
    [PARAM_QNORM] = "attn_q_norm", [PARAM_KNORM] = "attn_k_norm",
    [PARAM_OUT] = "attn_output", [PARAM_OUT_BIAS] = "attn_output", [PARAM_POST_NORM1] = "post_attention_norm",
    [PARAM_NORM2] = "ffn_norm", [PARAM_NORM2_BIAS] = "ffn_norm",
    [PARAM_DOWN] = "ffn_down", [PARAM_DOWN_BIAS] = "ffn_down", [PARAM_POST_NORM2] = "post_ffw_norm",
    [PARAM_ROUTER_NORM] = "ffn_gate_inp", [PARAM_EXPERT_SCALE] = "ffn_down_exps", [PARAM_NORM3] = "pre_ffw_norm_2",
    [PARAM_POST_MLP] = "post_ffw_norm_1", [PARAM_POST_EXPERTS] = "post_ffw_norm_2",
    [PARAM_LAYER_TOKENS] = "per_layer_token_embd", [PARAM_INPUTS] = "per_layer_model_proj", [PARAM_INPUTS_NORM] = "per_layer_proj_norm",
    [PARAM_INPUT_GATE] = "inp_gate", [PARAM_INPUT_OUT] = "proj", [PARAM_INPUT_NORM] = "post_norm", [PARAM_SCALE] = "layer_output_scale",
    [PARAM_SINKS] = "attn_sinks", [PARAM_NORMF] = "output_norm", [PARAM_NORMF_BIAS] = "output_norm", [PARAM_HEAD] = "output",
};

static void add_param(gguf_lister *l, int i)
{
    const param *p = &l->m->params[i];
    const model_config *config = &l->m->config;
    const int layer = l->m->blocks[p->block].layer;
    const bool qkv = p->role == PARAM_QKV || p->role == PARAM_QKV_BIAS;
    if (layer >= 0 && ((config->sparse[layer] && gguf_add_sparse(l, i, layer)) || add_mixer(l, i, layer)))
        return;
    if (qkv && l->f->fused_qkv) {
        gguf_tensor *x = gguf_add_part(l, i, layer, "attn_qkv", 0, 0);
        gguf_multiply(x, model_heads(config, layer).q_wide, gguf_query_scale(l->f, config, layer));
    } else if (qkv)
        add_qkv(l, i, layer);
    else if (p->role == PARAM_UP || p->role == PARAM_UP_BIAS)
        add_up(l, i, layer);
    else if (p->role == PARAM_INPUTS || p->role == PARAM_INPUTS_NORM) /* of all layers */
        gguf_add_part(l, i, -1, plain_names[p->role], 0, 0);
    else if (l->f->second_norm && (p->role == PARAM_NORM2 || p->role == PARAM_NORM2_BIAS))
        gguf_add_part(l, i, layer, l->f->second_norm, 0, 0);
    else if (l->f->final_norm && p->role == PARAM_NORMF)
        gguf_add_part(l, i, layer, l->f->final_norm, 0, 0);
    else {
        gguf_tensor *x = gguf_add_part(l, i, layer, plain_names[p->role], 0, 0);
        if (x && p->role == PARAM_QNORM) { /* queries have a norm: its gain is scaled */
            gguf_multiply(x, p->cols, gguf_query_scale(l->f, config, layer));
            x->offset *= x->factor[0].times;
        } else
            gguf_multiply(x, p->rows, times_of(l, p->role));
    }
    if (!l->f->needs_biases)
        return;
    if (p->role == PARAM_QKV && l->f->fused_qkv && !config->qkv_bias)
        add_zeros(l, "attn_qkv", layer, p->rows);
    if ((p->role == PARAM_OUT && !config->out_bias) || ((p->role == PARAM_UP || p->role == PARAM_DOWN) && !config->mlp_bias))
        add_zeros(l, p->role == PARAM_UP ? "ffn_up" : plain_names[p->role], layer, p->rows);
}

static void add_factors(gguf_lister *l, const char *kind, const float *values)
{
    add(l,
        (gguf_tensor){.param = -1,
                      .vector = true,
                      .rows = 1,
                      .cols = l->m->config.rope[0].rotated / 2,
                      .values = values,
                      .whole = true},
        kind, -1, "weight");
}

static void add_rope(gguf_lister *l)
{
    const rope_config *r = &l->m->config.rope[0];
    const int64_t pairs = r->rotated / 2;
    if (l->m->config.position != POSITION_ROTARY || (r->kind != ROPE_LONG && !gguf_has_factors(l->f, r)))
        return;
    l->t->factors = malloc((size_t)(2 * pairs) * sizeof(float));
    if (!l->t->factors) {
        l->failed = pt_fail(l->e, PT_FAILED, "no memory for %lld rope factors", (long long)pairs);
        return;
    }
    if (r->kind != ROPE_LONG) {
        gguf_rope_factors(r, l->t->factors);
        add_factors(l, "rope_freqs", l->t->factors);
        return;
    }
    for (int64_t i = 0; i < pairs; i++) {
        l->t->factors[i] = (float)r->long_factor[i];
        l->t->factors[pairs + i] = (float)r->short_factor[i];
    }
    add_factors(l, "rope_factors_long", l->t->factors);
    add_factors(l, "rope_factors_short", l->t->factors + pairs);
}

int gguf_tensors_list(gguf_tensors *t, const model *m, const gguf_family *f, pt_error *e)
{
    *t = (gguf_tensors){0};
    gguf_lister l = {t, m, f, e, 0};
    add_rope(&l);
    for (int i = 0; i < m->params_n && !l.failed; i++)
        if (!param_is_adapter(&m->params[i]))
            add_param(&l, i);
    for (int i = 0; i < m->params_n && !l.failed && m->config.tied && f->own_head; i++)
        if (m->params[i].role == PARAM_TOKENS)
            gguf_multiply(gguf_add_part(&l, i, -1, "output", 0, 0), m->params[i].rows, times_of(&l, PARAM_HEAD));
    if (l.failed)
        gguf_tensors_free(t);
    return l.failed;
}

void gguf_tensors_free(gguf_tensors *t)
{
    free(t->list);
    free(t->factors);
    *t = (gguf_tensors){0};
}
