#include "model/support.h"

#include <math.h>

#define SMALL ", 'num_hidden_layers': 3, 'hidden_size': 96, 'num_attention_heads': 6, 'vocab_size': 500, 'pad_token_id': 3}"
#define SMALL_GROUPED ", 'intermediate_size': 200, 'num_key_value_heads': 2" SMALL

/* Counts by Transformers 5.23 and, from OPT on, 5.24: sum(p.numel() for p in AutoModelForCausalLM.from_config(c).parameters()) */
#define E2B_FIVE "'sliding_attention', 'sliding_attention', 'sliding_attention', 'sliding_attention', 'full_attention'"
#define E2B_LAYERS E2B_FIVE ", " E2B_FIVE ", " E2B_FIVE ", " E2B_FIVE ", " E2B_FIVE ", " E2B_FIVE ", " E2B_FIVE

static const struct { const char *json; int64_t parameters; } counts[] = {
    {"{'model_type': 'gpt2'}", 124439808},
    {"{'model_type': 'llama'}", 6738415616},
    {"{'model_type': 'mistral'}", 7241732096},
    {"{'model_type': 'qwen2'}", 12049846272},
    {"{'model_type': 'qwen3'}", 12049461248},
    {"{'model_type': 'gpt2', 'n_embd': 60, 'n_layer': 3, 'n_head': 5, 'n_inner': 100, 'vocab_size': 999, 'n_positions': 33,"
     " 'tie_word_embeddings': false}", 203100},
    {"{'model_type': 'gpt2', 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 2,"
     " 'max_position_embeddings': 10, 'vocab_size': 100}", 107136},
    {"{'model_type': 'llama', 'hidden_size': 96, 'intermediate_size': 200, 'num_hidden_layers': 3, 'num_attention_heads': 6,"
     " 'num_key_value_heads': 2, 'vocab_size': 500, 'attention_bias': true, 'mlp_bias': true, 'head_dim': 20}", 364008},
    {"{'model_type': 'llama', 'hidden_size': 96, 'intermediate_size': 200, 'num_hidden_layers': 3, 'num_attention_heads': 6,"
     " 'vocab_size': 500, 'tie_word_embeddings': true}", 332064},
    {"{'model_type': 'mistral', 'hidden_size': 96, 'intermediate_size': 200, 'num_hidden_layers': 3,"
     " 'num_attention_heads': 16, 'vocab_size': 500}", 352416},
    {"{'model_type': 'qwen2', 'hidden_size': 96, 'intermediate_size': 200, 'num_hidden_layers': 3, 'num_attention_heads': 6,"
     " 'num_key_value_heads': 3, 'vocab_size': 500}", 352992},
    {"{'model_type': 'qwen2', 'hidden_size': 64, 'intermediate_size': 200, 'num_hidden_layers': 1,"
     " 'num_attention_heads': 32, 'vocab_size': 500, 'tie_word_embeddings': true}", 87168},
    {"{'model_type': 'qwen3', 'hidden_size': 96, 'intermediate_size': 200, 'num_hidden_layers': 3, 'num_attention_heads': 6,"
     " 'num_key_value_heads': 3, 'vocab_size': 500, 'attention_bias': true}", 938688},
    {"{'model_type': 'qwen3', 'hidden_size': 96, 'intermediate_size': 200, 'num_hidden_layers': 3, 'num_attention_heads': 6,"
     " 'num_key_value_heads': 3, 'vocab_size': 500, 'head_dim': 10, 'tie_word_embeddings': true}", 273372},
    {"{'model_type': 'opt'}", 125239296},
    {"{'model_type': 'gemma'}", 8537680896},
    {"{'model_type': 'gemma2'}", 2614341888},
    {"{'model_type': 'gemma3_text'}", 2628658432},
    {"{'model_type': 'phi3'}", 3821079552},
    {"{'model_type': 'gpt_neox'}", 20554567680},
    {"{'model_type': 'olmo2'}", 6888624128},
    {"{'model_type': 'olmo3'}", 6888624128},
    {"{'model_type': 'smollm3'}", 3075098624},
    {"{'model_type': 'granite'}", 6738415616},
    {"{'model_type': 'ministral3'}", 8489553920},
    {"{'model_type': 'starcoder2'}", 3030371328},
    {"{'model_type': 'seed_oss', 'hidden_size': 5120}", 36151104512},
    {"{'model_type': 'exaone4', 'hidden_size': 5120, 'num_hidden_layers': 64, 'num_attention_heads': 40, 'num_key_value_heads': 8,"
     " 'intermediate_size': 27392, 'head_dim': 128}", 32003216384},
    {"{'model_type': 'exaone4', 'hidden_size': 2048, 'num_hidden_layers': 30, 'num_key_value_heads': 8,"
     " 'intermediate_size': 4096, 'head_dim': 64, 'tie_word_embeddings': true}", 1279391488},
    {"{'model_type': 'stablelm'}", 2795443200},
    {"{'model_type': 'stablelm', 'hidden_size': 2048, 'num_hidden_layers': 24, 'intermediate_size': 5632, 'vocab_size': 100352,"
     " 'use_qkv_bias': true}", 1644515328},
    {"{'model_type': 'arcee', 'num_hidden_layers': 36, 'num_attention_heads': 20, 'num_key_value_heads': 4, 'head_dim': 128,"
     " 'vocab_size': 128004}", 4619184640},
    {"{'model_type': 'nemotron', 'hidden_size': 3072, 'num_attention_heads': 24, 'num_key_value_heads': 8, 'head_dim': 128,"
     " 'intermediate_size': 9216}", 4190509056},
    {"{'model_type': 'glm4'}", 9400279040},
    {"{'model_type': 'ernie4_5'}", 360748032},
    {"{'model_type': 'cohere', 'num_key_value_heads': 64}", 34980831232},
    {"{'model_type': 'cohere2', 'hidden_size': 4096, 'num_hidden_layers': 32, 'num_attention_heads': 32, 'num_key_value_heads': 8,"
     " 'intermediate_size': 14336, 'head_dim': 128}", 8028033024},
    {"{'model_type': 'opt', 'ffn_dim': 200, 'max_position_embeddings': 33, 'enable_bias': false,"
     " 'tie_word_embeddings': false" SMALL, 326496},
    {"{'model_type': 'opt', 'ffn_dim': 200, 'max_position_embeddings': 33" SMALL, 280536},
    {"{'model_type': 'gemma', 'attention_bias': true" SMALL_GROUPED, 1409088},
    {"{'model_type': 'gemma2', 'head_dim': 20, 'tie_word_embeddings': false" SMALL_GROUPED, 362208},
    {"{'model_type': 'gemma3_text', 'head_dim': 20, 'attention_bias': true" SMALL_GROUPED, 315216},
    {"{'model_type': 'gemma4_text', 'hidden_size': 2816, 'intermediate_size': 2112, 'moe_intermediate_size': 704,"
     " 'num_attention_heads': 16, 'num_key_value_heads': 8, 'num_global_key_value_heads': 2, 'attention_k_eq_v': true,"
     " 'hidden_size_per_layer_input': 0, 'enable_moe_block': true, 'num_experts': 128, 'top_k_experts': 8}", 25233141790},
    {"{'model_type': 'gemma4_text'}", 5077177886},
    {"{'model_type': 'gemma4_text', 'hidden_size': 1536, 'intermediate_size': 6144, 'num_hidden_layers': 35, 'num_key_value_heads': 1,"
     " 'num_kv_shared_layers': 20, 'use_double_wide_mlp': true, 'layer_types': [" E2B_LAYERS "]}", 4628569379},
    {"{'model_type': 'gemma4_text', 'hidden_size': 2560, 'intermediate_size': 10240, 'num_hidden_layers': 42, 'num_key_value_heads': 2,"
     " 'num_kv_shared_layers': 18}", 7463013418},
    {"{'model_type': 'phi3'" SMALL_GROUPED, 343200},
    {"{'model_type': 'gpt_neox', 'intermediate_size': 200" SMALL, 325176},
    {"{'model_type': 'gpt_neox', 'intermediate_size': 200, 'attention_bias': false, 'tie_word_embeddings': true" SMALL, 276024},
    {"{'model_type': 'olmo2', 'attention_bias': true" SMALL_GROUPED, 344352},
    {"{'model_type': 'olmo3'" SMALL_GROUPED, 343584},
    {"{'model_type': 'smollm3', 'mlp_bias': true" SMALL_GROUPED, 296688},
    {"{'model_type': 'smollm3', 'attention_bias': true, 'num_key_value_heads': null, 'intermediate_size': 200" SMALL, 333216},
    {"{'model_type': 'granite', 'attention_bias': true, 'mlp_bias': true" SMALL_GROUPED, 345456},
    {"{'model_type': 'ministral3', 'head_dim': 20" SMALL_GROUPED, 361632},
    {"{'model_type': 'starcoder2', 'use_bias': false, 'tie_word_embeddings': false" SMALL_GROUPED, 286272},
    {"{'model_type': 'seed_oss'" SMALL_GROUPED, 863136},
    {"{'model_type': 'seed_oss', 'attention_out_bias': true, 'mlp_bias': true, 'attention_bias': false, 'head_dim': null"
     SMALL_GROUPED, 344976},
    {"{'model_type': 'exaone4'" SMALL_GROUPED, 343296},
    {"{'model_type': 'stablelm', 'use_qkv_bias': true" SMALL_GROUPED, 344352},
    {"{'model_type': 'arcee', 'attention_bias': true, 'mlp_bias': true" SMALL_GROUPED, 287256},
    {"{'model_type': 'nemotron', 'tie_word_embeddings': true" SMALL_GROUPED, 238272},
    {"{'model_type': 'glm4', 'attention_bias': false, 'head_dim': 20" SMALL_GROUPED, 362208},
    {"{'model_type': 'ernie4_5', 'use_bias': true, 'head_dim': null, 'tie_word_embeddings': false" SMALL_GROUPED, 345456},
    {"{'model_type': 'cohere', 'attention_bias': true, 'tie_word_embeddings': false" SMALL_GROUPED, 343680},
    {"{'model_type': 'cohere2'" SMALL_GROUPED, 294912},
    {"{'model_type': 'falcon_h1', 'hidden_size': 3072, 'intermediate_size': 12288, 'num_hidden_layers': 44, 'num_attention_heads': 12,"
     " 'num_key_value_heads': 2, 'head_dim': 128, 'mamba_d_ssm': 3072, 'mamba_n_heads': 24, 'mamba_d_head': 128, 'vocab_size': 130048}",
     7585513568},
    {"{'model_type': 'falcon_h1', 'mamba_n_heads': 16}", 8500270592},
    {"{'model_type': 'falcon_h1', 'hidden_size': 96, 'intermediate_size': 200, 'num_hidden_layers': 3, 'num_attention_heads': 6,"
     " 'num_key_value_heads': 2, 'vocab_size': 500, 'mamba_d_ssm': null, 'mamba_n_heads': 8, 'mamba_n_groups': 4, 'mamba_d_state': 16,"
     " 'mamba_rms_norm': true, 'mamba_conv_bias': false, 'tie_word_embeddings': true}", 504744},
    /* With the corrections of the choice: Nemotron 3 Nano and Super, DeepSeek V3, Kimi K2, Moonlight */
    {"{'model_type': 'nemotron_h', 'hidden_size': 2688, 'num_key_value_heads': 2, 'mamba_num_heads': 64, 'n_routed_experts': 128,"
     " 'num_experts_per_tok': 6, 'moe_intermediate_size': 1856, 'moe_shared_expert_intermediate_size': 3712,"
     " 'hybrid_override_pattern': 'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME'}", 31577940288},
    {"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'ME*-'}", 1968355720},
    {"{'model_type': 'nemotron_h', 'hidden_size': 64, 'hybrid_override_pattern': 'M-*E', 'intermediate_size': 150, 'vocab_size': 1000,"
     " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 16, 'mamba_num_heads': 8, 'mamba_head_dim': 16, 'n_groups': 2,"
     " 'ssm_state_size': 16, 'n_routed_experts': 6, 'moe_intermediate_size': 24, 'moe_shared_expert_intermediate_size': 40,"
     " 'mlp_bias': true}", 214364},
    {"{'model_type': 'nemotron_h', 'num_key_value_heads': 2, 'n_routed_experts': 512, 'num_experts_per_tok': 22, 'moe_latent_size': 1024,"
     " 'moe_intermediate_size': 2688, 'moe_shared_expert_intermediate_size': 5376, 'num_nextn_predict_layers': 1,"
     " 'mtp_hybrid_override_pattern': '*E', 'hybrid_override_pattern':"
     " 'MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME'}", 120668707840},
    {"{'model_type': 'nemotron_h', 'hidden_size': 64, 'hybrid_override_pattern': 'M-*E', 'intermediate_size': 150, 'vocab_size': 1000,"
     " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 16, 'mamba_num_heads': 8, 'mamba_head_dim': 16, 'n_groups': 2,"
     " 'ssm_state_size': 16, 'n_routed_experts': 6, 'moe_intermediate_size': 24, 'moe_shared_expert_intermediate_size': 40,"
     " 'moe_latent_size': 20, 'mlp_bias': true}", 204336},
    {"{'model_type': 'deepseek_v3'}", 671026419200},
    {"{'model_type': 'glm4_moe_lite'}", 29943393920},
    {"{'model_type': 'deepseek_v2', 'hidden_size': 2048, 'intermediate_size': 10944, 'moe_intermediate_size': 1408,"
     " 'num_hidden_layers': 27, 'num_attention_heads': 16, 'num_experts_per_tok': 6, 'first_k_dense_replace': 1, 'q_lora_rank': null}",
     15706484224},
    {"{'model_type': 'kimi_k2', 'vocab_size': 163840, 'n_routed_experts': 384, 'num_attention_heads': 64, 'num_key_value_heads': 64,"
     " 'first_k_dense_replace': 1, 'n_group': 1, 'topk_group': 1}", 1026408232448},
    {"{'model_type': 'deepseek_v3', 'vocab_size': 163840, 'hidden_size': 2048, 'intermediate_size': 11264, 'moe_intermediate_size': 1408,"
     " 'num_hidden_layers': 27, 'num_attention_heads': 16, 'num_key_value_heads': 16, 'n_shared_experts': 2, 'n_routed_experts': 64,"
     " 'q_lora_rank': null, 'num_experts_per_tok': 6, 'first_k_dense_replace': 1, 'n_group': 1, 'topk_group': 1}", 15960110208},
    {"{'model_type': 'deepseek_v3', 'vocab_size': 300, 'hidden_size': 48, 'num_hidden_layers': 3, 'num_attention_heads': 4,"
     " 'num_key_value_heads': 4, 'intermediate_size': 100, 'moe_intermediate_size': 12, 'n_routed_experts': 8, 'num_experts_per_tok': 2,"
     " 'n_group': 2, 'topk_group': 1, 'first_k_dense_replace': 1, 'q_lora_rank': 20, 'kv_lora_rank': 12, 'qk_nope_head_dim': 10,"
     " 'qk_rope_head_dim': 6, 'v_head_dim': 9, 'attention_bias': true, 'tie_word_embeddings': true}", 78610},
};

static void check_structure(const model *m)
{
    int64_t sum = 0;
    int last = 0;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        int64_t at = 0;
        assert_true(p->block >= last);
        assert_int_equal(m->blocks[p->block].param_of_role[p->role], i);
        for (int k = 0; k < p->parts; k++) {
            assert_int_equal(p->part[k].row0, at);
            assert_true(p->part[k].rows > 0);
            at += p->part[k].rows;
        }
        assert_int_equal(at, p->part[0].vector ? p->cols : p->rows);
        assert_int_equal(p->decay, !p->part[0].vector);
        assert_int_equal(p->trainable, p->kind->use != USE_CORRECTION);
        sum += p->rows * p->cols;
        last = p->block;
    }
    assert_int_equal(sum, m->parameters);
    assert_int_equal(m->blocks_n, m->config.layers + 2);
    const block *head = &m->blocks[m->blocks_n - 1];
    assert_int_equal(head->param_of_role[PARAM_HEAD] >= 0, !m->config.tied);
    assert_int_equal(head->param_of_role[PARAM_TOKENS], m->config.tied ? m->blocks[0].param_of_role[PARAM_TOKENS] : -1);
}

static void missing_keys_mean_the_defaults_of_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        model *m = config_open(counts[i].json);
        if (m->parameters != counts[i].parameters)
            fail_msg("%s: %lld parameters", counts[i].json, (long long)m->parameters);
        check_structure(m);
        model_close(m);
    }
    model *m = config_open("{'model_type': 'gpt2'}");
    assert_int_equal(m->config.activation, ACT_GELU_TANH);
    assert_true(m->config.norm_eps == 1e-5f && m->config.tied && m->config.bos == 50256 && m->config.eos == 50256);
    assert_int_equal(m->config.stored_type, PT_F32);
    model_close(m);
    m = config_open("{'model_type': 'llama'}");
    assert_true(m->config.norm_eps == 1e-6f && !m->config.tied && m->config.bos == 1 && m->config.eos == 2);
    assert_true(m->config.rope[0].theta == 10000 && m->config.max_positions == 2048);
    model_close(m);
}

static void attention_scale_follows_the_keys_of_gpt2(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'gpt2', 'scale_attn_by_inverse_layer_idx': true}");
    assert_true(m->config.attention_scale == 0.125f);
    assert_true(m->config.layer_scale[0] == 1 && m->config.layer_scale[3] == 0.25f);
    model_close(m);
    m = config_open("{'model_type': 'gpt2', 'scale_attn_weights': false}");
    assert_true(m->config.attention_scale == 1 && m->config.layer_scale[3] == 1);
    model_close(m);
    m = config_open("{'model_type': 'gpt2', 'scale_attn_weights': null, 'tie_word_embeddings': null, 'torch_dtype': 'float64'}");
    assert_true(m->config.attention_scale == 1 && !m->config.tied && m->config.stored_type == PT_F32);
    model_close(m);
}

static void both_generations_of_config_mean_the_same(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"{'model_type': 'llama', 'rope_theta': 500000.0, 'torch_dtype': 'bfloat16', 'rope_scaling': {'rope_type': 'llama3',"
         " 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192}}",
         "{'model_type': 'llama', 'dtype': 'bfloat16', 'rope_parameters': {'rope_type': 'llama3', 'rope_theta': 500000.0,"
         " 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192}}"},
        {"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': 2}}",
         "{'model_type': 'llama', 'rope_parameters': {'rope_type': 'linear', 'rope_theta': 10000, 'factor': 2.0}}"},
        {"{'model_type': 'qwen2', 'rope_theta': 1e6, 'rope_scaling': null}",
         "{'architectures': ['Qwen2ForCausalLM'], 'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000000}}"},
        {"{'model_type': 'qwen3', 'num_hidden_layers': 3, 'sliding_window': 9, 'use_sliding_window': true,"
         " 'max_window_layers': 1}",
         "{'model_type': 'qwen3', 'num_hidden_layers': 3, 'sliding_window': 9, 'use_sliding_window': true,"
         " 'layer_types': ['full_attention', 'sliding_attention', 'sliding_attention']}"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        model *a = config_open(pairs[i][0]), *b = config_open(pairs[i][1]);
        assert_memory_equal(&a->config, &b->config, sizeof a->config);
        model_close(a);
        model_close(b);
    }
}

static void check_windows(const char *json, int n, const int64_t *windows)
{
    model *m = config_open(json);
    assert_int_equal(m->config.layers, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(m->config.window[i], windows[i]);
    model_close(m);
}

static void sliding_windows_reach_the_layers_that_transformers_gives_them(void **state)
{
    (void)state;
#define MISTRAL "{'model_type': 'mistral', 'num_hidden_layers': 2"
    check_windows(MISTRAL "}", 2, (int64_t[]){4096, 4096});
    check_windows(MISTRAL ", 'sliding_window': null}", 2, (int64_t[]){0, 0});
    check_windows(MISTRAL ", 'sliding_window': 5}", 2, (int64_t[]){5, 5});
    check_windows(MISTRAL ", 'sliding_window_size': 5}", 2, (int64_t[]){5, 5});
    check_windows(MISTRAL ", 'sliding_window': 5, 'layer_types': ['sliding_attention', 'sliding_attention']}", 2,
                  (int64_t[]){5, 5});
#define QWEN "{'model_type': 'qwen2', 'num_hidden_layers': 3"
    check_windows(QWEN ", 'sliding_window': 5, 'max_window_layers': 1}", 3, (int64_t[]){0, 0, 0});
    check_windows(QWEN ", 'sliding_window': 5, 'max_window_layers': 1, 'use_sliding_window': true}", 3, (int64_t[]){0, 5, 5});
    check_windows(QWEN ", 'sliding_window': 5, 'use_sliding_window': true}", 3, (int64_t[]){0, 0, 0});
    check_windows(QWEN ", 'use_sliding_window': true, 'max_window_layers': 2}", 3, (int64_t[]){0, 0, 4096});
    check_windows(QWEN ", 'sliding_window': null, 'use_sliding_window': true, 'max_window_layers': 0}", 3,
                  (int64_t[]){0, 0, 0});
    check_windows(QWEN ", 'sliding_window': 5, 'use_sliding_window': true, 'max_window_layers': 1,"
                       " 'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention']}", 3,
                  (int64_t[]){5, 0, 5});
    check_windows("{'model_type': 'llama', 'num_hidden_layers': 1, 'sliding_window': null,"
                  " 'layer_types': ['full_attention']}", 1, (int64_t[]){0});
    check_windows("{'model_type': 'gemma2', 'num_hidden_layers': 4, 'sliding_window': 5}", 4, (int64_t[]){5, 0, 5, 0});
#define GEMMA3 "{'model_type': 'gemma3_text', 'num_hidden_layers': "
    check_windows(GEMMA3 "7}", 7, (int64_t[]){4096, 4096, 4096, 4096, 4096, 0, 4096});
    check_windows(GEMMA3 "4, 'sliding_window_pattern': 2, 'sliding_window': 5}", 4, (int64_t[]){5, 0, 5, 0});
    check_windows(GEMMA3 "4, '_sliding_window_pattern': 2, 'sliding_window': 5}", 4, (int64_t[]){5, 5, 5, 5});
    check_windows("{'model_type': 'olmo3', 'num_hidden_layers': 5, 'sliding_window': 7}", 5, (int64_t[]){7, 7, 7, 0, 7});
    check_windows("{'model_type': 'phi3', 'num_hidden_layers': 2}", 2, (int64_t[]){0, 0});
    check_windows("{'model_type': 'phi3', 'num_hidden_layers': 2, 'sliding_window': 5}", 2, (int64_t[]){5, 5});
#define SMOLLM3 "{'model_type': 'smollm3', 'num_hidden_layers': "
    check_windows(SMOLLM3 "5, 'use_sliding_window': true, 'sliding_window': 5}", 5, (int64_t[]){0, 0, 0, 5, 0});
    check_windows(SMOLLM3 "5, 'sliding_window': 5}", 5, (int64_t[]){0, 0, 0, 0, 0});
#define EXAONE4 "{'model_type': 'exaone4', 'num_hidden_layers': "
    check_windows(EXAONE4 "5, 'sliding_window': 5}", 5, (int64_t[]){5, 5, 5, 0, 5});
    check_windows(EXAONE4 "3, 'sliding_window': 5, 'sliding_window_pattern': 2}", 3, (int64_t[]){5, 0, 5});
    check_windows(EXAONE4 "2, 'sliding_window': 5, 'sliding_window_pattern': 'LG', 'layer_types': ['full_attention',"
                  " 'sliding_attention']}", 2, (int64_t[]){0, 5});
    check_windows(EXAONE4 "2, 'sliding_window': null}", 2, (int64_t[]){0, 0});
#define COHERE2 "{'model_type': 'cohere2', 'num_hidden_layers': "
    check_windows(COHERE2 "5}", 5, (int64_t[]){4096, 4096, 4096, 0, 4096});
    check_windows(COHERE2 "3, 'sliding_window': 5, 'sliding_window_pattern': 3}", 3, (int64_t[]){5, 5, 0});
    check_windows("{'model_type': 'ministral3', 'num_hidden_layers': 2, 'sliding_window': 5}", 2, (int64_t[]){5, 5});
    check_windows("{'model_type': 'mistral3', 'text_config': {'num_hidden_layers': 2}}", 2, (int64_t[]){4096, 4096});
}

static void check_layer_ropes(const char *json, int n, const int *ropes)
{
    model *m = config_open(json);
    assert_int_equal(m->config.layers, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(m->config.layer_rope[i], ropes[i]);
    model_close(m);
}

static void layers_turn_by_the_rope_that_transformers_gives_them(void **state)
{
    (void)state;
    check_layer_ropes(SMOLLM3 "5}", 5, (int[]){0, 0, 0, -1, 0});
    check_layer_ropes(SMOLLM3 "4, 'no_rope_layer_interval': 2}", 4, (int[]){0, -1, 0, -1});
    check_layer_ropes(SMOLLM3 "3, 'no_rope_layers': [0, 1, 1]}", 3, (int[]){-1, 0, 0});
    check_layer_ropes(GEMMA3 "7}", 7, (int[]){1, 1, 1, 1, 1, 0, 1});
    check_layer_ropes(EXAONE4 "5}", 5, (int[]){0, 0, 0, -1, 0});
    check_layer_ropes(EXAONE4 "2, 'layer_types': ['full_attention', 'full_attention']}", 2, (int[]){-1, -1});
    check_layer_ropes(EXAONE4 "4, 'sliding_window': null, 'sliding_window_pattern': null}", 4, (int[]){0, 0, 0, 0});
    check_layer_ropes(COHERE2 "5, 'rotary_pct': 1.0}", 5, (int[]){0, 0, 0, -1, 0});
    check_layer_ropes("{'model_type': 'opt', 'num_hidden_layers': 2}", 2, (int[]){-1, -1});
    static const struct { const char *json; double full, factor, local; } thetas[] = {
        {GEMMA3 "2}", 1e6, 1, 1e4},
        {GEMMA3 "2, 'rope_theta': 2e6, 'rope_local_base_freq': 3e4, 'rope_scaling': {'rope_type': 'linear', 'factor': 8}}", 2e6, 8, 3e4},
        {GEMMA3 "2, 'rope_parameters': {'full_attention': {'rope_type': 'linear', 'rope_theta': 5e5, 'factor': 2.0}}}", 5e5, 2, 1e4},
        {"{'model_type': 'olmo3'}", 5e5, 1, 5e5},
        {"{'model_type': 'olmo3', 'rope_theta': 7e4, 'rope_scaling': {'rope_type': 'yarn', 'factor': 8,"
         " 'original_max_position_embeddings': 64}}", 7e4, 8, 5e5},
    };
    for (size_t i = 0; i < sizeof thetas / sizeof thetas[0]; i++) {
        model *m = config_open(thetas[i].json);
        assert_int_equal(m->config.ropes_n, 2);
        assert_true(m->config.rope[0].theta == thetas[i].full && m->config.rope[0].factor == thetas[i].factor);
        assert_true(m->config.rope[1].theta == thetas[i].local && m->config.rope[1].kind == ROPE_PLAIN);
        model_close(m);
    }
    model *m = config_open("{'model_type': 'ministral3', 'rope_theta': 3e4}"); /* beside the class's own dict it says nothing */
    assert_true(m->config.rope[0].kind == ROPE_YARN && m->config.rope[0].theta == 1e6 && m->config.rope[0].factor == 16);
    assert_true(m->config.query_rope == 1 && m->config.rope[1].scaling_beta == 0.1);
    model_close(m);
}

/* The text part's keys count, but for whether tables are tied and what the weights are stored in. */
static void the_text_part_of_a_multimodal_model_is_read(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'gemma3', 'dtype': 'bfloat16', 'text_config': {'num_hidden_layers': 2, 'dtype': 'float16',"
                           " 'tie_word_embeddings': false, 'final_logit_softcapping': 30.0}, 'vision_config': {'hidden_size': 1}}");
    assert_true(m->config.multimodal && m->config.tied && m->config.layers == 2 && m->config.stored_type == PT_BF16);
    assert_true(m->config.logit_softcap == 0); /* the multimodal class does not read it */
    assert_string_equal(m->config.model_type, "gemma3_text");
    model_close(m);
    m = config_open("{'model_type': 'mistral3', 'tie_word_embeddings': false, 'text_config': {'torch_dtype': 'float16', 'model_type':"
                    " 'ministral3', 'num_hidden_layers': 1}}");
    assert_true(m->config.multimodal && !m->config.tied && m->config.stored_type == PT_F16);
    assert_string_equal(m->config.model_type, "ministral3");
    model_close(m);
    m = config_open("{'model_type': 'mistral3', 'text_config': {'num_hidden_layers': 1}}");
    assert_string_equal(m->config.model_type, "mistral");
    model_close(m);
}

#define GEMMA4                                                                                                                        \
    "{'model_type': 'gemma4_text', 'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 8, 'num_hidden_layers': 4, "         \
    "'hidden_size_per_layer_input': 0, 'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention']"

/* Transformers caps the logits of Gemma 4 in its multimodal class, too, and does not tie tables of Qwen 3.5 by default. */
static void larger_models_have_their_own_rules(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'gemma4', 'text_config': {'num_hidden_layers': 1, 'hidden_size_per_layer_input': 0, "
                           "'final_logit_softcapping': 30.0}}");
    assert_true(m->config.multimodal && m->config.tied && m->config.logit_softcap == 30);
    model_close(m);
    m = config_open("{'model_type': 'qwen3_5', 'text_config': {'num_hidden_layers': 1, 'tie_word_embeddings': true}}");
    assert_true(m->config.multimodal && !m->config.tied);
    model_close(m);
}

static void heads_of_layers_without_a_window_are_those_of_transformers(void **state)
{
    (void)state;
    static const struct { const char *keys; int64_t dim, kv; } cases[] = {
        {"'num_global_key_value_heads': 2", 512, 4}, {"'num_global_key_value_heads': 2, 'attention_k_eq_v': true", 512, 2},
        {"'per_layer_config': null", 8, 4}, {"'per_layer_config': {}", 8, 4},
        {"'per_layer_config': {'3': {'head_dim': 16}, '1': {'head_dim': 16}, '0': {}}", 16, 4},
        {"'per_layer_config': {'1': {'num_key_value_heads': 2}, '3': {'num_key_value_heads': 2}}", 8, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[1024];
        snprintf(json, sizeof json, GEMMA4 ", %s}", cases[i].keys);
        model *m = config_open(json);
        const attention_heads full = model_heads(&m->config, 3), sliding = model_heads(&m->config, 2);
        if (full.dim != cases[i].dim || full.kv_heads != cases[i].kv || sliding.dim != 8 || sliding.kv_heads != 4)
            fail_msg("%s: %lld, %lld", cases[i].keys, (long long)full.dim, (long long)full.kv_heads);
        model_close(m);
    }
}

static void layers_with_a_state_are_those_of_either_key(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'granitemoehybrid', 'num_hidden_layers': 3, 'num_local_experts': 0, "
                           "'layers_block_type': ['mamba', 'attention', 'linear_attention']}");
    assert_true(m->config.mixer[0] == MIXER_MAMBA && m->config.mixer[1] == MIXER_ATTENTION && m->config.mixer[2] == MIXER_MAMBA);
    model_close(m);
    m = config_open("{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-*', "
                    "'layers_block_type': ['mlp', 'mamba', 'full_attention', 'moe']}");
    assert_true(m->config.layers == 4 && m->config.mixer[0] == MIXER_NONE && m->config.mixer[1] == MIXER_MAMBA);
    assert_true(m->config.mixer[3] == MIXER_NONE && m->config.sparse[3] && !m->config.sparse[0]);
    model_close(m);
}

static void dropout_is_announced_once_and_with_its_values(void **state)
{
    (void)state;
    static const struct { const char *json, *said; } cases[] = {
        {"{'model_type': 'gpt2', 'attn_pdrop': 0.0, 'embd_pdrop': 0.25, 'resid_pdrop': 0}", "embd_pdrop 0.25"},
        {"{'model_type': 'gpt2'}", "attn_pdrop 0.1 by default"},
        {"{'model_type': 'llama', 'attention_dropout': 0.5}", "attention_dropout 0.5"},
        {"{'model_type': 'seed_oss', 'attention_dropout': 0}", "residual_dropout 0.1 by default"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        notices taken = {0};
        model *m;
        pt_error e = {0};
        assert_int_equal(config_try(cases[i].json, &taken, &m, &e), 0);
        assert_int_equal(taken.n, 1);
        assert_true(m->config.dropout);
        assert_non_null(strstr(taken.text, cases[i].said));
        assert_non_null(strstr(taken.text, "config.json"));
        model_close(m);
    }
    static const char *const silent[] = {
        "{'model_type': 'gpt2', 'attn_pdrop': 0.0, 'embd_pdrop': 0.0, 'resid_pdrop': 0, 'summary_first_dropout': 0.1}",
        "{'model_type': 'llama'}", "{'model_type': 'qwen2', 'attention_dropout': 0.0, 'classifier_dropout': 0.3}"};
    for (int i = 0; i < 3; i++) {
        notices taken = {0};
        model *m;
        assert_int_equal(config_try(silent[i], &taken, &m, NULL), 0);
        assert_int_equal(taken.n, 0);
        assert_false(m->config.dropout);
        model_close(m);
    }
}

static void ids_may_be_lists_null_or_out_of_range(void **state)
{
    (void)state;
    static const struct { const char *json; int64_t bos, eos, padding; } cases[] = {
        {"{'model_type': 'llama', 'eos_token_id': [7, 8, 9], 'bos_token_id': null, 'pad_token_id': 0}", -1, 7, 0},
        {"{'model_type': 'llama', 'eos_token_id': [], 'pad_token_id': -1}", 1, -1, 31999},
        {"{'model_type': 'llama', 'vocab_size': 10, 'pad_token_id': -10}", 1, 2, 0},
        {"{'model_type': 'llama', 'vocab_size': 10, 'pad_token_id': -11}", 1, 2, -1},
        {"{'model_type': 'llama', 'vocab_size': 10, 'pad_token_id': null}", 1, 2, -1},
        {"{'model_type': 'gpt2', 'vocab_size': 100, 'pad_token_id': 3}", -1, -1, -1},
        {"{'model_type': 'qwen2', 'eos_token_id': 5}", -1, 5, -1},
        {"{'model_type': 'llama', 'eos_token_id': ['x'], 'bos_token_id': 'x'}", -1, -1, -1},
        {"{'model_type': 'llama', 'vocab_size': 10, 'bos_token_id': 10, 'eos_token_id': 9}", -1, 9, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        model *m = config_open(cases[i].json);
        assert_int_equal(m->config.bos, cases[i].bos);
        assert_int_equal(m->config.eos, cases[i].eos);
        assert_int_equal(m->config.padding, cases[i].padding);
        model_close(m);
    }
}

static void keys_that_change_nothing_are_let_through(void **state)
{
    (void)state;
    static const char *const fine[] = {
        "{'model_type': 'gpt2', 'reorder_and_upcast_attn': true, 'add_cross_attention': false, 'n_ctx': 7, 'pruned_heads': {}}",
        "{'model_type': 'llama', 'pretraining_tp': 4, 'rope_interleaved': false, 'partial_rotary_factor': 1.0}",
        "{'model_type': 'llama', 'quantization_config': null, 'attn_logit_softcapping': null, 'use_sliding_window': false,"
        " 'residual_multiplier': 1.0, 'num_experts': 0, 'rope_scaling': null, 'property': 5, 'is_encoder_decoder': false}",
        "{'model_type': 'qwen2', 'attention_bias': false, 'mask_value': -10000, 'tokenizer': 'x'}",
        "{'model_type': 'llama', 'rope_scaling': {'rope_type': 'default', 'original_max_position_embeddings': 8, 'factor': null}}",
        "{'model_type': 'llama', 'hidden_act': 'swish', 'dtype': 'torch.float16', 'hidden_size': 64.0, 'num_attention_heads': 8}",
    };
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
        model_close(config_open(fine[i]));
}

/* Each names the file, and what is given here. */
static const struct { const char *json, *key, *value; } refused[] = {
    {"{'hidden_size': 64}", "model_type", "gpt2, llama"},
    {"{'architectures': ['BloomForCausalLM']}", "model_type", "BloomForCausalLM"},
    {"{'architectures': [3]}", "model_type", "missing"},
    {"{'architectures': 'LlamaForCausalLM'}", "architectures", "a string"},
    {"{'model_type': 'gemma3n'}", "model_type", "gemma3n"},
    {"{'model_type': 7}", "model_type", "an integer"},
    {"[1]", "config.json", "a list"},
    {"{'model_type': 'llama', 'hidden_size': NaN}", "config.json:1:", "not valid JSON"},
    {"{'model_type': 'llama', 'hidden_size': '64'}", "hidden_size", "a string"},
    {"{'model_type': 'llama', 'hidden_size': 64.5}", "hidden_size", "fraction"},
    {"{'model_type': 'llama', 'hidden_size': 0}", "hidden_size", "0"},
    {"{'model_type': 'llama', 'hidden_size': -64}", "hidden_size", "-64"},
    {"{'model_type': 'llama', 'num_hidden_layers': 1000000000000000000}", "num_hidden_layers", "1000000000000000000"},
    {"{'model_type': 'llama', 'num_hidden_layers': 1e30}", "num_hidden_layers", "1e+30"},
    {"{'model_type': 'llama', 'num_hidden_layers': 99999999999999999999999}", "num_hidden_layers", "1e+23"},
    {"{'model_type': 'llama', 'num_attention_heads': 0}", "num_attention_heads", "0"},
    {"{'model_type': 'llama', 'num_attention_heads': 33}", "hidden_size", "33"},
    {"{'model_type': 'llama', 'num_key_value_heads': 5}", "num_key_value_heads", "5"},
    {"{'model_type': 'mistral', 'num_attention_heads': 4}", "num_key_value_heads", "default"},
    {"{'model_type': 'llama', 'head_dim': 63}", "head_dim", "63"},
    {"{'model_type': 'llama', 'vocab_size': 99999999999}", "vocab_size", "99999999999"},
    {"{'model_type': 'llama', 'head_dim': 514}", "head_dim", "512"},
    {"{'model_type': 'gpt2', 'n_embd': 1028, 'n_head': 2}", "n_head", "512"},
    {"{'model_type': 'llama', 'hidden_size': 131074}", "hidden_size", "131072"},
    {"{'model_type': 'llama', 'hidden_size': 131072, 'intermediate_size': 8388608, 'num_attention_heads': 4096,"
     " 'head_dim': 512, 'num_hidden_layers': 512}", "parameters", "1e+15"},
    {"{'model_type': 'gpt2', 'n_embd': 770}", "n_embd", "770"},
    {"{'model_type': 'gpt2', 'n_embd': 768, 'hidden_size': 1024}", "hidden_size", "1024"},
    {"{'model_type': 'gpt2', 'n_positions': 2147483648}", "n_positions", "2147483648"},
    {"{'model_type': 'gpt2', 'activation_function': 'quick_gelu'}", "activation_function", "quick_gelu"},
    {"{'model_type': 'llama', 'hidden_act': 'relu6'}", "hidden_act", "relu6"},
    {"{'model_type': 'llama', 'rms_norm_eps': -1e-5}", "rms_norm_eps", "-1e-05"},
    {"{'model_type': 'llama', 'tie_word_embeddings': 1}", "tie_word_embeddings", "an integer"},
    {"{'model_type': 'llama', 'torch_dtype': 'int8'}", "torch_dtype", "int8"},
    {"{'model_type': 'llama', 'initializer_range': 7}", "initializer_range", "7"},
    {"{'model_type': 'llama', 'attention_dropout': 1.5}", "attention_dropout", "1.5"},
    {"{'model_type': 'gpt2', 'attn_pdrop': '0.1'}", "attn_pdrop", "a string"},
    /* windows */
    {"{'model_type': 'mistral', 'sliding_window': 0}", "sliding_window", "0"},
    {"{'model_type': 'mistral', 'sliding_window': 8, 'sliding_window_size': 9}", "sliding_window_size", "9"},
    {"{'model_type': 'mistral', 'sliding_window': null, 'sliding_window_size': 9}", "sliding_window_size", "9"},
    {"{'model_type': 'mistral', 'use_sliding_window': true}", "use_sliding_window", "true"},
    {"{'model_type': 'llama', 'sliding_window': 4096}", "sliding_window", "4096"},
    {"{'model_type': 'mistral', 'num_hidden_layers': 1, 'layer_types': ['full_attention']}", "layer_types", "full_attention"},
    {"{'model_type': 'llama', 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']}", "layer_types", "no window"},
    {"{'model_type': 'qwen2', 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']}", "layer_types", "use_sliding_window"},
    {"{'model_type': 'qwen3', 'num_hidden_layers': 1, 'layer_types': ['chunked_attention']}", "layer_types", "chunked_attention"},
    {"{'model_type': 'qwen3', 'num_hidden_layers': 1, 'layer_types': [1]}", "layer_types", "1"},
    {"{'model_type': 'qwen3', 'num_hidden_layers': 2, 'layer_types': ['full_attention']}", "layer_types", "1 entries"},
    /* rope */
    {"{'model_type': 'llama', 'rope_scaling': {'rope_type': 'ntk', 'factor': 4}}", "rope_scaling", "ntk"},
    {"{'model_type': 'llama', 'rope_scaling': {'type': 'longrope'}}", "short_factor", "missing"},
    {"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'rope_type': 'llama3'}}", "\"type\"", "linear"},
    {"{'model_type': 'llama', 'rope_scaling': {'type': 'linear'}}", "factor", "missing"},
    {"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': 0}}", "factor", "0"},
    {"{'model_type': 'llama', 'rope_scaling': {'factor': 8.0}}", "factor", "default"},
    {"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': 2, 'beta_fast': 32}}", "beta_fast", "an integer"},
    {"{'model_type': 'llama', 'rope_scaling': 3}", "rope_scaling", "an integer"},
    {"{'model_type': 'llama', 'rope_theta': 0}", "rope_theta", "0"},
    {"{'model_type': 'llama', 'rope_theta': 5e5, 'rope_parameters': {'rope_theta': 1e4}}", "rope_theta", "500000"},
    {"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': 2}, 'rope_parameters': {'rope_type': 'default'}}",
     "rope_parameters", "rope_scaling"},
    {"{'model_type': 'llama', 'rope_parameters': {'partial_rotary_factor': 0.5}}", "partial_rotary_factor", "0.5"},
    {"{'model_type': 'llama', 'rope_parameters': {'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 4,"
     " 'high_freq_factor': 4}}", "high_freq_factor", "4"},
    {"{'model_type': 'qwen3', 'rope_parameters': {'full_attention': {'rope_theta': 1e4}}}", "full_attention", "an object"},
    {"{'model_type': 'gpt2', 'rope_theta': 10000}", "rope_theta", "10000"},
    /* keys that are not read, but would change the computation */
    {"{'model_type': 'qwen3', 'is_causal': false}", "is_causal", "false"},
    {"{'model_type': 'llama', 'partial_rotary_factor': 0.5}", "partial_rotary_factor", "0.5"},
    {"{'model_type': 'llama', 'rope_interleaved': true}", "rope_interleaved", "true"},
    {"{'model_type': 'llama', 'attn_logit_softcapping': 50.0}", "attn_logit_softcapping", "50.0"},
    {"{'model_type': 'llama', 'quantization_config': {'bits': 4}}", "quantization_config", "{\"bits\":4}"},
    {"{'model_type': 'llama', 'num_local_experts': 8}", "num_local_experts", "8"},
    {"{'model_type': 'llama', 'logits_scaling': 8}", "logits_scaling", "8"},
    {"{'model_type': 'llama', 'embedding_multiplier': 12.0}", "embedding_multiplier", "12.0"},
    {"{'model_type': 'llama', 'qk_layernorm': true}", "qk_layernorm", "true"},
    {"{'model_type': 'mistral', 'attention_bias': true}", "attention_bias", "true"},
    {"{'model_type': 'qwen3', 'mlp_bias': true}", "mlp_bias", "true"},
    {"{'model_type': 'gpt2', 'add_cross_attention': true}", "add_cross_attention", "true"},
    {"{'model_type': 'gpt2', 'pruned_heads': {'0': [1]}}", "pruned_heads", "{\"0\":[1]}"},
    {"{'model_type': 'llama', 'per_layer_config': {'0': {'head_dim': 8}}}", "per_layer_config", "head_dim"},
    {"{'model_type': 'llama', 'is_encoder_decoder': true}", "is_encoder_decoder", "true"},
    /* OPT */
    {"{'model_type': 'opt', 'do_layer_norm_before': false}", "do_layer_norm_before", "false"},
    {"{'model_type': 'opt', '_remove_final_layer_norm': true}", "_remove_final_layer_norm", "true"},
    {"{'model_type': 'opt', 'layer_norm_elementwise_affine': false}", "layer_norm_elementwise_affine", "false"},
    {"{'model_type': 'opt', 'word_embed_proj_dim': 512}", "word_embed_proj_dim", "512"},
    /* Seed-OSS */
    {"{'model_type': 'seed_oss', 'qk_norm': true}", "qk_norm", "true"},
    {"{'model_type': 'seed_oss', 'attention_out_bias': 1}", "attention_out_bias", "an integer"},
    /* EXAONE 4 */
    {"{'model_type': 'exaone4', 'sliding_window_pattern': 'LLLG'}", "sliding_window_pattern", "a string"},
    {"{'model_type': 'exaone4', 'attention_bias': true}", "attention_bias", "true"},
    /* StableLM */
    {"{'model_type': 'stablelm', 'qk_layernorm': true}", "qk_layernorm", "true"},
    {"{'model_type': 'stablelm', 'use_parallel_residual': true}", "use_parallel_residual", "true"},
    {"{'model_type': 'stablelm', 'partial_rotary_factor': 0.01}", "partial_rotary_factor", "even"},
    /* Arcee, Nemotron */
    {"{'model_type': 'arcee', 'hidden_act': 'xielu'}", "hidden_act", "xielu"},
    {"{'model_type': 'nemotron', 'sliding_window': 4096}", "sliding_window", "4096"},
    /* GLM 4, ERNIE 4.5 */
    {"{'model_type': 'glm4', 'mlp_bias': true}", "mlp_bias", "true"},
    {"{'model_type': 'glm4', 'head_dim': 6}", "partial_rotary_factor", "even"},
    {"{'model_type': 'ernie4_5', 'moe_num_experts': 64}", "moe_num_experts", "64"},
    /* Mixtures of experts */
    {"{'model_type': 'qwen2_moe', 'use_sliding_window': true}", "use_sliding_window", "true"},
    {"{'model_type': 'qwen2_moe', 'shared_expert_intermediate_size': 0}", "shared_expert_intermediate_size", "0"},
    {"{'model_type': 'qwen2_moe', 'num_experts': 3}", "num_experts_per_tok", "3"},
    {"{'model_type': 'granitemoe', 'output_router_logits': true}", "output_router_logits", "true"},
    {"{'model_type': 'glm4_moe', 'head_dim': 128, 'n_group': 3}", "n_group", "3"},
    {"{'model_type': 'glm4_moe', 'head_dim': 128, 'n_group': 64, 'topk_group': 2}", "topk_group", "2"},
    {"{'model_type': 'dots1', 'head_dim': 128}", "n_routed_experts", "missing"},
    {"{'model_type': 'dots1', 'n_routed_experts': 8, 'num_experts_per_tok': 2}", "n_shared_experts", "missing"},
    {"{'model_type': 'ernie4_5_moe', 'use_bias': true}", "use_bias", "true"},
    {"{'model_type': 'minimax_m2', 'scoring_func': 'softmax'}", "scoring_func", "softmax"},
    {"{'model_type': 'minimax_m2', 'quantization_config': {'quant_method': 'fp8', 'fmt': 'e5m2'}}", "quantization_config", "e5m2"},
    {"{'model_type': 'gpt_oss'}", "rope_scaling", "missing"},
    /* Latent attention */
    {"{'model_type': 'deepseek_v3', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128, 96]}}",
     "weight_block_size", "96"},
    {"{'model_type': 'deepseek_v3', 'topk_method': 'greedy'}", "topk_method", "noaux_tc"},
    {"{'model_type': 'deepseek_v3', 'v_head_dim': 193}", "v_head_dim", "192"},
    {"{'model_type': 'deepseek_v3', 'qk_rope_head_dim': 63}", "qk_rope_head_dim", "even"},
    {"{'model_type': 'deepseek_v2', 'num_experts_per_tok': 6, 'topk_method': 'group_limited_greedy'}", "topk_method", "greedy"},
    {"{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 2, 'mlp_layer_types': ['dense']}", "mlp_layer_types", "1 entries"},
    {"{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 1, 'mlp_layer_types': ['moe']}", "mlp_layer_types", "moe"},
    {"{'model_type': 'glm4_moe_lite', 'head_dim': 32, 'qk_rope_head_dim': 64}", "qk_rope_head_dim", "head_dim"},
    {"{'model_type': 'kimi_k2', 'num_key_value_heads': 64}", "num_key_value_heads", "128"},
    {"{'model_type': 'deepseek_v3', 'attention_bias': true, 'q_lora_rank': null}", "attention_bias", "q_lora_rank"},
    {"{'model_type': 'deepseek_v3', 'kv_lora_rank': 0}", "kv_lora_rank", "0"},
    {"{'model_type': 'llama', 'quantization_config': {'quant_method': 'mxfp4'}}", "quantization_config", "mxfp4"},
    {"{'model_type': 'gemma4_text', 'hidden_size_per_layer_input': 0, 'enable_moe_block': true, 'num_experts': 4, 'top_k_experts': 2}",
     "moe_intermediate_size", "missing"},
    {"{'model_type': 'falcon_h1', 'projectors_bias': true}", "projectors_bias", "true"},
    {"{'model_type': 'falcon_h1', 'mlp_bias': true}", "mlp_bias", "true"},
    {"{'model_type': 'falcon_h1', 'mamba_n_heads': 3}", "mamba_d_ssm", "1024"},
    {"{'model_type': 'falcon_h1', 'mlp_multipliers': [1, 0]}", "mlp_multipliers", "2 numbers"},
    {"{'model_type': 'falcon_h1', 'ssm_multipliers': [1, 1, 1, 1]}", "ssm_multipliers", "5 numbers"},
    {"{'model_type': 'falcon_h1', 'key_multiplier': 0}", "key_multiplier", "0"},
    {"{'model_type': 'falcon_h1', 'mup_multiplier': 2}", "mup_multiplier", "2"},
    {"{'model_type': 'nemotron_h'}", "layers_block_type", "missing"},
    {"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'MO*'}", "hybrid_override_pattern", "O"},
    {"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'ME', 'moe_latent_size': 0}", "moe_latent_size", "0"},
    {"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'ME', 'n_group': 3}", "n_group", "3"},
    {"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'ME', 'moe_shared_expert_intermediate_size': 0}",
     "moe_shared_expert_intermediate_size", "0"},
    {"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M', 'num_hidden_layers': 2}", "num_hidden_layers", "2"},
    {"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M', 'n_groups': 3}", "n_groups", "3"},
    /* Cohere */
    {"{'model_type': 'cohere', 'use_qk_norm': true}", "use_qk_norm", "true"},
    {"{'model_type': 'cohere2', 'logit_scale': 0}", "logit_scale", "0"},
    /* Gemma */
    {"{'model_type': 'gemma', 'use_bidirectional_attention': true}", "use_bidirectional_attention", "true"},
    {"{'model_type': 'gemma3_text', 'use_bidirectional_attention': true}", "use_bidirectional_attention", "true"},
    {"{'model_type': 'gemma3_text', 'rope_parameters': {'rope_type': 'linear', 'factor': 8.0}}", "full_attention", "rope_parameters"},
    {"{'model_type': 'gemma3_text', 'rope_scaling': {'rope_type': 'linear', 'factor': 8.0}, 'rope_parameters':"
     " {'full_attention': {'rope_type': 'default'}}}", "rope_scaling", "rope_parameters"},
    {"{'model_type': 'gemma2', 'query_pre_attn_scalar': 0}", "query_pre_attn_scalar", "0"},
    {"{'model_type': 'gemma2', 'num_hidden_layers': 2, 'sliding_window': 0}", "sliding_window", "0"},
    /* OLMo */
    {"{'model_type': 'olmo3', 'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e4}}", "sliding_attention", "rope_parameters"},
    {"{'model_type': 'olmo2', 'sliding_window': 8}", "sliding_window", "8"},
    /* Phi */
    {"{'model_type': 'phi3', 'rope_scaling': {'type': 'linear', 'factor': 2}}", "linear", "default, longrope"},
    {"{'model_type': 'phi3', 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 1], 'long_factor': [1, 1]}}", "short_factor",
     "2 numbers"},
    {"{'model_type': 'phi3', 'hidden_size': 64, 'num_attention_heads': 16, 'rope_scaling': {'type': 'su', 'short_factor': [1, 1],"
     " 'long_factor': [1, 1, 1]}}", "long_factor", "3 numbers"},
    {"{'model_type': 'phi3', 'hidden_size': 64, 'num_attention_heads': 16, 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 0],"
     " 'long_factor': [1, 1]}}", "short_factor", "[1] is 0"},
    {"{'model_type': 'phi3', 'partial_rotary_factor': 0.45}", "partial_rotary_factor", "43 of the 96"},
    /* GPT-NeoX */
    {"{'model_type': 'gpt_neox', 'hidden_size': 640, 'num_attention_heads': 64, 'rotary_pct': 0.5}", "rotary_pct", "5 of the 10"},
    {"{'model_type': 'gpt_neox', 'hidden_size': 640, 'num_attention_heads': 64, 'rotary_pct': 0.2, 'rope_scaling': {'type': 'dynamic',"
     " 'factor': 2}}", "dynamic", "4"},
    /* SmolLM */
    {"{'model_type': 'smollm3', 'num_hidden_layers': 3, 'no_rope_layers': [1, 1]}", "no_rope_layers", "2 entries"},
    {"{'model_type': 'smollm3', 'num_hidden_layers': 2, 'no_rope_layers': [1, 'x']}", "no_rope_layers", "x"},
    {"{'model_type': 'smollm3', 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']}", "layer_types", "sliding_window"},
    /* Granite */
    {"{'model_type': 'granite', 'residual_multiplier': 0.5, 'attention_bias': true}", "residual_multiplier", "0.5"},
    {"{'model_type': 'granite', 'residual_multiplier': 0.5, 'mlp_bias': true}", "residual_multiplier", "0.5"},
    {"{'model_type': 'granite', 'logits_scaling': 0}", "logits_scaling", "0"},
    /* Ministral and multimodal models */
    {"{'model_type': 'ministral3', 'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e4}}", "llama_4_scaling_beta", "missing"},
    {"{'model_type': 'gemma3'}", "text_config", "missing"},
    {"{'model_type': 'mistral3', 'text_config': {'model_type': 'bloom'}}", "model_type", "bloom"},
    {"{'model_type': 'mistral3', 'text_config': {}, 'quantization_config': {'bits': 8}}", "quantization_config", "{\"bits\":8}"},
    {"{'model_type': 'gemma3', 'text_config': 3}", "text_config", "an integer"},
    /* Layers with a state */
    {"{'model_type': 'bamba', 'hidden_act': 'gelu'}", "hidden_act", "silu"},
    {"{'model_type': 'granitemoehybrid', 'hidden_act': 'relu', 'num_local_experts': 0}", "hidden_act", "silu"},
    {"{'model_type': 'qwen3_next', 'hidden_act': 'gelu'}", "hidden_act", "silu"},
    {"{'model_type': 'bamba', 'mamba_d_head': 'large'}", "mamba_d_head", "string"},
    {"{'model_type': 'bamba', 'partial_rotary_factor': 1.0}", "partial_rotary_factor", "0.5"},
    {"{'model_type': 'granitemoehybrid', 'num_hidden_layers': 1, 'layers_block_type': ['mamba', 'mamba']}", "layers_block_type", "2"},
    {"{'model_type': 'granitemoehybrid', 'num_hidden_layers': 1, 'layers_block_type': ['conv']}", "layers_block_type", "conv"},
    {"{'model_type': 'granitemoehybrid', 'num_hidden_layers': 1, 'layers_block_type': ['mamba'], 'layer_types': ['mamba']}",
     "layers_block_type", "layer_types"},
    {"{'model_type': 'bamba', 'time_step_limit': [0, {'__float__': '-Infinity'}]}", "time_step_limit", "two numbers"},
    {"{'model_type': 'bamba', 'time_step_limit': [1e300, {'__float__': 'Infinity'}]}", "time_step_limit", "two numbers"},
    /* Layers that read the keys and values of others, and inputs of layers */
    {GEMMA4 ", 'num_kv_shared_layers': 4}", "num_kv_shared_layers", "at most 3"},
    {GEMMA4 ", 'num_kv_shared_layers': 3}", "num_kv_shared_layers", "layer 1 has no earlier layer without a window"},
    {GEMMA4 ", 'num_kv_shared_layers': -1}", "num_kv_shared_layers", "-1"},
    {"{'model_type': 'gemma4_text', 'vocab_size': 100}", "vocab_size_per_layer_input", "262144"},
    {"{'model_type': 'gemma4_text', 'hidden_size_per_layer_input': 5000}", "hidden_size_per_layer_input", "150000"},
    /* Heads of layers without a window */
    {GEMMA4 ", 'per_layer_config': {'1': {'head_dim': 16, 'intermediate_size': 20}}}", "per_layer_config", "intermediate_size"},
    {GEMMA4 ", 'per_layer_config': {'1': {'num_key_value_heads': 3}, '3': {'num_key_value_heads': 3}}}", "num_attention_heads", "3"},
    {GEMMA4 ", 'per_layer_config': {'1': {'head_dim': 16}}}", "per_layer_config", "layer 3"},
    {GEMMA4 ", 'per_layer_config': {'01': {'head_dim': 16}}}", "per_layer_config", "01"},
    {GEMMA4 ", 'per_layer_config': {'4': {'head_dim': 16}}}", "per_layer_config", "0 to 3"},
    {GEMMA4 ", 'per_layer_config': {'1': 3}}", "1", "an integer"},
    {GEMMA4 ", 'attention_k_eq_v': true, 'num_global_key_value_heads': 3}", "num_global_key_value_heads", "3"},
    {GEMMA4 ", 'rope_theta': 5.0}", "rope_theta", "5.0"},
    {GEMMA4 ", 'rope_scaling': {'rope_type': 'linear', 'factor': 2}}", "rope_scaling", "linear"},
};

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        pt_error e = {0};
        model *m;
        int status = config_try(refused[i].json, NULL, &m, &e);
        if (status != PT_FAILED || m || !strstr(e.text, refused[i].key) || !strstr(e.text, refused[i].value) ||
            !strstr(e.text, "config.json") || strchr(e.text, '\n'))
            fail_msg("%s\nstatus %d: %s", refused[i].json, status, e.text);
    }
}

static void a_long_path_and_a_huge_value_leave_a_whole_message(void **state)
{
    (void)state;
    char json[6000], name[700];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    memset(json, 'x', sizeof json);
    memcpy(json, "{\"model_type\": \"llama\", \"quantization_config\": \"", 48);
    memcpy(json + sizeof json - 3, "\"}", 3);
    pt_error e = {0};
    model *m;
    assert_int_equal(model_from_json(name, json, strlen(json), NULL, NULL, &m, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "quantization_config"));
    assert_true(strlen(e.text) < sizeof e.text - 1);
}

static void a_folder_without_config_is_refused_with_the_mend(void **state)
{
    (void)state;
    pt_error e = {0};
    model *m;
    assert_int_equal(model_open(PT_FIXTURES, NULL, NULL, &m, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "config.json"));
    assert_int_equal(model_open(PT_FIXTURES "/nothing/here", NULL, NULL, &m, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "nothing/here"));
}

static void fixtures_open_from_folder_and_file(void **state)
{
    (void)state;
    for (int i = 0; i < FIXTURES; i++) {
        char file[600];
        snprintf(file, sizeof file, "%s/config.json", fixture_path(fixtures[i]));
        model *a = folder_open(fixture_path(fixtures[i])), *b = folder_open(file);
        check_structure(a);
        b->config.experts_fused = a->config.experts_fused; /* only weights say it */
        assert_memory_equal(&a->config, &b->config, sizeof a->config);
        model_close(a);
        model_close(b);
    }
}

static void configs_of_real_models_open_or_are_refused(void **state)
{
    (void)state;
    static const struct { const char *name; int64_t parameters; } real[] = {
        {"gpt2", 124439808}, {"gpt2-xl", 1557611200}, {"Llama-2-7b-hf", 6738415616}, {"Llama-2-13b-hf", 13015864320},
        {"llama3-8B-instruct", 8030261248}, {"Qwen2-7B-Instruct", 7615616512}, {"Qwen2.5-0.5B-Instruct", 494032768},
        {"Qwen3-8B", 8190735360}, {"mistral_7b.json", 7241732096}, {"smollm2_135m.json", 134515008},
        {"tinyllama_1b_chat_v1.0.json", 1100048384}, {"gemma2_2b_it", 2614341888}, {"phi3.5-mini-instruct", 3821079552},
        {"opt-13b.transcribed", 12853473280},
    };
    if (access(PT_SHARED_DATA "/configs", R_OK)) {
        print_message("skipped: no shared/data beside the project\n");
        skip();
    }
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++) {
        char path[600];
        pt_error e = {0};
        model *m;
        snprintf(path, sizeof path, "%s/configs/%s", PT_SHARED_DATA, real[i].name);
        int status = model_open(path, NULL, NULL, &m, &e);
        if (real[i].parameters < 0) {
            assert_int_equal(status, PT_FAILED);
            assert_non_null(strstr(e.text, "model_type"));
        } else {
            if (status)
                fail_msg("%s", e.text);
            assert_int_equal(m->parameters, real[i].parameters);
        }
        model_close(m);
    }
}

static void flops_count_matmuls_six_times_and_attention_by_its_windows(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'gpt2'}");
    double matmul = 124439808.0 - 1024 * 768 - (12 * (4 + 9) + 2) * 768.0; /* less positions, biases and norms */
    double keys = 1025 / 2.0;
    assert_true(fabs(model_flops_per_token(m, 1024) - (6 * matmul + 12 * 12 * 768 * keys)) < 1);
    model_close(m);
    m = config_open("{'model_type': 'mistral', 'num_hidden_layers': 1, 'num_key_value_heads': 32, 'sliding_window': 3}");
    double full = 6 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 14336 + 32000.0 * 4096);
    assert_true(fabs(model_flops_per_token(m, 4) - (full + 12.0 * 4096 * (1 + 2 + 3 + 3) / 4)) < 1);
    assert_true(fabs(model_flops_per_token(m, 2) - (full + 12.0 * 4096 * 1.5)) < 1);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_keys_mean_the_defaults_of_transformers),
        cmocka_unit_test(attention_scale_follows_the_keys_of_gpt2),
        cmocka_unit_test(both_generations_of_config_mean_the_same),
        cmocka_unit_test(sliding_windows_reach_the_layers_that_transformers_gives_them),
        cmocka_unit_test(layers_turn_by_the_rope_that_transformers_gives_them),
        cmocka_unit_test(the_text_part_of_a_multimodal_model_is_read),
        cmocka_unit_test(larger_models_have_their_own_rules),
        cmocka_unit_test(heads_of_layers_without_a_window_are_those_of_transformers),
        cmocka_unit_test(layers_with_a_state_are_those_of_either_key),
        cmocka_unit_test(dropout_is_announced_once_and_with_its_values),
        cmocka_unit_test(ids_may_be_lists_null_or_out_of_range),
        cmocka_unit_test(keys_that_change_nothing_are_let_through),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(a_long_path_and_a_huge_value_leave_a_whole_message),
        cmocka_unit_test(a_folder_without_config_is_refused_with_the_mend),
        cmocka_unit_test(fixtures_open_from_folder_and_file),
        cmocka_unit_test(configs_of_real_models_open_or_are_refused),
        cmocka_unit_test(flops_count_matmuls_six_times_and_attention_by_its_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
