#include "gguf/family.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LLAMA_LIKE                                                                                                                    \
    .pairs_adjacent = true, .out_bias = true, .mlp_bias = true, .free_head_dim = true, .rope_factors = true, .long_ropes = true

#define QWEN_DELTA                                                                                                                         \
    .second_norm = "post_attention_norm", .free_head_dim = true, .partial_rope = true, .mixers = true, .by_interval = true
#define QWEN_EXPERTS .experts = true, .fixed_norm = true, .norm = true, .all_sparse = true
#define QWEN35(type) {.model_type = type, .name = "qwen35", QWEN_DELTA, .tiled_heads = true}
#define QWEN35_MOE(type) {.model_type = type, .name = "qwen35moe", QWEN_DELTA, .tiled_heads = true, QWEN_EXPERTS}

static const gguf_family families[] = {
    {.model_type = "llama", .name = "llama", LLAMA_LIKE},
    {.model_type = "mistral", .name = "llama", LLAMA_LIKE},
    {.model_type = "granite", .name = "granite", LLAMA_LIKE, .own_scale = true},
    {.model_type = "ministral3", .name = "mistral3", LLAMA_LIKE, .yarn_betas = true},
    {.model_type = "smollm3", .name = "smollm3", .pairs_adjacent = true, .free_head_dim = true},
    {.model_type = "qwen2", .name = "qwen2"},
    {.model_type = "qwen3", .name = "qwen3", .free_head_dim = true},
    {.model_type = "gemma", .name = "gemma", .free_head_dim = true, .tanh_gelu = true},
    {.model_type = "gemma2", .name = "gemma2", .free_head_dim = true, .tanh_gelu = true, .softcaps = true, .scale_by_width = 46,
     .windows = FAMILY_WINDOWS_ALWAYS, .period = 2},
    {.model_type = "gemma3_text", .name = "gemma3", .free_head_dim = true, .tanh_gelu = true, .logit_softcap = true, .scale_by_width = 62,
     .windows = FAMILY_WINDOWS_BY_KEY, .period = 6},
    {.model_type = "phi3", .name = "phi3", .fused_qkv = true, .fused_up = true, .partial_rope = true, .long_ropes = true},
    {.model_type = "olmo2", .name = "olmo2", .own_head = true},
    {.model_type = "olmo3", .name = "olmo2", .own_head = true, .windows = FAMILY_WINDOWS_BY_KEY, .period = 4},
    {.model_type = "gpt2", .name = "gpt2", .fused_qkv = true, .out_bias = true, .mlp_bias = true, .tanh_gelu = true},
    {.model_type = "gpt_neox", .name = "gptneox", .fused_qkv = true, .own_head = true, .needs_biases = true, .out_bias = true,
     .mlp_bias = true, .partial_rope = true, .tanh_gelu = true},
    {.model_type = "starcoder2", .name = "starcoder2", .needs_biases = true, .out_bias = true, .mlp_bias = true, .tanh_gelu = true},
    {.model_type = "seed_oss", .name = "seed_oss", .free_head_dim = true, .second_norm = "post_attention_norm"},
    {.model_type = "exaone4", .name = "exaone4"},
    {.model_type = "stablelm", .name = "stablelm", .partial_rope = true},
    {.model_type = "arcee", .name = "arcee", .pairs_adjacent = true, .free_head_dim = true, .rope_factors = true, .squared_relu = true},
    {.model_type = "nemotron", .name = "nemotron", .own_head = true, .partial_rope = true, .out_bias = true, .mlp_bias = true,
     .squared_relu = true},
    {.model_type = "glm4", .name = "glm4", .pairs_adjacent = true, .fused_up = true, .partial_rope = true, .free_head_dim = true},
    {.model_type = "ernie4_5", .name = "ernie4_5", .pairs_adjacent = true, .free_head_dim = true},
    {.model_type = "mixtral", .name = "llama", LLAMA_LIKE, .experts = true, .fixed_norm = true, .norm = true, .all_sparse = true},
    {.model_type = "granitemoe", .name = "granitemoe", LLAMA_LIKE, .own_scale = true, .experts = true, .fixed_norm = true, .norm = true,
     .all_sparse = true},
    {.model_type = "granitemoeshared", .name = "granitemoe", LLAMA_LIKE, .own_scale = true, .experts = true, .fixed_norm = true,
     .norm = true, .all_sparse = true},
    {.model_type = "qwen3_moe", .name = "qwen3moe", .free_head_dim = true, .experts = true, .fixed_norm = true, .norm = true,
     .all_sparse = true},
    {.model_type = "qwen2_moe", .name = "qwen2moe", .experts = true, .fixed_norm = true, .all_sparse = true},
    {.model_type = "olmoe", .name = "olmoe", .experts = true, .fixed_norm = true, .all_sparse = true},
    {.model_type = "glm4_moe", .name = "glm4moe", .free_head_dim = true, .partial_rope = true, .second_norm = "post_attention_norm",
     .experts = true, .shared_count = true},
    {.model_type = "dots1", .name = "dots1", .free_head_dim = true, .experts = true, .shared_count = true},
    {.model_type = "ernie4_5_moe", .name = "ernie4_5-moe", .pairs_adjacent = true, .free_head_dim = true, .experts = true,
     .fixed_norm = true, .norm = true, .shared_count = true},
    {.model_type = "minimax_m2", .name = "minimax-m2", .free_head_dim = true, .partial_rope = true, .experts = true, .fixed_norm = true,
     .norm = true, .all_sparse = true},
    {.model_type = "gpt_oss", .name = "gpt-oss", .free_head_dim = true, .second_norm = "post_attention_norm", .own_head = true,
     .out_bias = true, .windows = FAMILY_WINDOWS_ALWAYS, .period = 2, .experts = true, .all_sparse = true},
    QWEN35("qwen3_5"), QWEN35("qwen3_5_text"), QWEN35_MOE("qwen3_5_moe"), QWEN35_MOE("qwen3_5_moe_text"),
    {.model_type = "qwen3_next", .name = "qwen3next", QWEN_DELTA, QWEN_EXPERTS},
    {.model_type = "lfm2", .name = "lfm2", .final_norm = "token_embd_norm", .mixers = true},
    {.model_type = "lfm2_moe", .name = "lfm2moe", .final_norm = "token_embd_norm", .mixers = true, .experts = true, .fixed_norm = true,
     .norm = true},
    {.model_type = "granitemoehybrid", .name = "granitehybrid", .pairs_adjacent = true, .free_head_dim = true, .own_scale = true,
     .mixers = true, .experts = true, .fixed_norm = true, .norm = true, .all_sparse = true},
    {.model_type = "bamba", .name = "granitehybrid", .pairs_adjacent = true, .free_head_dim = true, .own_scale = true, .mixers = true},
    {.model_type = "cohere", .name = "command-r", .pairs_adjacent = true, .logit_scale = true},
    {.model_type = "cohere2", .name = "cohere2", .pairs_adjacent = true, .logit_scale = true, .windows = FAMILY_WINDOWS_ALWAYS,
     .period = 4, .rope_in_windows = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- checks: what llama.cpp does not compute ---- */

typedef struct check {
    const model_config *c;
    const gguf_family *f;
    const char *where;
    void (*notice)(void *arg, const char *sentence);
    void *arg;
    pt_error *e;
} check;

static int refuse(const check *k, const char *what)
{
    return pt_fail(k->e, PT_FAILED, "%s: this model has %s, which llama.cpp does not compute for \"%s\"", k->where, what, k->f->name);
}

static void tell(const check *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(const check *k, const char *fmt, ...)
{
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (k->notice)
        k->notice(k->arg, sentence);
}

static int check_shapes(const check *k)
{
    const model_config *c = k->c;
    const gguf_family *f = k->f;
    if (!f->free_head_dim && c->heads * c->head_dim != c->hidden)
        return refuse(k, "heads that together are not as wide as the model");
    if (c->out_bias && !f->out_bias)
        return refuse(k, "a bias of attention's output");
    if (c->mlp_bias && !f->mlp_bias)
        return refuse(k, "biases of the MLP");
    if (!strcmp(f->model_type, "gpt2") && (!c->qkv_bias || !c->out_bias || !c->mlp_bias))
        return refuse(k, "no biases");
    if ((!strcmp(f->name, "gemma") || !strcmp(f->name, "gemma2")) && !c->tied)
        return refuse(k, "a head that is not tied to the embedding");
    return 0;
}

static int check_activation(const check *k)
{
    const activation_kind a = k->c->activation;
    if (k->f->tanh_gelu && a == ACT_GELU_ERF && !strcmp(k->f->name, "gptneox")) {
        tell(k, "llama.cpp computes this model's GELU by its tanh form, which differs in the fourth digit");
        return 0;
    }
    return a == (k->f->tanh_gelu ? ACT_GELU_TANH : k->f->squared_relu ? ACT_RELU2 : ACT_SILU) ? 0 : refuse(k, "another activation");
}

static bool any_window(const model_config *c)
{
    for (int i = 0; i < c->layers; i++)
        if (c->window[i])
            return true;
    return false;
}

static int64_t smallest_window(const model_config *c)
{
    int64_t least = 0;
    for (int i = 0; i < c->layers; i++)
        if (c->window[i] && (!least || c->window[i] < least))
            least = c->window[i];
    return least;
}

static int check_attention(const check *k)
{
    const model_config *c = k->c;
    if (k->f->softcaps ? !(c->attention_softcap > 0 && c->logit_softcap > 0) : c->attention_softcap > 0)
        return refuse(k, k->f->softcaps ? "no soft caps" : "a soft cap of the scores");
    if (c->logit_softcap > 0 && !k->f->softcaps && !k->f->logit_softcap)
        return refuse(k, "a soft cap of the logits");
    const int64_t window = smallest_window(c);
    if (k->f->windows == FAMILY_WINDOWS_NONE && window && window < c->max_positions)
        tell(k, "llama.cpp has no sliding window for \"%s\": its output differs for texts of more than %lld tokens", k->f->name,
             (long long)window);
    return 0;
}

static bool is_gpt_oss(const gguf_family *f) { return !strcmp(f->name, "gpt-oss"); }
static bool is_granite_hybrid(const gguf_family *f) { return !strcmp(f->name, "granitehybrid"); }

static bool standard_yarn(const gguf_family *f, const rope_config *r)
{
    return (r->truncate || is_gpt_oss(f)) && (f->yarn_betas || (r->beta_fast == 32 && r->beta_slow == 1));
}

static int check_rope(const check *k, const rope_config *r)
{
    if (!k->f->partial_rope && r->rotated != k->c->head_dim)
        return refuse(k, "heads that are rotated in part");
    if (r->kind == ROPE_LLAMA3 && !k->f->rope_factors)
        return refuse(k, "rope scaling of type llama3");
    if (r->kind == ROPE_LONG && !k->f->long_ropes)
        return refuse(k, "rope scaling of type longrope");
    if (r->kind == ROPE_YARN && !standard_yarn(k->f, r) && !k->f->rope_factors)
        return refuse(k, "yarn with \"beta_fast\", \"beta_slow\" or \"truncate\" other than 32, 1 and true");
    return 0;
}

static bool has_attention(const model_config *c, int layer) { return c->mixer[layer] == MIXER_ATTENTION; }

static int first_attention(const model_config *c)
{
    int i = 0;
    while (i < c->layers && !has_attention(c, i))
        i++;
    return i;
}

static bool rotates(const model_config *c) { return first_attention(c) < c->layers && c->layer_rope[first_attention(c)] >= 0; }

/* Does llama.cpp give this layer no rope? */
static bool is_unrotated_there(const check *k, int layer)
{
    if (is_granite_hybrid(k->f))
        return !rotates(k->c);
    return k->f->rope_in_windows ? !k->c->window[layer] : !strcmp(k->f->name, "smollm3") && (layer + 1) % 4 == 0;
}

static int check_ropes(const check *k)
{
    const model_config *c = k->c;
    int status = c->ropes_n ? check_rope(k, &c->rope[0]) : 0;
    for (int i = 0; i < c->layers && !status && c->position == POSITION_ROTARY; i++)
        if (has_attention(c, i) && (c->layer_rope[i] < 0) != is_unrotated_there(k, i))
            status = refuse(k, strcmp(k->f->name, "smollm3") ? "layers without positions"
                                                             : "layers without positions other than every fourth");
    if (status || k->f->windows != FAMILY_WINDOWS_BY_KEY || c->ropes_n < 2 || !any_window(c))
        return status;
    if (c->rope[1].kind != ROPE_PLAIN)
        return refuse(k, "rope scaling in layers with a window");
    return !strcmp(k->f->name, "olmo2") && c->rope[0].theta != c->rope[1].theta
               ? refuse(k, "another rope theta in layers with a window")
               : 0;
}

/* The first layer with experts, or the number of layers. */
static int64_t first_sparse(const model_config *c)
{
    int64_t i = 0;
    while (i < c->layers && !c->sparse[i])
        i++;
    return i;
}

/* Every so manieth layer has experts, from the first one to the last. */
static int64_t sparse_step(const model_config *c)
{
    int64_t i = first_sparse(c) + 1;
    while (i < c->layers && !c->sparse[i])
        i++;
    return i < c->layers ? i - first_sparse(c) : 1;
}

static int check_experts(const check *k)
{
    const model_config *c = k->c;
    const int64_t first = first_sparse(c), step = sparse_step(c);
    if (!c->experts)
        return 0;
    if (k->f->fixed_norm && c->router_norm != k->f->norm)
        return refuse(k, c->router_norm ? "weights of experts that are divided by their sum" : "weights of experts that are not divided");
    if (c->router_least != 0 && c->router_least != 1e-12f)
        return refuse(k, "a \"moe_norm_min\" other than 1e-12");
    for (int64_t i = first; i < c->layers; i++)
        if (c->sparse[i] != ((i - first) % step == 0))
            return refuse(k, "layers without experts after such with");
    if ((k->f->all_sparse && (first || step > 1)) || (step > 1 && strcmp(k->f->name, "ernie4_5-moe") != 0))
        return refuse(k, "layers without experts");
    return 0;
}

/* What llama.cpp fixes for gpt-oss. */
static int check_gpt_oss(const check *k)
{
    const model_config *c = k->c;
    if (!is_gpt_oss(k->f))
        return 0;
    if (!c->qkv_bias || !c->out_bias || !c->router_bias || !c->expert_bias || !c->sinks)
        return refuse(k, "no biases or no sinks");
    if (c->expert_alpha != 1.702f || c->expert_limit != 7)
        return refuse(k, "experts with other constants than 1.702 and 7");
    if (c->ropes_n && c->rope[0].kind == ROPE_YARN && !c->rope[0].truncate)
        tell(k, "llama.cpp rounds the limits of yarn to whole pairs, and this model does not: its output differs a little");
    return 0;
}

static int check_mixers(const check *k)
{
    const model_config *c = k->c;
    const int full = first_attention(c) + 1;
    if (!k->f->mixers)
        return 0;
    if (c->mix_bias)
        return refuse(k, "biases of the matrices of its layers with a state");
    if (c->conv_bias && !is_granite_hybrid(k->f))
        return refuse(k, "a bias of the convolution");
    if (is_granite_hybrid(k->f) && c->scan_heads * c->scan_dim != 2 * c->hidden)
        return refuse(k, "a state of another width than twice the model's");
    if (is_granite_hybrid(k->f) && (c->step_least > 0 || c->step_most < FLT_MAX))
        return refuse(k, "limits of its steps (\"time_step_limit\")");
    if (!k->f->by_interval)
        return 0;
    if (c->scan_key_dim != c->scan_dim)
        return refuse(k, "keys and values of different sizes in its layers with a state");
    for (int i = 0; i < c->layers; i++)
        if (full > c->layers || has_attention(c, i) != ((i + 1) % full == 0))
            return refuse(k, "layers with attention that are not every so manieth");
    return 0;
}

int gguf_family_of(const model *m, const char *where, void (*notice)(void *, const char *), void *arg, const gguf_family **out, pt_error *e)
{
    const model_config *c = &m->config;
    check k = {c, NULL, where, notice, arg, e};
    for (int i = 0; i < FAMILIES; i++)
        if (!strcmp(families[i].model_type, c->model_type))
            k.f = &families[i];
    if (!k.f)
        return pt_fail(e, PT_FAILED,
                       "%s: its model_type is \"%s\", which llama.cpp does not know, or for which no GGUF file can be written yet",
                       where, c->model_type);
    int status = check_shapes(&k);
    if (!status)
        status = check_activation(&k);
    if (!status)
        status = check_attention(&k);
    if (!status)
        status = check_ropes(&k);
    if (!status)
        status = check_experts(&k);
    if (!status)
        status = check_gpt_oss(&k);
    if (!status)
        status = check_mixers(&k);
    if (!status && c->multimodal)
        tell(&k, "only the text part of this model for text and images is exported");
    *out = k.f;
    return status;
}

float gguf_query_scale(const gguf_family *f, const model_config *c, int layer)
{
    const bool by_width = f->scale_by_width && f->scale_by_width == c->layers;
    const float theirs = (float)(1 / sqrt((double)(by_width ? c->hidden / c->heads : c->head_dim)));
    return f->own_scale ? c->layer_scale[layer] : c->attention_scale * c->layer_scale[layer] / theirs;
}

/* ---- key-value pairs ---- */

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
    return r->kind == ROPE_LLAMA3 || (r->kind == ROPE_YARN && !standard_yarn(f, r));
}

void gguf_rope_factors(const rope_config *r, float *out)
{
    for (int64_t i = 0; i < r->rotated / 2; i++)
        out[i] = (float)(pow(r->theta, -(double)(2 * i) / (double)r->rotated) / model_rope_frequency(r, 1, i));
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
    if (!strcmp(f->name, "gemma3") && any_window(c))
        put_f32(p, "rope.freq_base_swa", c->rope[1].theta);
}

static void put_windows(const pairs *p, const gguf_family *f, const model_config *c)
{
    bool usual = true;
    if (f->windows == FAMILY_WINDOWS_NONE || (f->windows == FAMILY_WINDOWS_BY_KEY && !any_window(c)))
        return;
    put_u32(p, "attention.sliding_window", any_window(c) ? smallest_window(c) : c->max_positions);
    for (int i = 0; i < c->layers; i++)
        usual = usual && (c->window[i] > 0) == ((i + 1) % f->period != 0);
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
    if (c->logit_softcap > 0)
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
    else
        gguf_put_bool(p->w, key(p, "rope.scaling.finetuned", k), rotates(c));
}

/* Of layers with a state instead: 0. */
static void put_kv_heads(const pairs *p, const gguf_family *f, const model_config *c)
{
    char k[96];
    if (!f->mixers || f->by_interval) {
        put_u32(p, "attention.head_count_kv", c->kv_heads);
        return;
    }
    gguf_begin_array(p->w, key(p, "attention.head_count_kv", k), GGUF_ARRAY_I32, (uint64_t)c->layers);
    for (int i = 0; i < c->layers; i++)
        gguf_add_i32(p->w, has_attention(c, i) ? (int32_t)c->kv_heads : 0);
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
    if (c->shared_ffn && f->shared_count)
        put_u32(p, "expert_shared_count", c->shared_ffn / c->expert_ffn);
    if (c->shared_ffn)
        put_u32(p, "expert_shared_feed_forward_length", c->shared_ffn);
    put_u32(p, "expert_gating_func",
            c->router == ROUTE_SIGMOID ? GATING_SIGMOID : is_gpt_oss(f) ? GATING_SOFTMAX_OF_CHOSEN : GATING_SOFTMAX);
    if (c->router == ROUTE_SIGMOID) {
        char k[96];
        gguf_put_bool(p->w, key(p, "expert_weights_norm", k), c->router_norm);
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
    put_u32(&p, "feed_forward_length", c->experts && is_granite_hybrid(f) ? c->expert_ffn : c->ffn);
    put_u32(&p, "attention.head_count", c->heads);
    put_kv_heads(&p, f, c);
    put_u32(&p, "attention.key_length", c->head_dim);
    put_u32(&p, "attention.value_length", c->head_dim);
    put_f32(&p, c->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", (double)c->norm_eps);
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
