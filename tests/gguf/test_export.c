#include "base/json.h"
#include "gguf/blocks.h"
#include "gguf/mixture.h"
#include "gguf/vocabulary.h"
#include "gguf/writer.h"
#include "io/safetensors.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "gguf/export_folder.h"

static void blocks_are_those_of_ggml(void **state)
{
    (void)state;
    enum { VALUES = 2048 };
    static const gguf_type types[] = {GGUF_Q4_0, GGUF_Q5_0, GGUF_Q5_1, GGUF_Q8_0, GGUF_Q4_K, GGUF_Q5_K, GGUF_Q6_K};
    char *bytes;
    size_t n, at = VALUES * sizeof(float);
    pt_error e = {0};
    float values[VALUES];
    unsigned char encoded[VALUES * 2];
    assert_int_equal(file_read_all(PT_FIXTURES "/gguf/blocks.bin", 1 << 20, &bytes, &n, &e), 0);
    memcpy(values, bytes, sizeof values);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const size_t size = (size_t)(VALUES / gguf_block_values(types[i]) * gguf_block_bytes(types[i]));
        assert_true(at + size <= n);
        gguf_encode_blocks(types[i], values, VALUES, encoded);
        if (memcmp(encoded, bytes + at, size))
            fail_msg("%s: other bytes than ggml's", gguf_type_name(types[i]));
        at += size;
    }
    assert_int_equal(at, n);
    free(bytes);
}

static void add_matrix(gguf_tensors *t, int layer, const char *kind, int64_t cols)
{
    gguf_tensor *x = &t->list[t->n++];
    *x = (gguf_tensor){.layer = layer, .rows = 1, .cols = cols};
    if (layer < 0)
        snprintf(x->name, sizeof x->name, "%s.weight", kind);
    else
        snprintf(x->name, sizeof x->name, "blk.%d.%s.weight", layer, kind);
}

/* A model of 9 layers, whose MLPs are not as wide as a multiple of 256. Expected: by llama.cpp's rules. */
static void some_matrices_get_more_bits(void **state)
{
    (void)state;
    enum { LAYERS = 9 };
    static const struct {
        pt_export_type kind;
        bool head;
        int experts;
        gguf_type tokens, query, key, value, value_more, output, up, down, down_more;
    } all[] = {
        {PT_EXPORT_Q4_K_M, true, 0, GGUF_Q4_K, GGUF_Q4_K, GGUF_Q4_K, GGUF_Q4_K, GGUF_Q6_K, GGUF_Q4_K, GGUF_Q4_K, GGUF_Q5_0, GGUF_Q8_0},
        {PT_EXPORT_Q4_K_M, false, 8, GGUF_Q6_K, GGUF_Q4_K, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q5_K, GGUF_Q4_K, GGUF_Q5_0, GGUF_Q8_0},
        {PT_EXPORT_Q5_K_M, true, 0, GGUF_Q5_K, GGUF_Q5_K, GGUF_Q5_K, GGUF_Q5_K, GGUF_Q6_K, GGUF_Q5_K, GGUF_Q5_K, GGUF_Q5_1, GGUF_Q8_0},
        {PT_EXPORT_Q6_K, false, 4, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q8_0, GGUF_Q8_0},
        {PT_EXPORT_Q4_0, true, 0, GGUF_Q4_0, GGUF_Q4_0, GGUF_Q4_0, GGUF_Q4_0, GGUF_Q4_0, GGUF_Q4_0, GGUF_Q4_0, GGUF_Q4_0, GGUF_Q4_0},
        {PT_EXPORT_Q8_0, true, 0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0, GGUF_Q8_0}};
    static const bool more[LAYERS] = {[0] = true, [3] = true, [6] = true, [7] = true, [8] = true};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gguf_tensor list[6 * LAYERS + 2];
        gguf_tensors t = {.list = list};
        const model_config c = {.layers = LAYERS, .experts = all[i].experts, .heads = 4, .kv_heads = 2};
        const gguf_family f = {.name = "llama"};
        static const char *const kinds[] = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up"};
        add_matrix(&t, -1, "token_embd", 256);
        for (int l = 0; l < LAYERS; l++) {
            for (int k = 0; k < 5; k++)
                add_matrix(&t, l, kinds[k], 256);
            add_matrix(&t, l, "ffn_down", 320);
        }
        if (all[i].head)
            add_matrix(&t, -1, "output", 256);
        gguf_mix_types(&t, &c, &f, all[i].kind);
        assert_int_equal(list[0].type, all[i].tokens);
        for (int l = 0; l < LAYERS; l++) {
            const gguf_type wanted[] = {all[i].query, all[i].key, more[l] ? all[i].value_more : all[i].value, all[i].output, all[i].up,
                                        more[l] ? all[i].down_more : all[i].down};
            for (int k = 0; k < 6; k++)
                if (list[1 + 6 * l + k].type != wanted[k])
                    fail_msg("%s: %s instead of %s", list[1 + 6 * l + k].name, gguf_type_name(list[1 + 6 * l + k].type),
                             gguf_type_name(wanted[k]));
        }
        if (all[i].head)
            assert_int_equal(list[t.n - 1].type, all[i].kind == PT_EXPORT_Q8_0 ? GGUF_Q8_0 : GGUF_Q6_K);
        assert_int_equal(t.unblocked, all[i].kind == PT_EXPORT_Q4_0 || all[i].kind == PT_EXPORT_Q8_0 ? 0 : LAYERS);
    }
}

/* Without experts, llama.cpp counts an MLP's second matrices where not every layer has one. */
static void matrices_are_counted_where_layers_lack_them(void **state)
{
    (void)state;
    enum { LAYERS = 8 };
    for (int experts = 0; experts < 5; experts += 4) {
        gguf_tensor list[LAYERS];
        gguf_tensors t = {.list = list};
        const model_config c = {.layers = LAYERS, .experts = experts};
        const gguf_family f = {.name = "nemotron_h"};
        for (int l = 1; l < LAYERS; l += 2)
            add_matrix(&t, l, "ffn_down", 256);
        gguf_mix_types(&t, &c, &f, PT_EXPORT_Q4_K_M);
        for (int i = 0; i < 4; i++)
            assert_int_equal(list[i].type, i == 3 || i == (experts ? 1 : 0) ? GGUF_Q6_K : GGUF_Q4_K);
    }
}

/* Byte for byte. */
static void files_are_those_that_llama_cpp_ran(void **state)
{
    (void)state;
    json_source sums;
    pt_error e = {0};
    const char *name;
    json_t *sum;
    int checked = 0;
    assert_int_equal(json_source_open(&sums, PT_FIXTURES "/gguf/sums.json", &e), 0);
    json_object_foreach(sums.object, name, sum) {
        const char *folder = fixture_folder(name);
        add_plain_tokenizer(folder);
        gguf_file f = exported(folder, PT_EXPORT_F32);
        uint64_t h = 0xcbf29ce484222325;
        char text[17];
        for (size_t i = 0; i < f.n; i++)
            h = (h ^ (unsigned char)f.bytes[i]) * 0x100000001b3;
        snprintf(text, sizeof text, "%016llx", (unsigned long long)h);
        if (strcmp(text, json_string_value(sum)))
            fail_msg("%s: the file is another than that which llama.cpp ran", name);
        free(f.bytes);
        checked++;
    }
    assert_true(checked >= 20);
    json_source_close(&sums);
}

/* Queries of heads that llama.cpp rotates in pairs of neighbours, beside the rows of the checkpoint. */
static void rows_of_a_head_are_put_pair_by_pair(void **state)
{
    (void)state;
    pt_error e = {0};
    safetensors *st;
    const char *folder = fixture_folder("llama"), *bytes;
    add_plain_tokenizer(folder);
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, &st, &e), 0);
    const safetensors_tensor *t = safetensors_find(st, "model.layers.1.self_attn.q_proj.weight");
    const int64_t rows = t->shape[0], cols = t->shape[1], head = rows / gguf_u32(&f, "llama.attention.head_count");
    float *values = malloc(t->elements * sizeof *values);
    assert_int_equal(safetensors_read_f32(st, t, 0, t->elements, values, &e), 0);
    assert_int_equal(gguf_tensor_of(&f, "blk.1.attn_q.weight", &bytes), GGUF_F32);
    for (int64_t h = 0; h < rows / head; h++)
        for (int64_t i = 0; i < head / 2; i++)
            for (int half = 0; half < 2; half++)
                assert_memory_equal(bytes + (size_t)((h * head + 2 * i + half) * cols) * 4,
                                    values + (h * head + half * head / 2 + i) * cols, (size_t)cols * 4);
    free(values);
    safetensors_close(st);
    free(f.bytes);
}

/* Files with a tensor for each expert, and with one for all, which has gate and up of each. */
static void experts_are_one_tensor_of_each_kind(void **state)
{
    (void)state;
    enum { C = 24, I = 12, SHARED = 20, DOTS_I = 10 };
    pt_error e = {0};
    safetensors *st;
    static const char dots[] = /* llama.cpp has as many heads of keys as of queries */
        "{\"model_type\": \"dots1\", \"vocab_size\": 424, \"hidden_size\": 24, \"intermediate_size\": 36, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"max_position_embeddings\": 64, \"moe_intermediate_size\": 10, "
        "\"n_routed_experts\": 8, \"n_shared_experts\": 2, \"num_experts_per_tok\": 3, \"first_k_dense_replace\": 0, \"n_group\": 4, "
        "\"topk_group\": 2, \"routed_scaling_factor\": 2.5, \"norm_topk_prob\": true, \"bos_token_id\": 420, \"eos_token_id\": 420}";
    const char *folder = make_folder_of("dots", dots, 9);
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, &st, &e), 0);
    for (int x = 0; x < 8; x++) {
        static const char *const kinds[] = {"gate", "up", "down"};
        for (int k = 0; k < 3; k++) {
            char name[96], there[64];
            snprintf(name, sizeof name, "model.layers.1.mlp.experts.%d.%s_proj.weight", x, kinds[k]);
            snprintf(there, sizeof there, "blk.1.ffn_%s_exps.weight", kinds[k]);
            check_values(&f, st, name, 0, C * DOTS_I, there, x * C * DOTS_I);
        }
    }
    check_values(&f, st, "model.layers.1.mlp.gate.e_score_correction_bias", 0, 8, "blk.1.exp_probs_b.bias", 0);
    check_values(&f, st, "model.layers.1.mlp.shared_experts.up_proj.weight", 0, C * 2 * DOTS_I, "blk.1.ffn_up_shexp.weight", 0);
    assert_int_equal(gguf_u32(&f, "dots1.expert_count"), 8);
    assert_int_equal(gguf_u32(&f, "dots1.expert_gating_func"), 2);
    assert_int_equal(gguf_u32(&f, "dots1.expert_group_used_count"), 2);
    assert_int_equal(gguf_u32(&f, "dots1.leading_dense_block_count"), 0);
    safetensors_close(st);
    free(f.bytes);
    folder = fixture_folder("granitemoeshared");
    add_plain_tokenizer(folder);
    f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, &st, &e), 0);
    for (int x = 0; x < 5; x++) {
        const char *name = "model.layers.0.block_sparse_moe.input_linear.weight";
        check_values(&f, st, name, x * 2 * I * C, I * C, "blk.0.ffn_gate_exps.weight", x * I * C);
        check_values(&f, st, name, (x * 2 + 1) * I * C, I * C, "blk.0.ffn_up_exps.weight", x * I * C);
    }
    check_values(&f, st, "model.layers.0.shared_mlp.input_linear.weight", SHARED * C, SHARED * C, "blk.0.ffn_up_shexp.weight", 0);
    check_values(&f, st, "model.layers.0.block_sparse_moe.router.layer.weight", 0, 5 * C, "blk.0.ffn_gate_inp.weight", 0);
    assert_int_equal(gguf_u32(&f, "granitemoe.expert_shared_feed_forward_length"), SHARED);
    safetensors_close(st);
    free(f.bytes);
}

/* Of the delta rule: heads of values by their place among those of a key head, rates as numbers. */
static void states_of_qwen3_5_are_in_llama_cpps_order(void **state)
{
    (void)state;
    enum { C = 8, D = 4, HK = 2, R = 3, HV = HK * R, KEYS = 2 * HK * D, TAPS = 3 };
    static const char config[] =
        "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 421, \"hidden_size\": 8, \"intermediate_size\": 12, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, "
        "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true, \"attn_output_gate\": true, \"hidden_act\": \"silu\", "
        "\"linear_conv_kernel_dim\": 3, \"linear_key_head_dim\": 4, \"linear_value_head_dim\": 4, \"linear_num_key_heads\": 2, "
        "\"linear_num_value_heads\": 6, \"layer_types\": [\"linear_attention\", \"full_attention\"], \"rope_parameters\": "
        "{\"rope_type\": \"default\", \"rope_theta\": 100.0, \"partial_rotary_factor\": 0.5}, \"eos_token_id\": 420}";
    pt_error e = {0};
    safetensors *st;
    const char *folder = make_folder_of("delta", config, 7), *bytes;
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, &st, &e), 0);
    check_values(&f, st, "model.layers.1.self_attn.q_proj.weight", 0, 2 * 2 * 8 * C, "blk.1.attn_q.weight", 0);
    check_values(&f, st, "model.layers.0.linear_attn.in_proj_qkv.weight", 0, KEYS * C, "blk.0.attn_qkv.weight", 0);
    float rates[HV], out[C * HV * D], got[C * HV * D];
    find(st, "model.layers.0.linear_attn.A_log", rates);
    find(st, "model.layers.0.linear_attn.out_proj.weight", out);
    assert_int_equal(gguf_tensor_of(&f, "blk.0.ssm_out.weight", &bytes), GGUF_F32);
    memcpy(got, bytes, sizeof got);
    assert_int_equal(gguf_tensor_of(&f, "blk.0.ssm_a", &bytes), GGUF_F32);
    for (int k = 0; k < HK; k++)
        for (int j = 0; j < R; j++) {
            const int here = k * R + j, there = j * HK + k;
            float rate;
            check_values(&f, st, "model.layers.0.linear_attn.in_proj_qkv.weight", (KEYS + here * D) * C, D * C, "blk.0.attn_qkv.weight",
                         (KEYS + there * D) * C);
            check_values(&f, st, "model.layers.0.linear_attn.in_proj_z.weight", here * D * C, D * C, "blk.0.attn_gate.weight",
                         there * D * C);
            check_values(&f, st, "model.layers.0.linear_attn.in_proj_b.weight", here * C, C, "blk.0.ssm_beta.weight", there * C);
            check_values(&f, st, "model.layers.0.linear_attn.in_proj_a.weight", here * C, C, "blk.0.ssm_alpha.weight", there * C);
            check_values(&f, st, "model.layers.0.linear_attn.dt_bias", here, 1, "blk.0.ssm_dt.bias", there);
            check_values(&f, st, "model.layers.0.linear_attn.conv1d.weight", (KEYS + here * D) * TAPS, D * TAPS, "blk.0.ssm_conv1d.weight",
                         (KEYS + there * D) * TAPS);
            for (int c = 0; c < C; c++)
                assert_memory_equal(got + (c * HV + there) * D, out + (c * HV + here) * D, D * sizeof(float));
            gguf_tensor_of(&f, "blk.0.ssm_a", &bytes);
            memcpy(&rate, bytes + there * 4, 4);
            assert_true(rate == -expf(rates[here]));
        }
    assert_int_equal(gguf_u32(&f, "qwen35.full_attention_interval"), 2);
    assert_int_equal(gguf_u32(&f, "qwen35.ssm.time_step_rank"), HV);
    safetensors_close(st);
    free(f.bytes);
}

/* Short convolutions, Mamba-2. Layers with a state have no heads of keys. */
static void other_states_are_as_in_the_checkpoint(void **state)
{
    (void)state;
    pt_error e = {0};
    safetensors *st;
    uint64_t n;
    const char *folder = fixture_folder("lfm2");
    add_plain_tokenizer(folder);
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, &st, &e), 0);
    check_values(&f, st, "model.layers.0.conv.in_proj.weight", 0, 3 * 24 * 24, "blk.0.shortconv.in_proj.weight", 0);
    check_values(&f, st, "model.layers.2.conv.conv.weight", 0, 24 * 3, "blk.2.shortconv.conv.weight", 0);
    check_values(&f, st, "model.embedding_norm.weight", 0, 24, "token_embd_norm.weight", 0);
    assert_int_equal(gguf_array(&f, "lfm2.attention.head_count_kv", &n), GGUF_ARRAY_I32);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gguf_number(&f, 4), i == 1 ? 2 : 0);
    safetensors_close(st);
    free(f.bytes);
    folder = fixture_folder("granitemoehybrid_experts");
    add_plain_tokenizer(folder);
    f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, &st, &e), 0);
    check_values(&f, st, "model.layers.0.mamba.in_proj.weight", 0, 24 * (2 * 48 + 2 * 6 + 6), "blk.0.ssm_in.weight", 0);
    check_values(&f, st, "model.layers.0.mamba.D", 0, 6, "blk.0.ssm_d", 0);
    check_values(&f, st, "model.layers.0.mamba.conv1d.bias", 0, 48 + 2 * 6, "blk.0.ssm_conv1d.bias", 0);
    assert_int_equal(gguf_u32(&f, "granitehybrid.feed_forward_length"), 12);
    assert_int_equal(gguf_u32(&f, "granitehybrid.rope.scaling.finetuned"), 1);
    safetensors_close(st);
    free(f.bytes);
}

/* Rows of gate and up are in turn, columns first, in gpt-oss's files. */
static void experts_of_gpt_oss_are_told_apart(void **state)
{
    (void)state;
    enum { C = 8, I = 6, E = 3 };
    static const char config[] =
        "{\"model_type\": \"gpt_oss\", \"vocab_size\": 421, \"hidden_size\": 8, \"intermediate_size\": 6, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, \"num_local_experts\": 3, "
        "\"num_experts_per_tok\": 2, \"max_position_embeddings\": 64, \"tie_word_embeddings\": false, \"attention_bias\": true, "
        "\"sliding_window\": 5, \"layer_types\": [\"sliding_attention\"], \"hidden_act\": \"silu\", \"swiglu_limit\": 7.0, "
        "\"rope_theta\": 100.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0, \"truncate\": false, "
        "\"original_max_position_embeddings\": 32, \"beta_fast\": 32.0, \"beta_slow\": 1.0}, \"eos_token_id\": 420}";
    static const char *const names[] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"};
    pt_error e = {0};
    safetensors *st;
    const char *folder = make_folder_of("oss", config, 8), *bytes;
    float both[E * C * 2 * I], one;
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, &st, &e), 0);
    find(st, "model.layers.0.mlp.experts.gate_up_proj", both);
    for (int s = 0; s < 2; s++) {
        assert_int_equal(gguf_tensor_of(&f, names[s], &bytes), GGUF_F32);
        for (int x = 0; x < E; x++)
            for (int i = 0; i < I; i++)
                for (int c = 0; c < C; c++) {
                    memcpy(&one, bytes + ((x * I + i) * C + c) * 4, 4);
                    assert_true(one == both[(x * C + c) * 2 * I + 2 * i + s]);
                }
    }
    check_values(&f, st, "model.layers.0.self_attn.sinks", 0, 2, "blk.0.attn_sinks.weight", 0);
    check_values(&f, st, "model.layers.0.mlp.experts.down_proj_bias", 0, E * C, "blk.0.ffn_down_exps.bias", 0);
    check_values(&f, st, "model.layers.0.mlp.router.bias", 0, E, "blk.0.ffn_gate_inp.bias", 0);
    assert_int_equal(gguf_u32(&f, "gpt-oss.attention.sliding_window"), 5);
    safetensors_close(st);
    free(f.bytes);
}

static void types_are_what_was_asked_for(void **state)
{
    (void)state;
    static const struct {
        pt_export_type type;
        int matrix;
        uint32_t file;
    } all[] = {{PT_EXPORT_F32, GGUF_F32, 0},
               {PT_EXPORT_F16, GGUF_F16, 1},
               {PT_EXPORT_BF16, GGUF_BF16, 32},
               {PT_EXPORT_Q8_0, GGUF_F16, 7}, /* rows of 24 are no blocks */
               {PT_EXPORT_Q4_0, GGUF_F16, 2},
               {PT_EXPORT_Q4_K_M, GGUF_F16, 15},
               {PT_EXPORT_Q5_K_M, GGUF_F16, 17},
               {PT_EXPORT_Q6_K, GGUF_F16, 18}};
    const char *folder = fixture_folder("llama"), *values;
    add_plain_tokenizer(folder);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gguf_file f = exported(folder, all[i].type);
        assert_int_equal(gguf_tensor_of(&f, "blk.0.attn_output.weight", &values), all[i].matrix);
        assert_int_equal(gguf_tensor_of(&f, "blk.0.attn_norm.weight", &values), GGUF_F32);
        assert_int_equal(gguf_u32(&f, "general.file_type"), all[i].file);
        free(f.bytes);
    }
}

/* SentencePiece's: scores by the rank of merges, kinds of tokens, ends, template. */
static void a_vocabulary_is_told(void **state)
{
    (void)state;
    enum { UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
    static const int kinds[] = {UNKNOWN, CONTROL, CONTROL, BYTE, 1, 1, 1, 1, 1, USER_DEFINED, UNUSED};
    const char *folder = fixture_folder("llama");
    uint64_t n;
    size_t bytes;
    put_text(folder, "tokenizer.json",
             "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, {\"id\": 1, \"content\": "
             "\"<s>\", \"special\": true},"
             "{\"id\": 2, \"content\": \"</s>\", \"special\": true}, {\"id\": 9, \"content\": \"\\u2581x\", "
             "\"special\": false}, {\"id\": 11, \"content\": \"<turn>\", \"special\": true}],"
             "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "
             "\"\\u2581\"}, {\"type\": \"Replace\","
             "\"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}]}, \"post_processor\": {\"type\": "
             "\"TemplateProcessing\", \"single\": ["
             "{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
             "\"special_tokens\": "
             "{\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}}, \"model\": {\"type\": \"BPE\", "
             "\"unk_token\": \"<unk>\","
             "\"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2, \"<0x0A>\": 3, \"a\": 4, "
             "\"b\": 5, \"ab\": 6, \"abab\": 7,"
             "\"\\u2581\": 8}, \"merges\": [\"a b\", \"ab ab\"]}}");
    put_text(folder, "generation_config.json", "{\"eos_token_id\": [2, 7, 6]}");
    put_text(folder, "tokenizer_config.json", "{\"pad_token\": \"<unk>\", \"chat_template\": \"{{ messages }} {% call x() %}\"}");
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_true(gguf_says(&f, "tokenizer.ggml.model", "llama"));
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.add_bos_token"), true);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.add_space_prefix"), true);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.bos_token_id"), 1);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.eos_token_id"), 2);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.eot_token_id"), 7);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.eom_token_id"), 6);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.padding_token_id"), 0);
    assert_true(gguf_says(&f, "tokenizer.chat_template", "{{ messages }} {% call x() %}"));
    assert_int_equal(gguf_array(&f, "tokenizer.ggml.token_type", &n), GGUF_ARRAY_I32);
    assert_int_equal(n, vocab_of(folder));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_int_equal(gguf_number(&f, 4), kinds[i]);
    assert_int_equal(gguf_array(&f, "tokenizer.ggml.tokens", &n), GGUF_ARRAY_STRING);
    for (int i = 0; i < 9; i++)
        gguf_text(&f, &bytes);
    assert_memory_equal(gguf_text(&f, &bytes), " x", 2);
    assert_memory_equal(gguf_text(&f, &bytes), "[PAD10]", 7);
    assert_int_equal(gguf_array(&f, "tokenizer.ggml.scores", &n), GGUF_ARRAY_F32);
    float scores[9];
    memcpy(scores, f.bytes + f.at, sizeof scores);
    assert_true(scores[6] == 0 && scores[7] == -1 && scores[4] < scores[7]);
    free(f.bytes);
    put_text(folder, "generation_config.json", "{\"eos_token_id\": 2}");
    put_text(folder, "tokenizer_config.json", "{\"chat_template\": \"{% for m in messages %}{{ m.content }}<turn>{% endfor %}\"}");
    f = exported(folder, PT_EXPORT_F32); /* the template has an end that no file names */
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.eos_token_id"), 2);
    assert_int_equal(gguf_u32(&f, "tokenizer.ggml.eot_token_id"), 11);
    free(f.bytes);
}

/* The model's matrix with the product of the adapter's own file is the merged one. */
static void check_alone(const pt_export_options *merged, gguf_file *base, gguf_file *sum, const char *name, int64_t rows, int64_t cols)
{
    enum { RANK = 4 };
    pt_export_options o = *merged;
    pt_error e = {0};
    char out[300], tensor[80];
    const char *a, *b, *before, *after;
    float alpha;
    snprintf(out, sizeof out, "%.280s.alone", merged->out);
    o.out = out;
    o.modelfile = NULL;
    o.adapter_only = true;
    if (pt_export(&o, &e))
        fail_msg("%s", e.text);
    gguf_file f = gguf_load(out);
    assert_true(gguf_says(&f, "general.type", "adapter") && gguf_says(&f, "adapter.type", "lora"));
    assert_int_equal(gguf_find(&f, "adapter.lora.alpha"), 6);
    memcpy(&alpha, f.bytes + f.at, sizeof alpha);
    snprintf(tensor, sizeof tensor, "%s.lora_a", name);
    assert_int_equal(gguf_tensor_of(&f, tensor, &a), GGUF_F32);
    snprintf(tensor, sizeof tensor, "%s.lora_b", name);
    assert_int_equal(gguf_tensor_of(&f, tensor, &b), GGUF_F32);
    gguf_tensor_of(base, name, &before);
    gguf_tensor_of(sum, name, &after);
    for (int64_t i = 0; i < rows * cols; i++) {
        float w, wanted, x[RANK], y;
        double delta = 0;
        memcpy(&w, before + i * 4, 4), memcpy(&wanted, after + i * 4, 4), memcpy(x, b + i / cols * RANK * 4, sizeof x);
        for (int k = 0; k < RANK; k++) {
            memcpy(&y, a + (k * cols + i % cols) * 4, 4);
            delta += (double)x[k] * (double)y;
        }
        if (!(fabs(w + (double)alpha / RANK * delta - wanted) <= 1e-6))
            fail_msg("%s: value %d is %g merged, and %g + %g with the adapter", name, (int)i, (double)wanted, (double)w,
                     (double)alpha / RANK * delta);
    }
    free(f.bytes);
    o.type = PT_EXPORT_Q8_0;
    assert_int_equal(pt_export(&o, &e), PT_USAGE);
    o.type = PT_EXPORT_F32;
    o.adapter = PT_FIXTURES "/adapters/llama_dora";
    assert_int_equal(pt_export(&o, &e), PT_FAILED);
    o.adapter = NULL;
    assert_int_equal(pt_export(&o, &e), PT_USAGE);
}


/* The values are those of a merged folder's file, and not the base's. */
static void an_adapter_is_merged_on_the_way(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "phi3"}, *const tensors[] = {"blk.0.attn_output.weight", "blk.1.ffn_down.weight"};
    for (size_t i = 0; i < 2; i++) {
        char adapter[300], out[300], file[300], merged[300];
        pt_error e = {0};
        pt_export_options o;
        pt_merge_options m;
        const char *folder = fixture_folder(names[i]), *a, *b, *c;
        add_plain_tokenizer(folder);
        gguf_file base = exported(folder, PT_EXPORT_F32);
        snprintf(adapter, sizeof adapter, PT_FIXTURES "/adapters/%s", names[i]);
        snprintf(merged, sizeof merged, "%s_merged", folder);
        snprintf(out, sizeof out, "%s.adapted.gguf", folder);
        snprintf(file, sizeof file, "%s.modelfile", folder);
        pt_merge_defaults(&m);
        m.model = folder;
        m.adapter = (const char *const[]){adapter}, m.adapter_n = 1;
        m.out = merged;
        m.save_type = PT_SAVE_F32;
        if (pt_merge(&m, &e))
            fail_msg("%s", e.text);
        gguf_file of_folder = exported(merged, PT_EXPORT_F32);
        pt_export_defaults(&o);
        o.model = folder;
        o.adapter = adapter;
        o.out = out;
        o.modelfile = file;
        o.type = PT_EXPORT_F32;
        if (pt_export(&o, &e))
            fail_msg("%s", e.text);
        gguf_file f = gguf_load(out);
        bool changed = false;
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(gguf_tensor_of(&f, tensors[k], &a), GGUF_F32);
            gguf_tensor_of(&of_folder, tensors[k], &b);
            gguf_tensor_of(&base, tensors[k], &c);
            assert_memory_equal(a, b, 24 * 24 * 4);
            changed = changed || memcmp(a, c, 24 * 24 * 4);
        }
        assert_true(changed);
        assert_int_equal(f.tensors, base.tensors);
        check_alone(&o, &base, &of_folder, "blk.1.attn_output.weight", i ? 40 : 24, i ? 40 : 24);
        if (!i) {
            check_alone(&o, &base, &of_folder, "blk.0.attn_q.weight", 24, 24); /* whose rows have another order there */
            check_alone(&o, &base, &of_folder, "blk.0.ffn_gate.weight", 40, 24);
            check_alone(&o, &base, &of_folder, "blk.0.ffn_up.weight", 40, 24);
            check_alone(&o, &base, &of_folder, "blk.1.ffn_down.weight", 24, 40);
        }
        char *text, line[200];
        size_t n;
        assert_int_equal(file_read_all(file, 1 << 20, &text, &n, &e), 0);
        snprintf(line, sizeof line, "\nFROM ./%s.adapted.gguf\n", names[i]);
        assert_non_null(strstr(text, line));
        free(text);
        assert_int_equal(pt_export(&o, &e), 0); /* both are replaced */
        put_text(folder, "notes", "mine");
        snprintf(file, sizeof file, "%s/notes", folder);
        assert_int_equal(pt_export(&o, &e), PT_FAILED);
        assert_non_null(strstr(e.text, "`modelfile`"));
        free(f.bytes);
        free(of_folder.bytes);
        free(base.bytes);
    }
}

static void keep_notice(void *arg, const char *sentence) { snprintf(arg, 512, "%s", sentence); }

static void tokens_without_a_row_are_named(void **state)
{
    (void)state;
    const char *folder = fixture_folder("mistral");
    char said[512] = "", tokenizer[300], out[300], number[32];
    pt_error e = {0};
    add_plain_tokenizer(folder);
    const int64_t rows = vocab_of(folder);
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", folder);
    json_t *all = json_load_file(tokenizer, 0, NULL);
    for (int i = 1; i < 3; i++)
        json_array_append_new(json_object_get(all, "added_tokens"),
                              json_pack("{s:I, s:s, s:b}", "id", (json_int_t)(rows + i), "content", i == 1 ? "<|tool|>" : "<|other|>",
                                        "special", 1));
    put_json(folder, "tokenizer.json", all);
    snprintf(out, sizeof out, "%s.gguf", folder);
    pt_export_options o;
    pt_export_defaults(&o);
    o.model = folder;
    o.out = out;
    o.notice = keep_notice;
    o.arg = said;
    if (pt_export(&o, &e))
        fail_msg("%s", e.text);
    snprintf(number, sizeof number, "id %lld", (long long)rows + 1);
    if (!strstr(said, "2 tokens") || !strstr(said, number) || !strstr(said, "<|tool|>"))
        fail_msg("the note should name 2 tokens, %s and <|tool|>: \"%s\"", number, said);
}

#define REGEX(words, digits)                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" digits                             \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+"                                                                                     \
    "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+" words
#define SPLIT(regex)                                                                                                   \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex             \
    "\"}, \"behavior\": "                                                                                              \
    "\"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}"
#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"

static void cuts_into_words_have_names(void **state)
{
    (void)state;
    static const struct { const char *pre, *model, *name;
    } all[] = {
        {BYTE_LEVEL, "{}", "gpt-2"},
        {"{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": true}, " BYTE_LEVEL
         "]}",
         "{}", "smollm"},
        {SPLIT(REGEX("", "{1,3}")), "{\"ignore_merges\": true}", "llama-bpe"},
        {SPLIT(REGEX("", "{1,3}")), "{}", "dbrx"},
        {SPLIT(REGEX("", "")), "{}", "qwen2"},
        {SPLIT(REGEX("", "")), "{\"ignore_merges\": true}", NULL},
        {SPLIT(REGEX("|x", "")), "{}", NULL},
        {BYTE_LEVEL, "{\"ignore_merges\": true}", NULL},
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", "{}", NULL},
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}", "{}", NULL},
        {"{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Punctuation\"}, " BYTE_LEVEL "]}", "{}", NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pt_error e = {0};
        const char *name = NULL;
        char text[2048];
        snprintf(text, sizeof text, "{\"pre_tokenizer\": %s, \"model\": %s}", all[i].pre, all[i].model);
        json_t *root = json_loads(text, 0, NULL);
        assert_non_null(root);
        const int status = gguf_word_cut_name("tokenizer.json", root, &name, &e);
        if (all[i].name)
            assert_true(!status && !strcmp(name, all[i].name));
        else
            assert_true(status && strstr(e.text, "tokenizer.json: llama.cpp has no such pre_tokenizer"));
        json_decref(root);
    }
}

static void what_llama_cpp_does_not_know_is_refused(void **state)
{
    (void)state;
    char *out = strdup(scratch_path("refused.gguf"));
    static const struct { const char *name, *sentence;
    } all[] = {{"opt", "model_type is \"opt\", which llama.cpp does not know"},
               {"gpt2_erf_untied", "another activation"},
               {"olmo2", "a bias of attention's output"},
               {"qwen3_window", "a bias of attention's output"},
               {"olmo3", "other than 32, 1 and true"},
               {"qwen3_moe", "layers without experts"},
               {"olmoe", "fewer heads of keys and values"},
               {"dots1", "fewer heads of keys and values"},
               {"gpt_oss", "other than 32, 1 and true"},
               {"qwen3_5", "keys and values of different sizes"},
               {"qwen3_next", "layers without experts"},
               {"bamba", "limits of its steps"},
               {"deepseek_v3", "no GGUF file can be written"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *folder = fixture_folder(all[i].name);
        add_plain_tokenizer(folder);
        scratch_put("refused.gguf", "GGUF0", 5); /* an older one */
        refuses(folder, out, all[i].sentence);
        char *bytes;
        size_t n;
        pt_error e = {0};
        assert_int_equal(file_read_all(out, 100, &bytes, &n, &e), 0);
        assert_true(n == 5 && !path_exists(scratch_path("refused.gguf.tmp")));
        free(bytes);
    }
    const char *folder = fixture_folder("gpt2");
    add_plain_tokenizer(folder);
    refuses(folder, scratch, "is a folder");
    unlink(scratch_path("gpt2/tokenizer.json"));
    put_text(folder, "tokenizer.json",
             "{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, "
             "\"merges\": []}}");
    refuses(folder, out, "llama.cpp does not know");
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_of_ggml), cmocka_unit_test(some_matrices_get_more_bits),
        cmocka_unit_test(matrices_are_counted_where_layers_lack_them),
        cmocka_unit_test(files_are_those_that_llama_cpp_ran),
        cmocka_unit_test(rows_of_a_head_are_put_pair_by_pair),
        cmocka_unit_test(experts_are_one_tensor_of_each_kind),
        cmocka_unit_test(states_of_qwen3_5_are_in_llama_cpps_order), cmocka_unit_test(other_states_are_as_in_the_checkpoint),
        cmocka_unit_test(experts_of_gpt_oss_are_told_apart),
        cmocka_unit_test(types_are_what_was_asked_for),
        cmocka_unit_test(an_adapter_is_merged_on_the_way),
        cmocka_unit_test(a_vocabulary_is_told), cmocka_unit_test(tokens_without_a_row_are_named),
        cmocka_unit_test(cuts_into_words_have_names),
        cmocka_unit_test(what_llama_cpp_does_not_know_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
