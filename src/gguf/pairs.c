/* pairs.c - the key-value pairs of a model's sizes. */
#include "gguf/family_parts.h"

#include <math.h>
#include <stdio.h>

typedef struct pairs {
    gguf_writer *w;
    const char *family;
} pairs;

static const char *key(const pairs *p, const char *name, char out[96])
{
    snprintf(out, 96, "%s.%s", p->family, name);
    return out;
}

static void put_u32(const pairs *p, const char *name, int64_t value)
{
    char k[96];
    gguf_put_u32(p->w, key(p, name, k), (uint32_t)value);
}

static void put_f32(const pairs *p, const char *name, double value)
{
    char k[96];
    gguf_put_f32(p->w, key(p, name, k), (float)value);
}

static void put_string(const pairs *p, const char *name, const char *value)
{
    char k[96];
    gguf_put_string(p->w, key(p, name, k), value);
}

bool gguf_has_factors(const gguf_family *f, const rope_config *r)
{
    return is_gemma4(f) || r->kind == ROPE_LLAMA3 || (r->kind == ROPE_YARN && !standard_yarn(f, r));
}

void gguf_rope_factors(const rope_config *r, float *out)
{
    for (int64_t i = 0; i < r->rotated / 2; i++) {
        if (r->kind == ROPE_PARTIAL && i >= r->turning)
            out[i] = 1e30f; /* its frequency is 0 */
        else
            out[i] = (float)(pow(r->theta, -(double)(2 * i) / (double)r->rotated) / model_rope_frequency(r, 1, i));
    }
}

static void put_yarn(const pairs *p, const gguf_family *f, const rope_config *r)
{
    put_string(p, "rope.scaling.type", "yarn");
    put_f32(p, "rope.scaling.factor", r->factor);
    /* llama.cpp also multiplies by 1 + 0.1 ln(factor) */
    put_f32(p, "rope.scaling.attn_factor", r->attention_factor / (r->factor > 1 ? 1 + 0.1 * log(r->factor) : 1));
    if (f->yarn_betas) {
        put_f32(p, "rope.scaling.yarn_beta_fast", r->beta_fast);
        put_f32(p, "rope.scaling.yarn_beta_slow", r->beta_slow);
    }
}

static void put_rope(const pairs *p, const gguf_family *f, const model_config *c)
{
    const rope_config *r = &c->rope[0];
    put_u32(p, "rope.dimension_count", r->rotated);
    put_f32(p, "rope.freq_base", r->theta);
    if (r->kind == ROPE_LINEAR) {
        put_string(p, "rope.scaling.type", "linear");
        put_f32(p, "rope.scaling.factor", r->factor);
    } else if (r->kind == ROPE_YARN && standard_yarn(f, r))
        put_yarn(p, f, r);
    else if (r->kind == ROPE_LONG || r->kind == ROPE_YARN) {
        put_string(p, "rope.scaling.type", r->kind == ROPE_LONG ? "longrope" : "none");
        put_f32(p, "rope.scaling.attn_factor", r->attention_factor);
    }
    if (r->kind == ROPE_LONG || r->kind == ROPE_YARN)
        put_u32(p, "rope.scaling.original_context_length", (int64_t)r->original_positions);
    if (c->query_rope >= 0)
        put_f32(p, "attention.temperature_scale", c->rope[c->query_rope].scaling_beta);
    if (is_gemma4(f))
        put_u32(p, "rope.dimension_count_swa", c->rope[1].rotated);
    if ((!strcmp(f->name, "gemma3") && any_window(c)) || is_gemma4(f))
        put_f32(p, "rope.freq_base_swa", c->rope[1].theta);
}

static void put_windows(const pairs *p, const gguf_family *f, const model_config *c)
{
    bool usual = true;
    if (f->windows == FAMILY_WINDOWS_NONE || (f->windows == FAMILY_WINDOWS_BY_KEY && !any_window(c)))
        return;
    put_u32(p, "attention.sliding_window", any_window(c) ? smallest_window(c) : c->max_positions);
    for (int i = 0; i < c->layers; i++)
        usual = usual && f->period && (c->window[i] > 0) == ((i + 1) % f->period != 0);
    if (usual || !any_window(c))
        return;
    char k[96];
    gguf_begin_array(p->w, key(p, "attention.sliding_window_pattern", k), GGUF_ARRAY_BOOL, (uint64_t)c->layers);
    for (int i = 0; i < c->layers; i++)
        gguf_add_bool(p->w, c->window[i] > 0);
}

static void put_scales(const pairs *p, const gguf_family *f, const model_config *c)
{
    if (f->own_scale) {
        put_f32(p, "attention.scale", c->attention_scale);
        put_f32(p, "embedding_scale", c->embedding_scale);
        put_f32(p, "residual_scale", c->residual_scale);
        put_f32(p, "logit_scale", 1 / (double)c->logit_scale);
    }
    if (f->logit_scale)
        put_f32(p, "logit_scale", c->logit_scale);
    if (c->attention_softcap > 0)
        put_f32(p, "attn_logit_softcapping", c->attention_softcap);
    if (c->logit_softcap > 0 || is_gemma4(f)) /* without the key, llama.cpp has 30 for it */
        put_f32(p, "final_logit_softcapping", c->logit_softcap);
}

static void put_state(const pairs *p, const gguf_family *f, const model_config *c)
{
    char k[96];
    if (!f->mixers)
        return;
    if (!strncmp(f->name, "lfm2", 4)) {
        put_u32(p, "shortconv.l_cache", c->taps);
        return;
    }
    put_u32(p, "ssm.conv_kernel", c->taps);
    put_u32(p, "ssm.state_size", c->scan_key_dim);
    put_u32(p, "ssm.group_count", c->scan_key_heads);
    put_u32(p, "ssm.time_step_rank", c->scan_heads);
    put_u32(p, "ssm.inner_size", c->scan_heads * c->scan_dim);
    if (f->by_interval)
        put_u32(p, "full_attention_interval", first_attention(c) + 1);
    else if (!is_falcon(f))
        gguf_put_bool(p->w, key(p, "rope.scaling.finetuned", k), rotates(c));
}

/* Of layers with a state instead: 0. */
static void put_kv_heads(const pairs *p, const gguf_family *f, const model_config *c)
{
    char k[96];
    const bool alike = !c->full_kv_heads || c->full_kv_heads == c->kv_heads;
    if ((!f->mixers && alike) || f->by_interval || c->attends_beside) {
        put_u32(p, "attention.head_count_kv", c->kv_heads);
        return;
    }
    gguf_begin_array(p->w, key(p, "attention.head_count_kv", k), GGUF_ARRAY_I32, (uint64_t)c->layers);
    for (int i = 0; i < c->layers; i++)
        gguf_add_i32(p->w, has_attention(c, i) ? (int32_t)model_heads(c, i).kv_heads : 0);
}

/* Of layers that are a mixer alone: 0. */
static void put_ffn(const pairs *p, const gguf_family *f, const model_config *c)
{
    char k[96];
    if (!c->one_branch && !c->double_wide) {
        put_u32(p, "feed_forward_length", c->experts && is_granite_hybrid(f) ? c->expert_ffn : c->ffn);
        return;
    }
    gguf_begin_array(p->w, key(p, "feed_forward_length", k), GGUF_ARRAY_I32, (uint64_t)c->layers);
    for (int i = 0; i < c->layers; i++)
        gguf_add_i32(p->w, (int32_t)(c->one_branch && c->sparse[i] ? c->expert_ffn : model_ffn(c, i)));
}

/* A text's positions are the same in all three sections of the pairs. */
static void put_sections(const pairs *p, const model_config *c)
{
    const int32_t all = (int32_t)c->rope[0].rotated / 2, first = (all + 2) / 3, second = (all - first + 1) / 2;
    const int32_t sections[] = {first, second, all - first - second, 0};
    char k[96];
    gguf_begin_array(p->w, key(p, "rope.dimension_sections", k), GGUF_ARRAY_I32, 4);
    for (int i = 0; i < 4; i++)
        gguf_add_i32(p->w, sections[i]);
}

/* For how the weights of a token's experts are made: by a softmax of all, by the sigmoid of each, by a softmax of the chosen. */
enum { GATING_SOFTMAX = 1, GATING_SIGMOID, GATING_SOFTMAX_OF_CHOSEN };

static void put_experts(const pairs *p, const gguf_family *f, const model_config *c)
{
    if (!c->experts)
        return;
    put_u32(p, "expert_count", c->experts);
    put_u32(p, "expert_used_count", c->experts_used);
    put_u32(p, "expert_feed_forward_length", c->expert_ffn);
    if (c->expert_latent)
        put_u32(p, "moe_latent_size", c->expert_latent);
    if (c->shared_ffn && (f->shared_count || is_nemotron_h(f)))
        put_u32(p, "expert_shared_count", f->shared_count ? c->shared_ffn / c->expert_ffn : 1);
    if (c->shared_ffn && !c->experts_beside)
        put_u32(p, "expert_shared_feed_forward_length", c->shared_ffn);
    put_u32(p, "expert_gating_func",
            c->router == ROUTE_SIGMOID ? GATING_SIGMOID : is_gpt_oss(f) ? GATING_SOFTMAX_OF_CHOSEN : GATING_SOFTMAX);
    if (c->router == ROUTE_SIGMOID) {
        char k[96];
        gguf_put_bool(p->w, key(p, "expert_weights_norm", k), c->router_norm);
        if (!f->scaled_experts)
            put_f32(p, "expert_weights_scale", c->router_scale);
    }
    if (c->router_groups > 1) {
        put_u32(p, "expert_group_count", c->router_groups);
        put_u32(p, "expert_group_used_count", c->router_groups_used);
    }
    if (!f->all_sparse) {
        put_u32(p, "leading_dense_block_count", first_sparse(c));
        put_u32(p, "interleave_moe_layer_step", sparse_step(c));
    }
}

void gguf_put_config(gguf_writer *w, const gguf_family *f, const model_config *c)
{
    const pairs p = {w, f->name};
    put_u32(&p, "vocab_size", c->vocab);
    put_u32(&p, "context_length", c->max_positions); /* up to this length dynamic rope scaling changes nothing */
    put_u32(&p, "embedding_length", c->hidden);
    put_u32(&p, "block_count", c->layers);
    put_ffn(&p, f, c);
    put_u32(&p, "attention.head_count", c->heads);
    put_kv_heads(&p, f, c);
    const int64_t dim = c->full_head_dim ? c->full_head_dim : c->head_dim;
    put_u32(&p, "attention.key_length", dim);
    put_u32(&p, "attention.value_length", dim);
    if (is_gemma4(f)) {
        put_u32(&p, "attention.key_length_swa", c->head_dim);
        put_u32(&p, "attention.value_length_swa", c->head_dim);
        put_u32(&p, "attention.shared_kv_layers", c->kv_shared);
        put_u32(&p, "embedding_length_per_layer_input", c->input_width);
    }
    if (c->norm == NORM_RMS)
        put_f32(&p, "attention.layer_norm_rms_epsilon", (double)c->norm_eps);
    if (c->norm != NORM_RMS || is_nemotron_h(f))
        put_f32(&p, "attention.layer_norm_epsilon", (double)c->norm_eps);
    if (!strcmp(f->name, "gptneox")) {
        char k[96];
        gguf_put_bool(w, key(&p, "use_parallel_residual", k), c->parallel);
    }
    if (c->position == POSITION_ROTARY && c->ropes_n)
        put_rope(&p, f, c);
    if (f->tiled_heads)
        put_sections(&p, c);
    put_state(&p, f, c);
    put_windows(&p, f, c);
    put_scales(&p, f, c);
    put_experts(&p, f, c);
}
