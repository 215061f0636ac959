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

static void put_rope(const pairs *p, const gguf_family *f, const model_config *config)
{
    const rope_config *r = &config->rope[0];
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
    if (config->query_rope >= 0)
        put_f32(p, "attention.temperature_scale", config->rope[config->query_rope].scaling_beta);
    if (is_gemma4(f))
        put_u32(p, "rope.dimension_count_swa", config->rope[1].rotated);
    if ((!strcmp(f->name, "gemma3") && any_window(config)) || is_gemma4(f))
        put_f32(p, "rope.freq_base_swa", config->rope[1].theta);
}

static void put_windows(const pairs *p, const gguf_family *f, const model_config *config)
{
    bool usual = true;
    if (f->windows == FAMILY_WINDOWS_NONE || (f->windows == FAMILY_WINDOWS_BY_KEY && !any_window(config)))
        return;
    put_u32(p, "attention.sliding_window", any_window(config) ? smallest_window(config) : config->max_positions);
    for (int i = 0; i < config->layers; i++)
        usual = usual && f->period && (config->window[i] > 0) == ((i + 1) % f->period != 0);
    if (usual || !any_window(config))
        return;
    char k[96];
    gguf_begin_array(p->w, key(p, "attention.sliding_window_pattern", k), GGUF_ARRAY_BOOL, (uint64_t)config->layers);
    for (int i = 0; i < config->layers; i++)
        gguf_add_bool(p->w, config->window[i] > 0);
}

static void put_scales(const pairs *p, const gguf_family *f, const model_config *config)
{
    if (f->own_scale) {
        put_f32(p, "attention.scale", config->attention_scale);
        put_f32(p, "embedding_scale", config->embedding_scale);
        put_f32(p, "residual_scale", config->residual_scale);
        put_f32(p, "logit_scale", 1 / (double)config->logit_scale);
    }
    if (f->logit_scale)
        put_f32(p, "logit_scale", config->logit_scale);
    if (config->attention_softcap > 0)
        put_f32(p, "attn_logit_softcapping", config->attention_softcap);
    if (config->logit_softcap > 0 || is_gemma4(f)) /* without the key, llama.cpp has 30 for it */
        put_f32(p, "final_logit_softcapping", config->logit_softcap);
}

static void put_state(const pairs *p, const gguf_family *f, const model_config *config)
{
    char k[96];
    if (!f->mixers)
        return;
    if (!strncmp(f->name, "lfm2", 4)) {
        put_u32(p, "shortconv.l_cache", config->taps);
        return;
    }
    put_u32(p, "ssm.conv_kernel", config->taps);
    put_u32(p, "ssm.state_size", config->scan_key_dim);
    put_u32(p, "ssm.group_count", config->scan_key_heads);
    put_u32(p, "ssm.time_step_rank", config->scan_heads);
    put_u32(p, "ssm.inner_size", config->scan_heads * config->scan_dim);
    if (f->by_interval)
        put_u32(p, "full_attention_interval", first_attention(config) + 1);
    else if (!is_falcon(f))
        gguf_put_bool(p->w, key(p, "rope.scaling.finetuned", k), rotates(config));
}

/* Of layers with a state instead: 0. */
static void put_kv_heads(const pairs *p, const gguf_family *f, const model_config *config)
{
    char k[96];
    const bool alike = !config->full_kv_heads || config->full_kv_heads == config->kv_heads;
    if ((!f->mixers && alike) || f->by_interval || config->attends_beside) {
        put_u32(p, "attention.head_count_kv", config->kv_heads);
        return;
    }
    gguf_begin_array(p->w, key(p, "attention.head_count_kv", k), GGUF_ARRAY_I32, (uint64_t)config->layers);
    for (int i = 0; i < config->layers; i++)
        gguf_add_i32(p->w, has_attention(config, i) ? (int32_t)model_heads(config, i).kv_heads : 0);
}

/* Of layers that are a mixer alone: 0. */
static void put_ffn(const pairs *p, const gguf_family *f, const model_config *config)
{
    char k[96];
    if (!config->one_branch && !config->double_wide) {
        put_u32(p, "feed_forward_length", config->experts && is_granite_hybrid(f) ? config->expert_ffn : config->ffn);
        return;
    }
    gguf_begin_array(p->w, key(p, "feed_forward_length", k), GGUF_ARRAY_I32, (uint64_t)config->layers);
    for (int i = 0; i < config->layers; i++)
        gguf_add_i32(p->w, (int32_t)(config->one_branch && config->sparse[i] ? config->expert_ffn : model_ffn(config, i)));
}

/* A text's positions are the same in all three sections of the pairs. */
static void put_sections(const pairs *p, const model_config *config)
{
    const int32_t all = (int32_t)config->rope[0].rotated / 2, first = (all + 2) / 3, second = (all - first + 1) / 2;
    const int32_t sections[] = {first, second, all - first - second, 0};
    char k[96];
    gguf_begin_array(p->w, key(p, "rope.dimension_sections", k), GGUF_ARRAY_I32, 4);
    for (int i = 0; i < 4; i++)
        gguf_add_i32(p->w, sections[i]);
}

/* For how the weights of a token's experts are made: by a softmax of all, by the sigmoid of each, by a softmax of the chosen. */
enum { GATING_SOFTMAX = 1, GATING_SIGMOID, GATING_SOFTMAX_OF_CHOSEN };

static void put_experts(const pairs *p, const gguf_family *f, const model_config *config)
{
    if (!config->experts)
        return;
    put_u32(p, "expert_count", config->experts);
    put_u32(p, "expert_used_count", config->experts_used);
    put_u32(p, "expert_feed_forward_length", config->expert_ffn);
    if (config->expert_latent)
        put_u32(p, "moe_latent_size", config->expert_latent);
    if (config->shared_ffn && (f->shared_count || is_nemotron_h(f)))
        put_u32(p, "expert_shared_count", f->shared_count ? config->shared_ffn / config->expert_ffn : 1);
    if (config->shared_ffn && !config->experts_beside)
        put_u32(p, "expert_shared_feed_forward_length", config->shared_ffn);
    put_u32(p, "expert_gating_func",
            config->router == ROUTE_SIGMOID ? GATING_SIGMOID : is_gpt_oss(f) ? GATING_SOFTMAX_OF_CHOSEN : GATING_SOFTMAX);
    if (config->router == ROUTE_SIGMOID) {
        char k[96];
        gguf_put_bool(p->w, key(p, "expert_weights_norm", k), config->router_norm);
        if (!f->scaled_experts)
            put_f32(p, "expert_weights_scale", config->router_scale);
    }
    if (config->router_groups > 1) {
        put_u32(p, "expert_group_count", config->router_groups);
        put_u32(p, "expert_group_used_count", config->router_groups_used);
    }
    if (!f->all_sparse) {
        put_u32(p, "leading_dense_block_count", first_sparse(config));
        put_u32(p, "interleave_moe_layer_step", sparse_step(config));
    }
}

void gguf_put_config(gguf_writer *writer, const gguf_family *f, const model_config *config)
{
    const pairs p = {writer, f->name};
    put_u32(&p, "vocab_size", config->vocab);
    put_u32(&p, "context_length", config->max_positions); /* up to this length dynamic rope scaling changes nothing */
    put_u32(&p, "embedding_length", config->hidden);
    put_u32(&p, "block_count", config->layers);
    put_ffn(&p, f, config);
    put_u32(&p, "attention.head_count", config->heads);
    put_kv_heads(&p, f, config);
    const int64_t dim = config->full_head_dim ? config->full_head_dim : config->head_dim;
    put_u32(&p, "attention.key_length", dim);
    put_u32(&p, "attention.value_length", dim);
    if (is_gemma4(f)) {
        put_u32(&p, "attention.key_length_swa", config->head_dim);
        put_u32(&p, "attention.value_length_swa", config->head_dim);
        put_u32(&p, "attention.shared_kv_layers", config->kv_shared);
        put_u32(&p, "embedding_length_per_layer_input", config->input_width);
    }
    if (config->norm == NORM_RMS)
        put_f32(&p, "attention.layer_norm_rms_epsilon", (double)config->norm_eps);
    if (config->norm != NORM_RMS || is_nemotron_h(f))
        put_f32(&p, "attention.layer_norm_epsilon", (double)config->norm_eps);
    if (!strcmp(f->name, "gptneox")) {
        char k[96];
        gguf_put_bool(writer, key(&p, "use_parallel_residual", k), config->parallel);
    }
    if (config->position == POSITION_ROTARY && config->ropes_n)
        put_rope(&p, f, config);
    if (f->tiled_heads)
        put_sections(&p, config);
    put_state(&p, f, config);
    put_windows(&p, f, config);
    put_scales(&p, f, config);
    put_experts(&p, f, config);
}
