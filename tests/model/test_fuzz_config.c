#include "../../fuzz/fuzz_config.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

static uint64_t seed;

static void damaged_configs_are_refused_or_whole(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, \"n_inner\": null, \"vocab_size\": 99,"
        " \"attn_pdrop\": 0.1, \"layer_norm_epsilon\": 1e-05, \"activation_function\": \"gelu_new\"}",
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
        " \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"
        " \"original_max_position_embeddings\": 8192}, \"eos_token_id\": [1, 2], \"torch_dtype\": \"bfloat16\"}",
        "{\"architectures\": [\"Qwen3ForCausalLM\"], \"num_hidden_layers\": 2, \"head_dim\": 16, \"sliding_window\": 5,"
        " \"use_sliding_window\": true, \"layer_types\": [\"full_attention\", \"sliding_attention\"],"
        " \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 1e4}, \"dtype\": \"float16\"}",
        "{\"model_type\": \"gemma3\", \"tie_word_embeddings\": false, \"text_config\": {\"num_hidden_layers\": 2, \"hidden_size\": 64,"
        " \"sliding_window_pattern\": 2, \"rope_local_base_freq\": 1e4, \"final_logit_softcapping\": null, \"rope_parameters\":"
        " {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8}, \"sliding_attention\": {\"rope_theta\": 1e4}}}}",
        "{\"model_type\": \"phi3\", \"hidden_size\": 16, \"num_attention_heads\": 2, \"num_hidden_layers\": 1, \"rope_scaling\":"
        " {\"type\": \"longrope\", \"short_factor\": [1, 1.5, 2, 3], \"long_factor\": [1, 2, 4, 8]}, \"pad_token_id\": -1}",
        "{\"model_type\": \"ministral3\", \"num_hidden_layers\": 1, \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 16.0,"
        " \"beta_fast\": 32.0, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"llama_4_scaling_beta\": 0.1}}",
        "{\"model_type\": \"smollm3\", \"num_hidden_layers\": 3, \"no_rope_layers\": [1, 0, 1], \"use_sliding_window\": true,"
        " \"sliding_window\": 4, \"mlp_bias\": true}",
        "{\"model_type\": \"gpt_neox\", \"num_hidden_layers\": 1, \"rotary_pct\": 0.25, \"use_parallel_residual\": false}",
        "{\"architectures\": [\"Qwen2ForSequenceClassification\"], \"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"id2label\":"
        " {\"0\": \"bad\", \"1\": \"good\"}, \"label2id\": {\"bad\": 0, \"good\": 1}, \"num_labels\": 2}",
    };
    enum { SEEDS = sizeof seeds / sizeof seeds[0] };
    size_t lengths[SEEDS];
    for (int i = 0; i < SEEDS; i++)
        lengths[i] = strlen(seeds[i]);
    mutate_run(seeds, lengths, SEEDS, seed, 30000);
}

/* Valid JSON in which any key may have any value: the mutations that get past the parser. */
static void known_keys_with_any_values_are_refused_or_whole(void **state)
{
    (void)state;
    static const char *const types[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3", "opt", "gpt_neox", "starcoder2", "gemma", "gemma2",
                                        "gemma3_text", "gemma3", "phi3", "olmo2", "olmo3", "smollm3", "granite", "ministral3", "mistral3",
                                        "seed_oss", "exaone4", "stablelm", "arcee", "nemotron", "glm4", "ernie4_5", "cohere", "cohere2",
                                        "gemma4_text", "gemma4", "qwen3_5_text", "qwen3_next", "qwen3_5_moe_text", "lfm2", "lfm2_moe",
                                        "granitemoehybrid", "bamba", "nemotron_h", "falcon_h1", "gpt_oss",
                                        "glm4_moe", "dots1", "ernie4_5_moe", "minimax_m2", "deepseek_v3", "deepseek_v2", "kimi_k2",
                                        "glm4_moe_lite"};
    static const char *const keys[] = {
        "n_embd", "n_layer", "n_head", "n_inner", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings", "n_positions", "rms_norm_eps", "rope_theta",
        "rope_scaling", "rope_parameters", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
        "attention_bias", "mlp_bias", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype",
        "initializer_range", "attn_pdrop", "original_max_position_embeddings", "partial_rotary_factor", "scale_attn_weights",
        "text_config", "ffn_dim", "word_embed_proj_dim", "init_std", "enable_bias", "rotary_pct", "rotary_emb_base",
        "use_parallel_residual",
        "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "sliding_window_pattern", "rope_local_base_freq",
        "no_rope_layers", "no_rope_layer_interval", "embedding_multiplier", "attention_multiplier", "residual_multiplier",
        "logits_scaling", "logit_scale", "use_qkv_bias", "attention_out_bias", "full_attn_idxs", "attn_layer_indices",
        "layers_block_type", "full_attention_interval", "conv_L_cache", "mamba_d_conv", "mamba_n_heads", "mamba_n_groups", "mamba_d_head",
        "mamba_expand", "mamba_d_state", "time_step_limit", "linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim",
        "linear_value_head_dim", "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v", "per_layer_config",
        "hidden_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp", "vocab_size_per_layer_input",
        "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok",
        "moe_intermediate_size", "shared_expert_intermediate_size", "n_group", "topk_group", "first_k_dense_replace", "num_dense_layers",
        "block_multiple_of", "block_ffn_dim_multiplier", "rotary_dim", "moe_layer_end_index", "position_embedding_type",
        "enable_moe_block", "top_k_experts", "hybrid_override_pattern", "mamba_num_heads", "n_groups", "time_step_min",
        "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rope_interleave",
        "mlp_layer_types", "mamba_d_ssm", "mlp_multipliers", "ssm_multipliers", "key_multiplier", "mamba_rms_norm",
        "moe_shared_expert_intermediate_size", "moe_latent_size"};
    static const char *const values[] = {
        "0", "1", "2", "3", "4", "7", "64", "128", "4096", "100000", "1000000000", "9223372036854775807", "-1", "-9223372036854775808",
        "1e300", "-1e300", "1e-300", "0.5", "1.0", "null", "true", "false", "\"\"", "\"float16\"", "[]", "[1]", "{}",
        "[\"full_attention\"]", "{\"rope_type\": \"linear\", \"factor\": 1e-3}", "{\"type\": \"llama3\", \"factor\": 8, "
        "\"low_freq_factor\": 1, \"high_freq_factor\": 4}", "{\"rope_theta\": 1}", "{\"rope_type\": []}",
        "{\"num_hidden_layers\": 1}", "{\"full_attention\": {}, \"sliding_attention\": {\"factor\": 2}}",
        "{\"type\": \"yarn\", \"factor\": 4}", "[\"linear_attention\"]", "[\"conv\"]", "[0, {\"__float__\": \"Infinity\"}]",
        "{\"0\": {\"head_dim\": 512}}", "{\"0\": {\"num_key_value_heads\": 3}}",
        "{\"rope_type\": \"dynamic\", \"factor\": 2}", "{\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]}"};
    enum { TYPES = sizeof types / sizeof types[0], KEYS = sizeof keys / sizeof keys[0], VALUES = sizeof values / sizeof values[0] };
    for (uint64_t round = 0; round < 40000; round++) {
        char json[2048];
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 1000, round, w);
        int n = snprintf(json, sizeof json, "{\"model_type\": \"%s\"", types[w[0] % TYPES]), pairs = 1 + (int)(w[1] % 6);
        bool layers_drawn = false;
        for (int i = 0; i < pairs; i++) {
            rng_words(seed, RNG_TEST, 1001 + (uint32_t)i, round, w);
            const char *key = keys[w[0] % KEYS];
            layers_drawn |= !strcmp(key, "num_hidden_layers");
            n += snprintf(json + n, sizeof json - (size_t)n, ", \"%s\": %s", key, values[w[1] % VALUES]);
        }
        n += snprintf(json + n, sizeof json - (size_t)n, "%s}", layers_drawn ? "" : ", \"num_hidden_layers\": 1");
        assert_true(n < (int)sizeof json);
        LLVMFuzzerTestOneInput((const uint8_t *)json, (size_t)n);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_configs_are_refused_or_whole),
        cmocka_unit_test(known_keys_with_any_values_are_refused_or_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
