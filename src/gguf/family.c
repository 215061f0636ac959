#include "gguf/family_parts.h"

#include <math.h>

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
    {.model_type = "gemma4_text", .name = "gemma4", .free_head_dim = true, .tanh_gelu = true, .logit_softcap = true, .unscaled = true,
     .partial_rope = true, .rope_factors = true, .windows = FAMILY_WINDOWS_LISTED, .experts = true, .fixed_norm = true, .norm = true,
     .all_sparse = true},
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
    {.model_type = "olmoe", .name = "olmoe", .equal_heads = true, .experts = true, .fixed_norm = true, .all_sparse = true},
    {.model_type = "glm4_moe", .name = "glm4moe", .free_head_dim = true, .partial_rope = true, .second_norm = "post_attention_norm",
     .experts = true, .shared_count = true},
    {.model_type = "dots1", .name = "dots1", .free_head_dim = true, .equal_heads = true, .experts = true, .shared_count = true},
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
     .norm = true, .scaled_experts = true},
    {.model_type = "granitemoehybrid", .name = "granitehybrid", .pairs_adjacent = true, .free_head_dim = true, .own_scale = true,
     .mixers = true, .experts = true, .fixed_norm = true, .norm = true, .all_sparse = true},
    {.model_type = "bamba", .name = "granitehybrid", .pairs_adjacent = true, .free_head_dim = true, .own_scale = true, .mixers = true,
     .partial_rope = true},
    {.model_type = "falcon_h1", .name = "falcon-h1", .free_head_dim = true, .bare_norm = true, .own_head = true, .vocabulary_scaled = true,
     .keys_scaled = true, .mixers = true},
    {.model_type = "nemotron_h", .name = "nemotron_h", .free_head_dim = true, .mlp_bias = true, .squared_relu = true, .mixers = true},
    {.model_type = "nemotron_h", .name = "nemotron_h_moe", .free_head_dim = true, .squared_relu = true, .mixers = true, .experts = true,
     .all_sparse = true},
    {.model_type = "cohere", .name = "command-r", .pairs_adjacent = true, .logit_scale = true},
    {.model_type = "cohere2", .name = "cohere2", .pairs_adjacent = true, .logit_scale = true, .windows = FAMILY_WINDOWS_ALWAYS,
     .period = 4, .rope_in_windows = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

int gguf_family_of(const model *m, const char *where, void (*notice)(void *, const char *), void *arg, const gguf_family **out, pt_error *e)
{
    *out = NULL;
    for (int i = 0; i < FAMILIES && !*out; i++)
        if (!strcmp(families[i].model_type, m->config.model_type) && (families[i].experts || !m->config.experts))
            *out = &families[i];
    if (!*out)
        return pt_fail(e, PT_FAILED,
                       "%s: its model_type is \"%s\", which llama.cpp does not know, or for which no GGUF file can be written yet",
                       where, m->config.model_type);
    return gguf_family_check(&m->config, *out, where, notice, arg, e);
}

float gguf_query_scale(const gguf_family *f, const model_config *config, int layer)
{
    const bool by_width = f->scale_by_width && f->scale_by_width == config->layers;
    const float theirs = f->unscaled ? 1 : (float)(1 / sqrt((double)(by_width ? config->hidden / config->heads : config->head_dim)));
    return f->own_scale ? config->layer_scale[layer] : config->attention_scale * config->layer_scale[layer] / theirs;
}
