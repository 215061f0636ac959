/* Patterns for a set of parameters match its tensors and no others, for every kind of model and random sets. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/patterns.h"
#include "seed.h"
#include "train/fixture.h"

static uint64_t seed, draws;

static uint32_t word(void)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 91, draws++, w);
    return w[0];
}

/* Returns the number of patterns. */
static int check_set(model *m, const bool *set)
{
    name_patterns p;
    pt_error e = {0};
    must(patterns_of(m, set, &p, &e), &e);
    const model_freezing f = {.train_only = (const char *const *)p.pattern, .train_only_n = p.n};
    must(model_freeze(m, &f, &e), &e);
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].trainable != set[i] && m->params[i].kind->use != USE_CORRECTION)
            fail_msg("%s is %strained", m->params[i].part[0].name, set[i] ? "not " : "");
    const int n = p.n;
    patterns_close(&p);
    return n;
}

static void check_model(model *m)
{
    bool *set = calloc((size_t)m->params_n, sizeof *set);
    assert_non_null(set);
    for (int turn = 0; turn < 5; turn++) {
        const uint32_t share = 1 + word() % 4;
        bool any = false;
        for (int i = 0; i < m->params_n; i++) {
            set[i] = (!turn || word() % 4 < share) && m->params[i].kind->use != USE_CORRECTION && m->params[i].kind->use != USE_CONSTANT;
            any = any || set[i];
        }
        if (any)
            check_set(m, set);
    }
    free(set);
}

static void of_fixture(const char *name)
{
    fixture f;
    fixture_open(&f, "models", name);
    print_message("%s\n", name);
    check_model(f.model);
    fixture_close(&f);
}

static void random_sets_of_every_architecture(void **state)
{
    (void)state;
    assert_true(each_model_fixture(of_fixture) > 20);
}

/* A Llama of n layers; sets of whole layers. */
static model *deep(int layers)
{
    char path[300];
    model *m;
    pt_error e = {0};
    json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s}", "model_type", "llama", "hidden_size", 64,
                               "intermediate_size", 64, "num_hidden_layers", layers, "num_attention_heads", 2, "num_key_value_heads", 2,
                               "vocab_size", 64, "max_position_embeddings", 64, "rms_norm_eps", 1e-5, "hidden_act", "silu");
    snprintf(path, sizeof path, "%s/config.json", scratch);
    must(file_write_json(path, config, &e), &e);
    json_decref(config);
    must(model_open(path, NULL, NULL, &m, &e), &e);
    return m;
}

static void numbers_of_layers_become_ranges(void **state)
{
    (void)state;
    model *m = deep(126);
    bool *set = calloc((size_t)m->params_n, sizeof *set);
    const struct { int first, last, most; } cases[] = {{0, 9, 1}, {0, 125, 4}, {20, 39, 1}, {100, 119, 1}, {7, 12, 2}, {95, 104, 2}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int kinds = 0;
        for (int i = 0; i < m->params_n; i++) {
            const int layer = m->params[i].block - 1;
            set[i] = m->params[i].kind->block == BLOCK_LAYER && layer >= cases[c].first && layer <= cases[c].last;
            kinds += set[i] && layer == cases[c].last ? m->params[i].parts : 0;
        }
        const int n = check_set(m, set);
        if (n > kinds * cases[c].most)
            fail_msg("%d patterns for %d names of layers %d to %d", n, kinds, cases[c].first, cases[c].last);
    }
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < m->params_n; i++)
            set[i] = word() % 3 == 0;
        check_set(m, set);
    }
    free(set);
    model_close(m);
}

/* Each expert is a tensor of its own: two names of a layer's first matrices, one of the last. */
static void experts_are_one_pattern(void **state)
{
    (void)state;
    static const char *const names[] = {"mixtral", "qwen3_moe"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        fixture f;
        fixture_open(&f, "models", names[k]);
        const model *m = f.model;
        bool *set = calloc((size_t)m->params_n, sizeof *set);
        int tensors = 0;
        for (int i = 0; i < m->params_n; i++) {
            set[i] = m->params[i].role == PARAM_EXPERTS_UP || m->params[i].role == PARAM_EXPERTS_DOWN;
            tensors += set[i] ? m->params[i].parts : 0;
        }
        assert_true(tensors > 10);
        assert_int_equal(check_set(f.model, set), 3);
        free(set);
        fixture_close(&f);
    }
}

static void ranges_in_words(void **state)
{
    (void)state;
    const bool layers[12] = {true, true, true, false, true, false, false, true, true, false, false, true};
    char text[64];
    assert_string_equal(layer_ranges(layers, 12, text, sizeof text), "0-2, 4, 7-8, 11");
    assert_string_equal(layer_ranges(layers, 0, text, sizeof text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_sets_of_every_architecture),
                                       cmocka_unit_test(numbers_of_layers_become_ranges), cmocka_unit_test(experts_are_one_pattern),
                                       cmocka_unit_test(ranges_in_words)};
    seed = test_seed();
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
