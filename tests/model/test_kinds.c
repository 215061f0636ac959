/* Layers whose work costs the same are of one kind: the keys that they see, what they train, and whether backward passes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/adapter.h"

static model *model_of(int layers, bool tied)
{
    char json[400];
    model *m;
    pt_error e = {0};
    snprintf(json, sizeof json, "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 16, \"num_attention_heads\": 2, "
             "\"num_hidden_layers\": %d, \"intermediate_size\": 48, \"max_position_embeddings\": 4096, \"hidden_act\": \"silu\", "
             "\"tie_word_embeddings\": %s, \"bos_token_id\": 0, \"eos_token_id\": 0}", layers, tied ? "true" : "false");
    if (model_from_json("test", json, strlen(json), NULL, NULL, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

static void train_only(model *m, int block, int role)
{
    for (int i = 0; i < m->params_n; i++)
        m->params[i].trainable = m->params[i].block == block && (role < 0 || (int)m->params[i].role == role);
}

static layer_kinds kinds_of(const model *m)
{
    layer_kinds k;
    model_layer_kinds(m, 128, &k);
    return k;
}

static void alike_layers_are_one_kind(void **state)
{
    (void)state;
    model *m = model_of(6, false);
    assert_int_equal(kinds_of(m).n, 1);
    m->config.window[1] = m->config.window[4] = 32;
    m->config.window[2] = 128; /* sees everything, as 0 does */
    layer_kinds k = kinds_of(m);
    assert_int_equal(k.n, 2);
    for (int i = 0; i < 6; i++)
        assert_int_equal(k.of_layer[i], i == 1 || i == 4);
    assert_true(k.first[0] == 0 && k.first[1] == 1);
    model_close(m);
}

static void what_is_trained_makes_kinds(void **state)
{
    (void)state;
    model *m = model_of(6, false);
    train_only(m, 4, PARAM_UP);
    layer_kinds k = kinds_of(m);
    const unsigned char want[6] = {0, 0, 0, 1, 2, 2}; /* no backward; trains; passes gradients on */
    assert_int_equal(model_first_trained(m), 4);
    assert_int_equal(k.n, 3);
    assert_memory_equal(k.of_layer, want, sizeof want);
    model_close(m);
}

static void backward_ends_at_the_first_trained_block(void **state)
{
    (void)state;
    model *m = model_of(3, true);
    assert_int_equal(model_first_trained(m), 0);
    train_only(m, 4, PARAM_NORMF);
    assert_int_equal(model_first_trained(m), 4);
    train_only(m, 0, PARAM_TOKENS);
    assert_int_equal(model_first_trained(m), 0);
    train_only(m, -1, -1);
    assert_int_equal(model_first_trained(m), m->blocks_n);
    model_close(m);
}

/* The same trained set counts more than the window. */
static void too_many_kinds_share_the_most_alike(void **state)
{
    (void)state;
    model *m = model_of(MODEL_LAYER_KINDS + 2, false);
    for (int i = 0; i < MODEL_LAYER_KINDS + 2; i++)
        m->config.window[i] = 4 * (i + 1);
    for (int i = 0; i < m->params_n; i++)
        m->params[i].trainable = m->params[i].role != PARAM_UP || m->params[i].block == 1 || m->params[i].block > MODEL_LAYER_KINDS;
    layer_kinds k = kinds_of(m);
    assert_int_equal(k.n, MODEL_LAYER_KINDS);
    assert_int_equal(k.of_layer[MODEL_LAYER_KINDS], 0);
    assert_int_equal(k.of_layer[MODEL_LAYER_KINDS + 1], 0);
    model_close(m);
}

static double matmuls_of(const model *m, int first, int end)
{
    double n = 0;
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].block >= first && m->params[i].block < end && m->params[i].rows > 1)
            n += (double)(m->params[i].rows * m->params[i].cols);
    return n;
}

/* Forward 2 a parameter, its gradient 2, that of its input 2; of attention a third is forward. */
static void frozen_parameters_save_their_flops(void **state)
{
    (void)state;
    model *m = model_of(4, false);
    const double head = matmuls_of(m, 5, 6), layers = matmuls_of(m, 1, 5), layer = layers / 4;
    const double all = model_flops_per_token(m, 64), attention = (all - 6 * (head + layers)) / 4;
    assert_true(attention > 0);
    train_only(m, 5, PARAM_HEAD);
    assert_true(model_flops_per_token(m, 64) == 2 * layers + 4 * attention / 3 + 4 * head);
    train_only(m, 5, PARAM_NORMF);
    assert_true(model_flops_per_token(m, 64) == 2 * layers + 4 * attention / 3 + 4 * head);
    train_only(m, 3, PARAM_DOWN);
    const param *p = block_param(m, &m->blocks[3], PARAM_DOWN);
    const double down = (double)(p->rows * p->cols);
    assert_true(model_flops_per_token(m, 64) == 2 * 2 * layer + 2 * attention / 3 + 4 * 2 * layer + 2 * down + 2 * attention + 4 * head);
    model_close(m);
}

/* Modules that only some layers have do not make a list of layers. */
static void adapters_of_every_module_are_said_in_a_word(void **state)
{
    (void)state;
    static const char json[] = "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 64, \"hidden_size\": 16, \"num_attention_heads\": 2, "
                               "\"num_key_value_heads\": 1, \"head_dim\": 8, \"num_hidden_layers\": 4, \"intermediate_size\": 48, "
                               "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 2, \"linear_key_head_dim\": 4, "
                               "\"linear_value_head_dim\": 4, \"bos_token_id\": 0, \"eos_token_id\": 0}";
    static const struct { const char *targets, *said; } cases[] = {
        {"all-linear", "all linear layers,"}, {"attention", "attention,"}, {"mlp", "the MLP,"}, {"in_proj_z", "on in_proj_z,"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model *m;
        pt_error e = {0};
        char text[MODEL_TRAINED_TEXT];
        if (model_from_json("test", json, strlen(json), NULL, NULL, &m, &e) ||
            model_adapt(m, &(adapter_options){.rank = 2, .targets = cases[i].targets}, &e))
            fail_msg("%s", e.text);
        model_describe_trained(m, "adamw", text);
        if (!strstr(text, cases[i].said))
            fail_msg("%s: %s", cases[i].targets, text);
        model_close(m);
    }
}

/* PEFT would take modules of that name for the experts, so the MLPs of such a model have no adapters, and asking for them is refused. */
static void adapters_that_peft_would_misread_are_not_made(void **state)
{
    (void)state;
    static const char json[] = "{\"model_type\": \"%s\", \"vocab_size\": 64, \"hidden_size\": 16, \"num_attention_heads\": 2, "
                               "\"num_hidden_layers\": 4, \"head_dim\": 8, \"num_key_value_heads\": 2, \"shared_intermediate_size\": 8}";
    static const struct { const char *type, *said, *module; int mlp; } cases[] = {
        {"glm4_moe", "attention,", "up_proj", PT_USAGE}, {"qwen3_next", "attention,", "up_proj", PT_USAGE},
        {"mixtral", "attention,", "w1", PT_USAGE}, {"granitemoeshared", "all linear layers,", "input_linear", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int target = 0; target < 3; target++) {
            const char *targets = target == 1 ? cases[i].module : target ? "mlp" : NULL;
            char whole[sizeof json + 32], text[MODEL_TRAINED_TEXT];
            model *m;
            pt_error e = {0};
            snprintf(whole, sizeof whole, json, cases[i].type);
            if (model_from_json("test", whole, strlen(whole), NULL, NULL, &m, &e))
                fail_msg("%s", e.text);
            assert_int_equal(model_adapt(m, &(adapter_options){.rank = 2, .targets = targets}, &e), targets ? cases[i].mlp : 0);
            if (!targets) {
                model_describe_trained(m, "adamw", text);
                assert_non_null(strstr(text, cases[i].said));
            }
            else if (cases[i].mlp)
                assert_true(strstr(e.text, targets) && !strstr(e.text, "attention, mlp"));
            model_close(m);
        }
}

/* Whatever the first layer has: there, of Gemma 4, keys are values. */
static void modules_that_only_later_layers_have_are_targets(void **state)
{
    (void)state;
    static const char json[] = "{\"model_type\": \"gemma4_text\", \"vocab_size\": 64, \"hidden_size\": 16, \"num_attention_heads\": 2, "
                               "\"num_key_value_heads\": 1, \"head_dim\": 8, \"num_hidden_layers\": 3, \"intermediate_size\": 48, "
                               "\"hidden_size_per_layer_input\": 0, \"global_head_dim\": 16, \"attention_k_eq_v\": true, "
                               "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\"], \"bos_token_id\": 0, "
                               "\"eos_token_id\": 0}";
    model *m;
    pt_error e = {0};
    if (model_from_json("test", json, strlen(json), NULL, NULL, &m, &e) || model_adapt(m, &(adapter_options){.rank = 2}, &e))
        fail_msg("%s", e.text);
    for (int part = 0; part < 3; part++)
        assert_int_equal(adapter_at(m, 2, adapter_matrix(PARAM_QKV), part)->rank, 2);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_layers_are_one_kind),
        cmocka_unit_test(what_is_trained_makes_kinds),
        cmocka_unit_test(backward_ends_at_the_first_trained_block),
        cmocka_unit_test(too_many_kinds_share_the_most_alike),
        cmocka_unit_test(frozen_parameters_save_their_flops),
        cmocka_unit_test(adapters_that_peft_would_misread_are_not_made),
        cmocka_unit_test(adapters_of_every_module_are_said_in_a_word),
        cmocka_unit_test(modules_that_only_later_layers_have_are_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
