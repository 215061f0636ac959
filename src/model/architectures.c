#include "model/architectures.h"

#include <stdio.h>
#include <string.h>

const char head_name[] = "lm_head.weight";

static const char *gpt2_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"wte.weight"},
    [PARAM_POSITIONS] = {"wpe.weight"},
    [PARAM_NORM1] = {"h.*.ln_1.weight"},
    [PARAM_NORM1_BIAS] = {"h.*.ln_1.bias"},
    [PARAM_QKV] = {"h.*.attn.c_attn.weight"},
    [PARAM_QKV_BIAS] = {"h.*.attn.c_attn.bias"},
    [PARAM_OUT] = {"h.*.attn.c_proj.weight"},
    [PARAM_OUT_BIAS] = {"h.*.attn.c_proj.bias"},
    [PARAM_NORM2] = {"h.*.ln_2.weight"},
    [PARAM_NORM2_BIAS] = {"h.*.ln_2.bias"},
    [PARAM_UP] = {"h.*.mlp.c_fc.weight"},
    [PARAM_UP_BIAS] = {"h.*.mlp.c_fc.bias"},
    [PARAM_DOWN] = {"h.*.mlp.c_proj.weight"},
    [PARAM_DOWN_BIAS] = {"h.*.mlp.c_proj.bias"},
    [PARAM_NORMF] = {"ln_f.weight"},
    [PARAM_NORMF_BIAS] = {"ln_f.bias"},
    [PARAM_HEAD] = {head_name},
};

/* Llama and what grew out of it. */
static const char *llama_names[PARAM_ROLES][MODEL_MAX_PARTS] = {
    [PARAM_TOKENS] = {"embed_tokens.weight"},
    [PARAM_NORM1] = {"layers.*.input_layernorm.weight"},
    [PARAM_QKV] = {"layers.*.self_attn.q_proj.weight", "layers.*.self_attn.k_proj.weight",
                   "layers.*.self_attn.v_proj.weight"},
    [PARAM_QKV_BIAS] = {"layers.*.self_attn.q_proj.bias", "layers.*.self_attn.k_proj.bias",
                        "layers.*.self_attn.v_proj.bias"},
    [PARAM_QNORM] = {"layers.*.self_attn.q_norm.weight"},
    [PARAM_KNORM] = {"layers.*.self_attn.k_norm.weight"},
    [PARAM_OUT] = {"layers.*.self_attn.o_proj.weight"},
    [PARAM_OUT_BIAS] = {"layers.*.self_attn.o_proj.bias"},
    [PARAM_NORM2] = {"layers.*.post_attention_layernorm.weight"},
    [PARAM_UP] = {"layers.*.mlp.gate_proj.weight", "layers.*.mlp.up_proj.weight"},
    [PARAM_UP_BIAS] = {"layers.*.mlp.gate_proj.bias", "layers.*.mlp.up_proj.bias"},
    [PARAM_DOWN] = {"layers.*.mlp.down_proj.weight"},
    [PARAM_DOWN_BIAS] = {"layers.*.mlp.down_proj.bias"},
    [PARAM_NORMF] = {"norm.weight"},
    [PARAM_HEAD] = {head_name},
};

/* What the four Llama-like rows share. */
#define LLAMA_FAMILY                                                                               \
    .prefix = "model.", .hidden = {"hidden_size", 0, 4096}, .layers = {"num_hidden_layers", 0, 32}, \
    .heads = {"num_attention_heads", 0, 32}, .kv_heads_null_is_heads = true,                       \
    .activation_key = "hidden_act", .activation = "silu", .eps_key = "rms_norm_eps", .eps = 1e-6,  \
    .norm = NORM_RMS, .position = POSITION_ROTARY, .gated = true, .padding_row = true,             \
    .names = llama_names, .buffers = {"layers.*.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}

#define ROPE_KEYS "rope_theta", "rope_scaling", "rope_parameters"

/* Defaults are those of Transformers' configuration classes. */
static const architecture table[] = {
    {
        .model_type = "gpt2", .class_name = "GPT2LMHeadModel", .prefix = "transformer.",
        .hidden = {"n_embd", "hidden_size", 768}, .layers = {"n_layer", "num_hidden_layers", 12},
        .heads = {"n_head", "num_attention_heads", 12}, .ffn = {"n_inner", 0, -1},
        .positions = {"n_positions", "max_position_embeddings", 1024}, .vocab = {"vocab_size", 0, 50257},
        .bos = {"bos_token_id", 0, 50256}, .eos = {"eos_token_id", 0, 50256},
        .activation_key = "activation_function", .activation = "gelu_new",
        .eps_key = "layer_norm_epsilon", .eps = 1e-5,
        .norm = NORM_LAYER, .position = POSITION_LEARNED, .tied = true,
        .qkv_bias = BIAS_ALWAYS, .out_bias = BIAS_ALWAYS, .mlp_bias = BIAS_ALWAYS,
        .scale_keys = true, .scaled_residual_init = true,
        .dropout = 0.1, .dropout_keys = {"attn_pdrop", "embd_pdrop", "resid_pdrop"},
        .keys = {"scale_attn_weights", "scale_attn_by_inverse_layer_idx"},
        .names = gpt2_names, .transposed = true,
        .buffers = {"h.*.attn.bias", "h.*.attn.masked_bias"},
    },
    {
        .model_type = "llama", .class_name = "LlamaForCausalLM", LLAMA_FAMILY,
        .kv_heads = {"num_key_value_heads", 0, -1}, .head_dim = {"head_dim", 0, -1},
        .ffn = {"intermediate_size", 0, 11008}, .positions = {"max_position_embeddings", 0, 2048},
        .vocab = {"vocab_size", 0, 32000}, .bos = {"bos_token_id", 0, 1}, .eos = {"eos_token_id", 0, 2},
        .qkv_bias = BIAS_BY_KEY, .out_bias = BIAS_BY_KEY, .mlp_bias = BIAS_BY_KEY,
        .keys = {ROPE_KEYS, "attention_bias", "mlp_bias"},
    },
    {
        .model_type = "mistral", .class_name = "MistralForCausalLM", LLAMA_FAMILY,
        .kv_heads = {"num_key_value_heads", 0, 8}, .head_dim = {"head_dim", 0, -1},
        .ffn = {"intermediate_size", 0, 14336}, .positions = {"max_position_embeddings", 0, 131072},
        .vocab = {"vocab_size", 0, 32000}, .bos = {"bos_token_id", 0, 1}, .eos = {"eos_token_id", 0, 2},
        .window = WINDOW_ALL, .keys = {ROPE_KEYS, "sliding_window", "sliding_window_size"},
    },
    {
        .model_type = "qwen2", .class_name = "Qwen2ForCausalLM", LLAMA_FAMILY,
        .kv_heads = {"num_key_value_heads", 0, 32}, .head_dim = {"head_dim", 0, -1},
        .ffn = {"intermediate_size", 0, 22016}, .positions = {"max_position_embeddings", 0, 32768},
        .vocab = {"vocab_size", 0, 151936}, .bos = {"bos_token_id", 0, -1}, .eos = {"eos_token_id", 0, -1},
        .qkv_bias = BIAS_ALWAYS, .window = WINDOW_LAYERS,
        .keys = {ROPE_KEYS, "sliding_window", "use_sliding_window", "max_window_layers"},
    },
    {
        .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", LLAMA_FAMILY,
        .kv_heads = {"num_key_value_heads", 0, 32}, .head_dim = {"head_dim", 0, 128},
        .ffn = {"intermediate_size", 0, 22016}, .positions = {"max_position_embeddings", 0, 32768},
        .vocab = {"vocab_size", 0, 151936}, .bos = {"bos_token_id", 0, -1}, .eos = {"eos_token_id", 0, -1},
        .qkv_bias = BIAS_BY_KEY, .out_bias = BIAS_BY_KEY, .qk_norm = QK_NORM_HEAD, .window = WINDOW_LAYERS,
        .keys = {ROPE_KEYS, "attention_bias", "sliding_window", "use_sliding_window", "max_window_layers"},
    },
};

enum { ROWS = sizeof table / sizeof table[0] };

const architecture *architecture_find(const char *model_type)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(table[i].model_type, model_type))
            return &table[i];
    return NULL;
}

const architecture *architecture_find_class(const char *class_name)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(table[i].class_name, class_name))
            return &table[i];
    return NULL;
}

const char *architecture_list(char *buffer, int n)
{
    int used = 0;
    for (int i = 0; i < ROWS && used < n; i++)
        used += snprintf(buffer + used, (size_t)(n - used), "%s%s", i ? ", " : "", table[i].model_type);
    return buffer;
}

void architecture_name(char name[MODEL_NAME], const char *prefix, const char *pattern, int layer)
{
    const char *star = strchr(pattern, '*');
    if (star)
        snprintf(name, MODEL_NAME, "%s%.*s%d%s", prefix, (int)(star - pattern), pattern, layer, star + 1);
    else
        snprintf(name, MODEL_NAME, "%s%s", prefix, pattern);
}
