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

static gguf_file open_both(const char *folder, safetensors **st)
{
    pt_error e = {0};
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, st, &e), 0);
    return f;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_of_falcon_h1_are_in_the_weights), cmocka_unit_test(a_tied_head_of_falcon_h1_has_its_own_factor),
        cmocka_unit_test(falcon_h1_may_have_what_llama_cpp_lacks),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
