/* Models whose layers have both attention and states, or one of them. */
#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "gguf/export_folder.h"

/* n values of the file from `at` on are those of the checkpoint from `first` on times a factor, up to the rounding of the factor and of
 * the product. */
static void check_times(gguf_file *f, const safetensors *st, const char *name, int64_t first, int64_t n, const char *there, int64_t at,
                        double times)
{
    const char *bytes;
    const safetensors_tensor *t = safetensors_find(st, name);
    float *values = malloc((size_t)n * sizeof *values), got;
    assert_true(t && values);
    assert_int_equal(safetensors_read_f32(st, t, (uint64_t)first, (uint64_t)n, values, NULL), 0);
    assert_int_equal(gguf_tensor_of(f, there, &bytes), GGUF_F32);
    for (int64_t i = 0; i < n; i++) {
        memcpy(&got, bytes + (at + i) * 4, 4);
        const double wanted = (double)values[i] * times;
        if (!(fabs((double)got - wanted) <= 5e-7 * fabs(wanted)))
            fail_msg("value %d of %s is %.9g, not %.9g", (int)(at + i), there, (double)got, wanted);
    }
    free(values);
}

/* All factors but those of norms are multiplied into the weights. */
static void factors_of_falcon_h1_are_in_the_weights(void **state)
{
    (void)state;
    enum { C = 24, INNER = 48, HEADS = 6, KEYS = 2 * 6, FFN = 28, KV = 12, VOCAB = 61 };
    safetensors *st;
    const char *folder = fixture_folder("falcon_h1"), *bytes;
    add_plain_tokenizer(folder);
    gguf_file f = open_both(folder, &st);
    check_times(&f, st, "model.embed_tokens.weight", 0, VOCAB * C, "token_embd.weight", 0, 2);
    check_times(&f, st, "lm_head.weight", 0, VOCAB * C, "output.weight", 0, 0.5);
    check_times(&f, st, "model.layers.1.self_attn.q_proj.weight", 0, C * C, "blk.1.attn_q.weight", 0, 1.1);
    check_times(&f, st, "model.layers.1.self_attn.k_proj.weight", 0, KV * C, "blk.1.attn_k.weight", 0, 1.1 * 0.7);
    check_times(&f, st, "model.layers.1.self_attn.v_proj.weight", 0, KV * C, "blk.1.attn_v.weight", 0, 1.1);
    check_times(&f, st, "model.layers.1.self_attn.o_proj.weight", 0, C * C, "blk.1.attn_output.weight", 0, 0.9);
    check_times(&f, st, "model.layers.1.mamba.out_proj.weight", 0, C * INNER, "blk.1.ssm_out.weight", 0, 0.8);
    check_times(&f, st, "model.layers.1.feed_forward.gate_proj.weight", 0, FFN * C, "blk.1.ffn_gate.weight", 0, 0.6);
    check_values(&f, st, "model.layers.1.feed_forward.up_proj.weight", 0, FFN * C, "blk.1.ffn_up.weight", 0);
    check_times(&f, st, "model.layers.1.feed_forward.down_proj.weight", 0, C * FFN, "blk.1.ffn_down.weight", 0, 0.7);
    const struct { int rows; double times; } parts[] = {{INNER, 0.9}, {INNER, 1.1}, {KEYS, 0.8}, {KEYS, 1.2}, {HEADS, 0.7}};
    for (int i = 0, row = 0; i < 5; row += parts[i++].rows)
        check_times(&f, st, "model.layers.0.mamba.in_proj.weight", row * C, parts[i].rows * C, "blk.0.ssm_in.weight", row * C,
                    1.2 * parts[i].times);
    check_values(&f, st, "model.layers.0.input_layernorm.weight", 0, C, "blk.0.attn_norm.weight", 0);
    check_values(&f, st, "model.layers.0.pre_ff_layernorm.weight", 0, C, "blk.0.ffn_norm", 0); /* its name has no ending there */
    check_values(&f, st, "model.layers.0.mamba.conv1d.bias", 0, INNER + 2 * KEYS, "blk.0.ssm_conv1d.bias", 0);
    assert_int_equal(gguf_tensor_of(&f, "blk.0.ssm_norm.weight", &bytes), -1);
    assert_int_equal(gguf_u32(&f, "falcon-h1.attention.head_count_kv"), 2);
    assert_int_equal(gguf_u32(&f, "falcon-h1.ssm.group_count"), 2);
    assert_int_equal(gguf_u32(&f, "falcon-h1.ssm.inner_size"), INNER);
    safetensors_close(st);
    free(f.bytes);
}

#define FALCON(more)                                                                                                                  \
    "{\"model_type\": \"falcon_h1\", \"vocab_size\": 424, \"hidden_size\": 8, \"intermediate_size\": 12, \"num_hidden_layers\": 1, "  \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, \"max_position_embeddings\": 64, "                      \
    "\"mamba_d_ssm\": 12, \"mamba_n_heads\": 3, \"mamba_d_head\": 4, \"mamba_n_groups\": 1, \"mamba_d_state\": 2, "                   \
    "\"mamba_d_conv\": 3, \"hidden_act\": \"silu\", \"initializer_range\": 0.3, \"bos_token_id\": 420, \"eos_token_id\": 420, " more "}"

/* A tied table is stored twice, with a factor each, and a bias that llama.cpp needs is zero. */
static void a_tied_head_of_falcon_h1_has_its_own_factor(void **state)
{
    (void)state;
    enum { C = 8, VOCAB = 424, CHANNELS = 12 + 2 * 2 };
    safetensors *st;
    const char *bytes;
    const float zeros[CHANNELS] = {0};
    const char *folder = make_folder_of("falcon", FALCON("\"tie_word_embeddings\": true, \"mamba_conv_bias\": false, \"mamba_rms_norm\": "
        "true, \"mamba_norm_before_gate\": false, \"embedding_multiplier\": 3.0, \"lm_head_multiplier\": 0.25"), 3);
    gguf_file f = open_both(folder, &st);
    check_times(&f, st, "model.embed_tokens.weight", 0, VOCAB * C, "token_embd.weight", 0, 3);
    check_times(&f, st, "model.embed_tokens.weight", 0, VOCAB * C, "output.weight", 0, 0.25);
    check_values(&f, st, "model.layers.0.mamba.norm.weight", 0, 12, "blk.0.ssm_norm.weight", 0);
    assert_int_equal(gguf_tensor_of(&f, "blk.0.ssm_conv1d.bias", &bytes), GGUF_F32);
    assert_memory_equal(bytes, zeros, sizeof zeros);
    safetensors_close(st);
    free(f.bytes);
}

/* The model's tensor with the product of the adapter's own file is the merged one, factors and all. */
static void an_adapter_of_falcon_h1_has_the_factors(void **state)
{
    (void)state;
    enum { C = 24, KV = 12, IN = 126 };
    const adapted_module modules[] = {{"layers.1.self_attn.k_proj", KV, C}, {"layers.1.mamba.in_proj", IN, C}};
    static const char *const names[] = {"blk.1.attn_k.weight", "blk.1.ssm_in.weight"};
    char *folder = strdup(fixture_folder("falcon_h1")), *alone = strdup(scratch_path("alone.gguf")), tensor[80];
    pt_error e = {0};
    add_plain_tokenizer(folder);
    char *adapter = strdup(put_adapter("adapter", modules, 2));
    gguf_file base = exported(folder, PT_EXPORT_F32);
    if (export_adapted(folder, adapter, alone, true, &e) || export_adapted(folder, adapter, scratch_path("merged.gguf"), false, &e))
        fail_msg("%s", e.text);
    gguf_file own = gguf_load(alone), merged = gguf_load(scratch_path("merged.gguf"));
    for (int i = 0; i < 2; i++) {
        const char *a, *b, *before, *after;
        double changed = 0;
        snprintf(tensor, sizeof tensor, "%s.lora_a", names[i]);
        assert_int_equal(gguf_tensor_of(&own, tensor, &a), GGUF_F32);
        snprintf(tensor, sizeof tensor, "%s.lora_b", names[i]);
        assert_int_equal(gguf_tensor_of(&own, tensor, &b), GGUF_F32);
        gguf_tensor_of(&base, names[i], &before);
        gguf_tensor_of(&merged, names[i], &after);
        for (int64_t k = 0; k < modules[i].outputs * C; k++) {
            float w, wanted, x, y;
            memcpy(&w, before + k * 4, 4), memcpy(&wanted, after + k * 4, 4);
            memcpy(&x, a + k % C * 4, 4), memcpy(&y, b + k / C * 4, 4);
            changed += fabs((double)wanted - (double)w);
            if (!(fabs((double)w + 2 * (double)x * (double)y - (double)wanted) <= 1e-6))
                fail_msg("value %d of %s is %g merged, and %g + 2 %g %g with the adapter", (int)k, names[i], (double)wanted, (double)w,
                         (double)y, (double)x);
        }
        assert_true(changed > 1);
    }
    free(base.bytes);
    free(own.bytes);
    free(merged.bytes);
    free(adapter);
    free(folder);
    free(alone);
}

/* llama.cpp knows no factor of the weights of LFM2's experts: it is in their last matrices. */
static void the_factor_of_lfm2s_experts_is_in_their_matrices(void **state)
{
    (void)state;
    enum { C = 24, I = 12, E = 6 };
    safetensors *st;
    const char *folder = fixture_folder("lfm2_moe");
    add_plain_tokenizer(folder);
    gguf_file f = open_both(folder, &st);
    for (int x = 0; x < E; x++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.1.feed_forward.experts.%d.w2.weight", x);
        check_times(&f, st, name, 0, C * I, "blk.1.ffn_down_exps.weight", x * C * I, 1.5);
        snprintf(name, sizeof name, "model.layers.1.feed_forward.experts.%d.w1.weight", x);
        check_values(&f, st, name, 0, I * C, "blk.1.ffn_gate_exps.weight", x * I * C);
    }
    assert_int_equal(gguf_find(&f, "lfm2moe.expert_weights_scale"), -1);
    safetensors_close(st);
    free(f.bytes);
}

static void falcon_h1_may_have_what_llama_cpp_lacks(void **state)
{
    (void)state;
    char *out = strdup(scratch_path("refused.gguf"));
    const char *folder = fixture_folder("falcon_h1_norm");
    add_plain_tokenizer(folder);
    refuses(folder, out, "limits of its steps");
    folder = make_folder_of("before", FALCON("\"mamba_rms_norm\": true, \"mamba_norm_before_gate\": true"), 4);
    refuses(folder, out, "a norm before the gate");
    assert_false(path_exists(out));
    free(out);
}

/* Of n numbers of a list in the file. */
static void check_numbers(gguf_file *f, const char *key, const int *wanted, uint64_t n)
{
    uint64_t got;
    assert_int_equal(gguf_array(f, key, &got), GGUF_ARRAY_I32);
    assert_int_equal(got, n);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(gguf_number(f, 4), wanted[i]);
}

/* A layer is what it has keys or an MLP for. */
static void layers_of_nemotron_h_are_one_branch(void **state)
{
    (void)state;
    enum { C = 28, INNER = 48, GROUPS = 2, FFN = 36, KV = 12, Q = 24 };
    safetensors *st;
    const char *folder = fixture_folder("nemotron_h"), *bytes;
    add_plain_tokenizer(folder);
    gguf_file f = open_both(folder, &st);
    check_values(&f, st, "backbone.embeddings.weight", 0, 61 * C, "token_embd.weight", 0);
    check_values(&f, st, "backbone.layers.0.norm.weight", 0, C, "blk.0.attn_norm.weight", 0);
    check_values(&f, st, "backbone.layers.0.mixer.in_proj.weight", 0, (2 * INNER + 2 * GROUPS * 6 + 6) * C, "blk.0.ssm_in.weight", 0);
    check_values(&f, st, "backbone.layers.0.mixer.norm.weight", 0, INNER, "blk.0.ssm_norm.weight", 0);
    check_values(&f, st, "backbone.layers.1.norm.weight", 0, C, "blk.1.attn_norm.weight", 0);
    check_values(&f, st, "backbone.layers.1.mixer.up_proj.weight", 0, FFN * C, "blk.1.ffn_up.weight", 0);
    check_values(&f, st, "backbone.layers.1.mixer.down_proj.weight", 0, C * FFN, "blk.1.ffn_down.weight", 0);
    check_values(&f, st, "backbone.layers.2.mixer.q_proj.weight", 0, Q * C, "blk.2.attn_q.weight", 0); /* without rope in any order */
    check_values(&f, st, "backbone.layers.2.mixer.k_proj.weight", 0, KV * C, "blk.2.attn_k.weight", 0);
    check_values(&f, st, "backbone.norm_f.weight", 0, C, "output_norm.weight", 0);
    assert_int_equal(gguf_tensor_of(&f, "blk.1.ffn_norm.weight", &bytes), -1);
    assert_true(gguf_says(&f, "general.architecture", "nemotron_h"));
    check_numbers(&f, "nemotron_h.attention.head_count_kv", (const int[]){0, 0, 2, 0}, 4);
    check_numbers(&f, "nemotron_h.feed_forward_length", (const int[]){0, FFN, 0, 0}, 4);
    for (int i = 0; i < 2; i++) { /* llama.cpp needs the first of them, and has the second one for its norms */
        float eps;
        assert_int_equal(gguf_find(&f, i ? "nemotron_h.attention.layer_norm_rms_epsilon" : "nemotron_h.attention.layer_norm_epsilon"), 6);
        memcpy(&eps, f.bytes + f.at, sizeof eps);
        assert_true(eps == 1e-5f);
    }
    safetensors_close(st);
    free(f.bytes);
}

/* The rotated elements of a head, here its first 4 of 8, are pairs of neighbours there; the others stay where they are. */
static void only_rotated_elements_of_bamba_change_places(void **state)
{
    (void)state;
    enum { C = 16, HEADS = 2, DIM = 8 };
    static const int from[DIM] = {0, 2, 1, 3, 4, 5, 6, 7};
    safetensors *st;
    const char *folder = make_folder_of("bamba", "{\"model_type\": \"bamba\", \"vocab_size\": 424, \"hidden_size\": 16, "
        "\"intermediate_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"max_position_embeddings\": 64, \"mamba_n_heads\": 4, \"mamba_d_head\": 8, \"mamba_n_groups\": 1, \"mamba_d_state\": 2, "
        "\"mamba_d_conv\": 3, \"mamba_conv_bias\": false, \"attn_layer_indices\": [1], \"rope_theta\": 100.0, "
        "\"bos_token_id\": 420, \"eos_token_id\": 420, \"tie_word_embeddings\": false}", 5);
    gguf_file f = open_both(folder, &st);
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < DIM; i++) {
            const int row = head * DIM + i, stored = head * DIM + from[i];
            check_values(&f, st, "model.layers.1.self_attn.q_proj.weight", stored * C, C, "blk.1.attn_q.weight", row * C);
            if (!head)
                check_values(&f, st, "model.layers.1.self_attn.k_proj.weight", stored * C, C, "blk.1.attn_k.weight", row * C);
        }
    check_values(&f, st, "model.layers.1.self_attn.v_proj.weight", 0, DIM * C, "blk.1.attn_v.weight", 0);
    assert_int_equal(gguf_u32(&f, "granitehybrid.rope.dimension_count"), DIM / 2);
    safetensors_close(st);
    free(f.bytes);
}

#define NEMOTRON(pattern, more)                                                                                                       \
    "{\"model_type\": \"nemotron_h\", \"vocab_size\": 424, \"hidden_size\": 8, \"intermediate_size\": 12, "                             \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, \"max_position_embeddings\": 64, "                        \
    "\"mamba_num_heads\": 2, \"mamba_head_dim\": 4, \"n_groups\": 1, \"ssm_state_size\": 2, \"conv_kernel\": 3, "                       \
    "\"mlp_hidden_act\": \"relu2\", \"n_routed_experts\": 3, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "               \
    "\"moe_shared_expert_intermediate_size\": 10, \"n_shared_experts\": 1, \"n_group\": 1, \"topk_group\": 1, "                       \
    "\"routed_scaling_factor\": 2.5, \"norm_topk_prob\": true, \"hybrid_override_pattern\": \"" pattern "\", "                        \
    "\"num_hidden_layers\": 3, \"bos_token_id\": 420, \"eos_token_id\": 420, \"tie_word_embeddings\": false" more "}"

static void experts_of_nemotron_h_have_no_gate(void **state)
{
    (void)state;
    enum { C = 8, E = 3, I = 6, SHARED = 10 };
    safetensors *st;
    const char *folder = make_folder_of("nemotron", NEMOTRON("ME*", ""), 5), *bytes;
    gguf_file f = open_both(folder, &st);
    for (int x = 0; x < E; x++) {
        char name[96];
        snprintf(name, sizeof name, "backbone.layers.1.mixer.experts.%d.up_proj.weight", x);
        check_values(&f, st, name, 0, I * C, "blk.1.ffn_up_exps.weight", x * I * C);
        snprintf(name, sizeof name, "backbone.layers.1.mixer.experts.%d.down_proj.weight", x);
        check_values(&f, st, name, 0, C * I, "blk.1.ffn_down_exps.weight", x * C * I);
    }
    check_values(&f, st, "backbone.layers.1.mixer.shared_experts.up_proj.weight", 0, SHARED * C, "blk.1.ffn_up_shexp.weight", 0);
    check_values(&f, st, "backbone.layers.1.mixer.shared_experts.down_proj.weight", 0, C * SHARED, "blk.1.ffn_down_shexp.weight", 0);
    check_values(&f, st, "backbone.layers.1.mixer.gate.weight", 0, E * C, "blk.1.ffn_gate_inp.weight", 0);
    check_values(&f, st, "backbone.layers.1.mixer.gate.e_score_correction_bias", 0, E, "blk.1.exp_probs_b.bias", 0);
    assert_int_equal(gguf_tensor_of(&f, "blk.1.ffn_gate_exps.weight", &bytes), -1);
    assert_true(gguf_says(&f, "general.architecture", "nemotron_h_moe"));
    check_numbers(&f, "nemotron_h_moe.feed_forward_length", (const int[]){0, I, 0}, 3);
    check_numbers(&f, "nemotron_h_moe.attention.head_count_kv", (const int[]){0, 0, 1}, 3);
    assert_int_equal(gguf_u32(&f, "nemotron_h_moe.expert_shared_feed_forward_length"), SHARED);
    assert_int_equal(gguf_u32(&f, "nemotron_h_moe.expert_weights_norm"), 1);
    safetensors_close(st);
    free(f.bytes);
}

static void latents_of_nemotron_h_are_tensors_of_their_own(void **state)
{
    (void)state;
    enum { C = 8, E = 3, I = 6, LATENT = 4 };
    safetensors *st;
    const char *folder = make_folder_of("latent", NEMOTRON("ME*", ", \"moe_latent_size\": 4"), 5);
    gguf_file f = open_both(folder, &st);
    check_values(&f, st, "backbone.layers.1.mixer.fc1_latent_proj.weight", 0, LATENT * C, "blk.1.ffn_latent_down.weight", 0);
    check_values(&f, st, "backbone.layers.1.mixer.fc2_latent_proj.weight", 0, C * LATENT, "blk.1.ffn_latent_up.weight", 0);
    for (int x = 0; x < E; x++) {
        char name[96];
        snprintf(name, sizeof name, "backbone.layers.1.mixer.experts.%d.up_proj.weight", x);
        check_values(&f, st, name, 0, I * LATENT, "blk.1.ffn_up_exps.weight", x * I * LATENT);
        snprintf(name, sizeof name, "backbone.layers.1.mixer.experts.%d.down_proj.weight", x);
        check_values(&f, st, name, 0, LATENT * I, "blk.1.ffn_down_exps.weight", x * LATENT * I);
    }
    check_values(&f, st, "backbone.layers.1.mixer.gate.weight", 0, E * C, "blk.1.ffn_gate_inp.weight", 0);
    assert_int_equal(gguf_u32(&f, "nemotron_h_moe.moe_latent_size"), LATENT);
    safetensors_close(st);
    free(f.bytes);
}

static void keep_sentence(void *arg, const char *sentence)
{
    if (strstr(sentence, "time_step_min"))
        snprintf(arg, 256, "%s", sentence);
}

static void nemotron_h_may_have_what_llama_cpp_lacks(void **state)
{
    (void)state;
    char *out = strdup(scratch_path("refused.gguf")), said[256] = "";
    pt_error e = {0};
    pt_export_options o;
    const struct { const char *name, *config, *sentence; } all[] = {
        {"states", NEMOTRON("MEE", ""), "no layer with attention"}, {"both", NEMOTRON("*E-", ""), "an MLP beside such with experts"},
        {"biases", NEMOTRON("*EM", ", \"mlp_bias\": true"), "biases of the MLP"},
        {"mixers", NEMOTRON("*MM", ", \"use_bias\": true"), "biases of the matrices"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        refuses(make_folder_of(all[i].name, all[i].config, 6), out, all[i].sentence);
    for (int i = 0; i < 2; i++) { /* a least step is told, no least step is not */
        pt_export_defaults(&o);
        o.model = make_folder_of("steps", i ? NEMOTRON("*-M", ", \"time_step_min\": 0.0")
                                            : NEMOTRON("*-M", ", \"time_step_min\": 0.25"), 7);
        o.out = out;
        o.notice = keep_sentence;
        o.arg = said;
        said[0] = 0;
        if (pt_export(&o, &e))
            fail_msg("%s", e.text);
        assert_true(i ? !said[0] : strstr(said, "0.25") != NULL);
    }
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_of_falcon_h1_are_in_the_weights), cmocka_unit_test(a_tied_head_of_falcon_h1_has_its_own_factor),
        cmocka_unit_test(an_adapter_of_falcon_h1_has_the_factors), cmocka_unit_test(the_factor_of_lfm2s_experts_is_in_their_matrices),
        cmocka_unit_test(falcon_h1_may_have_what_llama_cpp_lacks),
        cmocka_unit_test(only_rotated_elements_of_bamba_change_places), cmocka_unit_test(layers_of_nemotron_h_are_one_branch),
        cmocka_unit_test(experts_of_nemotron_h_have_no_gate), cmocka_unit_test(latents_of_nemotron_h_are_tensors_of_their_own),
        cmocka_unit_test(nemotron_h_may_have_what_llama_cpp_lacks),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
