#include "base/json.h"
#include "gguf/vocabulary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "gguf/export_folder.h"

static bool has(gguf_file *f, const char *name)
{
    const char *bytes;
    return gguf_tensor_of(f, name, &bytes) >= 0;
}

/* The first n numbers of a list in the file, of 4 bytes each, or of booleans. */
static void check_list(gguf_file *f, const char *key, const int *wanted, uint64_t n)
{
    uint64_t got;
    const int kind = gguf_array(f, key, &got);
    assert_true(got >= n);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(gguf_number(f, kind == GGUF_ARRAY_BOOL ? 1 : 4), wanted[i]);
}

static float f32_of(gguf_file *f, const char *key)
{
    float value;
    assert_int_equal(gguf_find(f, key), 6);
    memcpy(&value, f->bytes + f->at, sizeof value);
    return value;
}

/* E2B's form: inputs of layers, keys and values of other layers, MLPs of two widths. */
static void inputs_and_shared_keys_are_told(void **state)
{
    (void)state;
    enum { C = 28, W = 6, L = 4, VOCAB = 67, FULL = 16, FFN = 20 };
    safetensors *st;
    const char *folder = fixture_folder("gemma4_shared"), *bytes;
    add_plain_tokenizer(folder);
    gguf_file f = open_both(folder, &st);
    check_values(&f, st, "model.embed_tokens_per_layer.weight", 0, VOCAB * L * W, "per_layer_token_embd.weight", 0);
    check_values(&f, st, "model.per_layer_model_projection.weight", 0, L * W * C, "per_layer_model_proj.weight", 0);
    check_values(&f, st, "model.per_layer_projection_norm.weight", 0, W, "per_layer_proj_norm.weight", 0);
    check_values(&f, st, "model.layers.2.per_layer_input_gate.weight", 0, W * C, "blk.2.inp_gate.weight", 0);
    check_values(&f, st, "model.layers.2.per_layer_projection.weight", 0, C * W, "blk.2.proj.weight", 0);
    check_values(&f, st, "model.layers.2.post_per_layer_input_norm.weight", 0, C, "blk.2.post_norm.weight", 0);
    check_values(&f, st, "model.layers.2.layer_scalar", 0, 1, "blk.2.layer_output_scale.weight", 0);
    check_values(&f, st, "model.layers.1.input_layernorm.weight", 0, C, "blk.1.attn_norm.weight", 0); /* nothing is added to it */
    check_values(&f, st, "model.layers.1.pre_feedforward_layernorm.weight", 0, C, "blk.1.ffn_norm.weight", 0);
    check_values(&f, st, "model.layers.1.post_attention_layernorm.weight", 0, C, "blk.1.post_attention_norm.weight", 0);
    check_values(&f, st, "model.layers.1.self_attn.q_norm.weight", 0, FULL, "blk.1.attn_q_norm.weight", 0);
    check_values(&f, st, "model.layers.1.self_attn.v_proj.weight", 0, 2 * FULL * C, "blk.1.attn_v.weight", 0);
    check_values(&f, st, "model.layers.3.self_attn.q_proj.weight", 0, 4 * FULL * C, "blk.3.attn_q.weight", 0);
    check_values(&f, st, "model.layers.3.mlp.gate_proj.weight", 0, 2 * FFN * C, "blk.3.ffn_gate.weight", 0);
    check_values(&f, st, "model.layers.3.mlp.up_proj.weight", 0, 2 * FFN * C, "blk.3.ffn_up.weight", 0);
    for (int i = 2; i < L; i++) {
        char name[64];
        static const char *const kinds[] = {"attn_k", "attn_v", "attn_k_norm"};
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, kinds[k]);
            assert_false(has(&f, name));
        }
    }
    assert_int_equal(gguf_tensor_of(&f, "rope_freqs.weight", &bytes), GGUF_F32);
    for (int i = 0; i < FULL / 2; i++) { /* a quarter of the pairs turns */
        float factor;
        memcpy(&factor, bytes + i * 4, 4);
        assert_true(factor == (i < FULL / 8 ? 1 : 1e30f));
    }
    check_list(&f, "gemma4.feed_forward_length", (const int[]){FFN, FFN, 2 * FFN, 2 * FFN}, L);
    check_list(&f, "gemma4.attention.sliding_window_pattern", (const int[]){1, 0, 0, 0}, L);
    assert_int_equal(gguf_u32(&f, "gemma4.attention.sliding_window"), 5);
    assert_int_equal(gguf_u32(&f, "gemma4.attention.shared_kv_layers"), 2);
    assert_int_equal(gguf_u32(&f, "gemma4.embedding_length_per_layer_input"), W);
    assert_int_equal(gguf_u32(&f, "gemma4.attention.key_length"), FULL);
    assert_int_equal(gguf_u32(&f, "gemma4.attention.value_length_swa"), 8);
    assert_int_equal(gguf_u32(&f, "gemma4.rope.dimension_count"), FULL);
    assert_int_equal(gguf_u32(&f, "gemma4.rope.dimension_count_swa"), 8);
    assert_true(f32_of(&f, "gemma4.rope.freq_base") == 100 && f32_of(&f, "gemma4.rope.freq_base_swa") == 10000);
    assert_true(f32_of(&f, "gemma4.final_logit_softcapping") == 5);
    safetensors_close(st);
    free(f.bytes);
}

/* 26B-A4B's form: experts beside the MLP, keys as values. */
static void experts_lie_beside_the_mlp(void **state)
{
    (void)state;
    enum { C = 28, E = 5, I = 12, FFN = 36 };
    safetensors *st;
    const char *folder = fixture_folder("gemma4_moe");
    add_plain_tokenizer(folder);
    gguf_file f = open_both(folder, &st);
    check_values(&f, st, "model.layers.1.experts.gate_up_proj", 0, E * 2 * I * C, "blk.1.ffn_gate_up_exps.weight", 0);
    check_values(&f, st, "model.layers.1.experts.down_proj", 0, E * C * I, "blk.1.ffn_down_exps.weight", 0);
    check_values(&f, st, "model.layers.1.router.proj.weight", 0, E * C, "blk.1.ffn_gate_inp.weight", 0);
    check_values(&f, st, "model.layers.1.router.scale", 0, C, "blk.1.ffn_gate_inp.scale", 0);
    check_values(&f, st, "model.layers.1.router.per_expert_scale", 0, E, "blk.1.ffn_down_exps.scale", 0);
    check_values(&f, st, "model.layers.1.pre_feedforward_layernorm_2.weight", 0, C, "blk.1.pre_ffw_norm_2.weight", 0);
    check_values(&f, st, "model.layers.1.post_feedforward_layernorm_1.weight", 0, C, "blk.1.post_ffw_norm_1.weight", 0);
    check_values(&f, st, "model.layers.1.post_feedforward_layernorm_2.weight", 0, C, "blk.1.post_ffw_norm_2.weight", 0);
    check_values(&f, st, "model.layers.1.post_feedforward_layernorm.weight", 0, C, "blk.1.post_ffw_norm.weight", 0);
    check_values(&f, st, "model.layers.1.mlp.gate_proj.weight", 0, FFN * C, "blk.1.ffn_gate.weight", 0);
    check_values(&f, st, "model.layers.1.mlp.up_proj.weight", 0, FFN * C, "blk.1.ffn_up.weight", 0);
    check_values(&f, st, "model.layers.1.mlp.down_proj.weight", 0, C * FFN, "blk.1.ffn_down.weight", 0);
    assert_true(has(&f, "blk.0.attn_v.weight") && !has(&f, "blk.1.attn_v.weight") && has(&f, "blk.1.attn_k.weight"));
    assert_false(has(&f, "blk.1.ffn_gate_shexp.weight"));
    check_list(&f, "gemma4.attention.head_count_kv", (const int[]){2, 1}, 2);
    assert_int_equal(gguf_u32(&f, "gemma4.expert_count"), E);
    assert_int_equal(gguf_u32(&f, "gemma4.expert_used_count"), 2);
    assert_int_equal(gguf_u32(&f, "gemma4.expert_feed_forward_length"), I);
    safetensors_close(st);
    free(f.bytes);
}

/* Without a soft cap, the file says so: llama.cpp would take 30. What makes the inputs of layers is never in blocks. */
static void what_llama_cpp_assumes_is_written(void **state)
{
    (void)state;
    const char *folder = fixture_folder("gemma4_multimodal"), *bytes;
    add_plain_tokenizer(folder);
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_true(f32_of(&f, "gemma4.final_logit_softcapping") == 0);
    free(f.bytes);
    folder = fixture_folder("gemma4_shared");
    add_plain_tokenizer(folder);
    f = exported(folder, PT_EXPORT_Q8_0);
    assert_int_equal(gguf_tensor_of(&f, "per_layer_model_proj.weight", &bytes), GGUF_F16);
    free(f.bytes);
    f = exported(folder, PT_EXPORT_BF16);
    assert_int_equal(gguf_tensor_of(&f, "per_layer_model_proj.weight", &bytes), GGUF_BF16);
    free(f.bytes);
}

#define GEMMA(types, more)                                                                                                            \
    "{\"model_type\": \"gemma4_text\", \"vocab_size\": 424, \"vocab_size_per_layer_input\": 424, \"hidden_size\": 8, "                \
    "\"intermediate_size\": 12, \"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, "  \
    "\"global_head_dim\": 8, \"max_position_embeddings\": 64, \"sliding_window\": 5, \"hidden_size_per_layer_input\": 0, "            \
    "\"initializer_range\": 0.3, \"bos_token_id\": 420, \"eos_token_id\": 420, \"layer_types\": [" types "], \"rope_parameters\": "   \
    "{\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 100.0}, \"full_attention\": {\"rope_type\": "               \
    "\"proportional\", \"partial_rotary_factor\": 0.5, \"rope_theta\": 1000.0}}" more "}"
#define S "\"sliding_attention\""
#define A "\"full_attention\""

static void what_llama_cpp_fixes_is_checked(void **state)
{
    (void)state;
    char *out = strdup(scratch_path("refused.gguf"));
    static const struct { const char *name, *config, *sentence; } all[] = {
        {"biases", GEMMA(S ", " S ", " S ", " A, ", \"attention_bias\": true"), "a bias of attention's output"},
        {"full", GEMMA(A ", " A ", " A ", " A, ""), "no layer with a window"},
        {"order", GEMMA(A ", " S ", " S ", " A, ", \"num_kv_shared_layers\": 2"), "of another layer than the last two"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        refuses(make_folder_of(all[i].name, all[i].config, 6), out, all[i].sentence);
    gguf_file f = exported(make_folder_of("right", GEMMA(S ", " A ", " S ", " A, ", \"num_kv_shared_layers\": 2"), 6), PT_EXPORT_F32);
    assert_int_equal(gguf_u32(&f, "gemma4.attention.shared_kv_layers"), 2);
    free(f.bytes);
    free(out);
}

/* llama.cpp multiplies this matrix without an adapter. */
static void an_adapter_of_inputs_is_no_file(void **state)
{
    (void)state;
    const adapted_module modules[] = {{"per_layer_model_projection", 24, 28}, {"layers.0.per_layer_input_gate", 6, 28}};
    char *folder = strdup(fixture_folder("gemma4_shared")), *out = strdup(scratch_path("adapter.gguf"));
    pt_error e = {0};
    add_plain_tokenizer(folder);
    char *both = strdup(put_adapter("both", modules, 2)), *gate = strdup(put_adapter("gate", modules + 1, 1));
    assert_int_equal(export_adapted(folder, both, out, true, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "an adapter of per_layer_model_projection"));
    if (export_adapted(folder, both, out, false, &e) || export_adapted(folder, gate, out, true, &e))
        fail_msg("%s", e.text);
    gguf_file f = gguf_load(out);
    assert_true(f.tensors == 2 && has(&f, "blk.0.inp_gate.weight.lora_a") && has(&f, "blk.0.inp_gate.weight.lora_b"));
    free(f.bytes);
    free(both);
    free(gate);
    free(folder);
    free(out);
}

#define TOKENIZER(before, merges)                                                                                                    \
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<pad>\", \"special\": true}, {\"id\": 1, \"content\": \"<eos>\", \"special\": "   \
    "true}, {\"id\": 2, \"content\": \"<bos>\", \"special\": true}, {\"id\": 9, \"content\": \"\\u2581\\u2581\", \"special\": false}, " \
    "{\"id\": 10, \"content\": \"<|tool_call>\", \"special\": true}], \"normalizer\": {\"type\": \"Replace\", \"pattern\": "          \
    "{\"String\": \" \"}, \"content\": \"\\u2581\"}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, "     \
    "\"behavior\": \"MergedWithPrevious\", \"invert\": false}, \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": ["  \
    before "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\": {\"<bos>\": {\"id\": \"<bos>\", \"ids\": [2], "    \
    "\"tokens\": [\"<bos>\"]}}}, \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"<pad>\": 0, \"<eos>\": 1, "   \
    "\"<bos>\": 2, \"<0x0A>\": 3, \"a\": 4, \"\\u2581\": 5, \"\\u2581a\": 6, \"\\n\": 7, \"\\na\": 8, \"\\u2581\\u2581\": 9, "        \
    "\"<|tool_call>\": 10}, \"merges\": [" merges "]}}"
#define BOS "{\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 0}}, "

static void keep(void *arg, const char *sentence)
{
    const size_t n = strlen(arg);
    snprintf((char *)arg + n, 1024 - n, "%s\n", sentence);
}

static gguf_file with_tokenizer(const char *tokenizer, char said[1024])
{
    char out[300];
    pt_error e = {0};
    pt_export_options o;
    const char *folder = fixture_folder("gemma4");
    put_text(folder, "tokenizer.json", tokenizer);
    put_text(folder, "generation_config.json", "{\"eos_token_id\": 1}");
    snprintf(out, sizeof out, "%s.gguf", folder);
    pt_export_defaults(&o);
    o.model = folder;
    o.out = out;
    o.notice = keep;
    o.arg = said;
    said[0] = 0;
    if (pt_export(&o, &e))
        fail_msg("%s", e.text);
    return gguf_load(out);
}

static void check_texts(gguf_file *f, const char *key, const char *const *wanted, uint64_t n)
{
    uint64_t got;
    assert_int_equal(gguf_array(f, key, &got), GGUF_ARRAY_STRING);
    assert_true(got >= n);
    for (uint64_t i = 0; i < n; i++) {
        size_t bytes;
        const char *text = gguf_text(f, &bytes);
        if (bytes != strlen(wanted[i]) || memcmp(text, wanted[i], bytes))
            fail_msg("%s %d is \"%.*s\", not \"%s\"", key, (int)i, (int)bytes, text, wanted[i]);
    }
}

/* Merges as they are, runs of spaces as a text has them, and what llama.cpp reads calls by is shown. */
static void the_tokenizer_is_written_by_its_merges(void **state)
{
    (void)state;
    enum { CONTROL = 3, USER_DEFINED = 4, BYTE = 6 };
    char said[1024];
    uint64_t n;
    gguf_file f = with_tokenizer(TOKENIZER(BOS, "[\"\\u2581\", \"\\u2581\"], [\"\\u2581\", \"a\"]"), said);
    assert_true(gguf_says(&f, "tokenizer.ggml.model", "gemma4"));
    check_texts(&f, "tokenizer.ggml.merges", (const char *const[]){"\xe2\x96\x81 \xe2\x96\x81", "\xe2\x96\x81 a"}, 2);
    check_texts(&f, "tokenizer.ggml.tokens", (const char *const[]){"<pad>", "<eos>", "<bos>", "<0x0A>", "a", "\xe2\x96\x81",
                "\xe2\x96\x81" "a", "\n", "\na", "\xe2\x96\x81\xe2\x96\x81", "<|tool_call>"}, 11);
    check_list(&f, "tokenizer.ggml.token_type", (const int[]){CONTROL, CONTROL, CONTROL, BYTE, 1, 1, 1, 1, 1, 1, USER_DEFINED}, 11);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.bos_token_id"), 2);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.add_bos_token"), 1);
    assert_true(!strstr(said, "BOS") && !strstr(said, "newlines"));
    free(f.bytes);
    f = with_tokenizer(TOKENIZER("", "\"\\u2581 a\", \"\\n a\""), said);
    assert_true(strstr(said, "begins every text of a Gemma 4 with the BOS token") && strstr(said, "1 merge across"));
    free(f.bytes);
    f = with_tokenizer(TOKENIZER(BOS, ""), said); /* without merges by scores, of which all are alike */
    assert_true(gguf_says(&f, "tokenizer.ggml.model", "llama"));
    assert_int_equal(gguf_array(&f, "tokenizer.ggml.scores", &n), GGUF_ARRAY_F32);
    free(f.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_and_shared_keys_are_told), cmocka_unit_test(experts_lie_beside_the_mlp),
        cmocka_unit_test(what_llama_cpp_assumes_is_written), cmocka_unit_test(what_llama_cpp_fixes_is_checked),
        cmocka_unit_test(an_adapter_of_inputs_is_no_file), cmocka_unit_test(the_tokenizer_is_written_by_its_merges),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
