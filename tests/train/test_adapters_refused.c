/* Options and adapters that are refused, and which modules PEFT's targets name. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"
#include "train/adapted.h"

/* ---- refusals ---- */

static void expect(const pt_train_options *o, const char *word)
{
    pt_trainer *t;
    pt_error e = {0};
    assert_true(pt_trainer_open(o, &t, &e) < 0);
    if (!strstr(e.text, word))
        fail_msg("'%s' is not in: %s", word, e.text);
}

static void options_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    adapted a;
    pt_train_options plain, o;
    char out[200];
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/refused", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &plain);
    plain.adapter = NULL;
    plain.lora_rank = 4;
#define REFUSED(change, word) o = plain, (change), expect(&o, word)
    REFUSED(o.lora_rank = -1, "`lora_rank` is -1");
    REFUSED(o.lora_targets = "q_proj,lm_head", "'lm_head' is not a linear layer");
    REFUSED(o.lora_targets = "", "`lora_targets`");
    REFUSED((o.lora_dropout = 0.1, o.dora = true), "`lora_dropout` is 0.1");
    REFUSED(o.lora_dropout = 1, "`lora_dropout` is 1");
    REFUSED((o.lora_rank = 0, o.lora_dropout = 0.1), "`lora_dropout` needs an adapter");
    REFUSED((o.lora_rank = 0, o.train_also = "lm_head"), "`train_also` needs an adapter");
    REFUSED(o.train_also = "lm_head,q_proj", "'q_proj' is not a module outside the layers of this model; it has embed_tokens, norm, ");
    REFUSED(o.lora_alpha = -1, "`lora_alpha` is -1");
    REFUSED(o.lora_alpha = 1e7, "`lora_alpha` is 10000000"); /* adapter_config.json could not be read again */
    REFUSED(o.adapter = a.folder, "leave out `lora_rank`");
    REFUSED(o.optimizer = PT_OPTIMIZER_MUON, "`optimizer` muon");
    REFUSED(o.optimizer = PT_OPTIMIZER_GALORE, "`optimizer` galore");
    REFUSED(o.optimizer_args = "rank=8", "leave it out");
    REFUSED(o.save_type = PT_SAVE_BF16, "`save_type`");
    REFUSED((o.freeze = (const char *const[]){"*"}, o.freeze_n = 1), "`freeze`");
    REFUSED((o.lora_rank = 0, o.dora = true), "`dora`");
    fixture_close(&a.f);
}

/* Writes bytes over the first place of the file that reads `text`, or over its end. */
static void overwrite(const char *folder, const char *text, const void *bytes, size_t n)
{
    char path[600], *all;
    size_t size, at;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, folder);
    must(file_read_all(path, 1 << 28, &all, &size, &e), &e);
    for (at = 0; text && memcmp(all + at, text, strlen(text));)
        at++;
    memcpy(all + (text ? at : size - n), bytes, n);
    must(file_write_atomic(path, all, size, &e), &e);
    free(all);
}

static void set_key(const char *folder, const char *key, json_t *value)
{
    char path[600];
    json_t *config;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/" ADAPTER_CONFIG, folder);
    must(json_file_load(path, 0, &config, &e), &e);
    json_object_set_new(config, key, value);
    must(file_write_json(path, config, &e), &e);
    json_decref(config);
}

/* A copy whose config denies them. */
static const char *no_magnitudes(const adapted *dora, char *copy, size_t n)
{
    snprintf(copy, n, "%s/no_magnitudes", scratch);
    copy_adapter(dora, copy, "use_dora", json_false());
    return copy;
}

static void adapters_that_do_not_belong_are_refused(void **state)
{
    (void)state;
    adapted a, neox, dora;
    pt_train_options o;
    char out[200], copy[200];
    adapted_open(&a, "llama");
    adapted_open(&neox, "gpt_neox_dora");
    adapted_open(&dora, "llama_dora");
    snprintf(out, sizeof out, "%s/refused", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.adapter = neox.folder;
    expect(&o, "another model");
    o.adapter = a.f.folder;
    expect(&o, ADAPTER_CONFIG);
    int n = 0;
#define CONFIG(key, value, word)                                                                                                           \
    snprintf(copy, sizeof copy, "%s/copy%d", scratch, n++), copy_adapter(&a, copy, key, value), o.adapter = copy, expect(&o, word)
    CONFIG("modules_to_save", json_pack("[s]", "lm_head"), "has no such tensor");
    CONFIG("modules_to_save", json_pack("[s]", "q_proj"), "only modules outside the layers");
    CONFIG("modules_to_save", json_pack("{s:i}", "lm_head", 1), "must be a list");
    CONFIG("modules_to_save", json_pack("[i]", 1), "is no name");
    CONFIG("peft_type", json_string("IA3"), "IA3");
    CONFIG("bias", json_string("all"), "bias");
    CONFIG("init_lora_weights", json_string("pissa"), "pissa");
    CONFIG("layer_replication", json_pack("[[i, i]]", 0, 1), "layer_replication");
    CONFIG("something_new", json_integer(3), "something_new");
    CONFIG("r", json_integer(8), "rank");
    CONFIG("rank_pattern", json_pack("{s:i}", "q_proj", 9), "rank");
    CONFIG("rank_pattern", json_pack("{s:i}", "(q_proj", 4), "regular expression");
    CONFIG("use_dora", json_true(), "lora_magnitude_vector");
    CONFIG("lora_alpha", json_string("16"), "lora_alpha");
    CONFIG("lora_dropout", json_real(1), "lora_dropout");
    CONFIG("target_modules", json_integer(3), "\"target_modules\" is an integer");
    CONFIG("target_modules", json_pack("[i]", 3), "\"target_modules\" is a list of something else");
    CONFIG("target_modules", json_pack("[s]", "nonsense"), "\"target_modules\" leaves model.layers.0.self_attn.q_proj out");
    CONFIG("target_modules", json_string("q_proj"), "\"target_modules\" leaves model.layers.0.self_attn.q_proj out");
    CONFIG("target_modules", json_string(".*[qk"), "regular expression");
    CONFIG("exclude_modules", json_pack("[s]", "layers.1.mlp.up_proj"), "\"exclude_modules\" leaves model.layers.1.mlp.up_proj out");
    CONFIG("layers_to_transform", json_pack("[i]", 0), "\"layers_to_transform\" leaves model.layers.1.self_attn.q_proj out");
    CONFIG("layers_to_transform", json_string("0"), "\"layers_to_transform\"");
    CONFIG("layers_pattern", json_string("layers"), "\"layers_pattern\" has no meaning");
    CONFIG("rank_pattern", json_pack("{s:f}", "nothing", 2.5), "rank_pattern");
    CONFIG("rank_pattern", json_pack("[i]", 2), "rank_pattern");
    CONFIG("alpha_pattern", json_pack("{s:s}", "nothing", "2"), "alpha_pattern");
    CONFIG("alpha_pattern", json_pack("{s:i}", "(nothing", 2), "regular expression");
    CONFIG("fan_in_fan_out", json_string("no"), "fan_in_fan_out");
    CONFIG("task_type", json_integer(1), "task_type");
    CONFIG("use_dora", json_integer(1), "use_dora");
    CONFIG("bias", json_false(), "bias");
    o.adapter = no_magnitudes(&dora, copy, sizeof copy);
    o.model = dora.f.folder;
    expect(&o, "\"use_dora\" is false");
    fixture_close(&a.f);
    fixture_close(&neox.f);
    fixture_close(&dora.f);
}

/* What the config adapts is read as PEFT reads it. */
static void targets_are_pefts(void **state)
{
    (void)state;
    adapted a;
    heard s = {0};
    pt_error e = {0};
    char copy[200];
    int n = 0;
    adapted_open(&a, "llama");
#define TAKEN(key, value, also, other)                                                                                                     \
    do {                                                                                                                                   \
        model *m;                                                                                                                          \
        snprintf(copy, sizeof copy, "%s/taken%d", scratch, n++);                                                                           \
        copy_adapter(&a, copy, key, value);                                                                                                \
        if (also)                                                                                                                          \
            set_key(copy, also, other);                                                                                                    \
        must(model_open(a.f.folder, NULL, NULL, &m, &e), &e);                                                                              \
        must(model_adapt_like(m, copy, hear, &s, &e), &e);                                                                                 \
        model_close(m);                                                                                                                    \
    } while (0)
    const char *nothing = NULL;
    TAKEN("target_modules", json_string("all-linear"), nothing, NULL);
    TAKEN("target_modules", json_null(), nothing, NULL);
    TAKEN("target_modules", json_string(".*\\.(self_attn|mlp)\\.[a-z]+_proj"), nothing, NULL);
    TAKEN("target_modules",
          json_pack("[s, s, s, s, s, s, s, s]", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "mlp.up_proj", "down_proj", "c_attn"),
          nothing, NULL);
    TAKEN("layers_to_transform", json_pack("[i, i]", 1, 0), "layers_pattern", json_string("layers"));
    TAKEN("layers_to_transform", json_pack("[i, i]", 0, 1), "layers_pattern", json_pack("[s, s]", "h", "layers"));
    TAKEN("exclude_modules", json_string("model\\.layers\\.7.*"), nothing, NULL);
    assert_string_equal(s.text, "");
    TAKEN("alpha_pattern", json_pack("{s:i}", "nothing", 2), nothing, NULL);
    assert_non_null(strstr(s.text, "\"nothing\" of \"alpha_pattern\" matches no module"));
    fixture_close(&a.f);
}

/* Of finite values, which only together are too much. */
static void an_adapter_that_makes_weights_infinite_is_not_merged(void **state)
{
    (void)state;
    adapted a;
    pt_merge_options o;
    pt_error e = {0};
    char out[200], copy[200];
    const float large[] = {FLT_MAX, FLT_MAX, FLT_MAX, FLT_MAX};
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/infinite", scratch);
    snprintf(copy, sizeof copy, "%s/large", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, NULL, large, sizeof large);
    pt_merge_defaults(&o);
    o.model = a.f.folder;
    o.adapter = (const char *const[]){copy};
    o.adapter_n = 1;
    o.out = out;
    assert_int_equal(pt_merge(&o, &e), PT_FAILED);
    if (!strstr(e.text, copy) || !strstr(e.text, "of model.layers.") || !strstr(e.text, "is not finite"))
        fail_msg("%s", e.text);
    assert_false(path_exists(out));
    fixture_close(&a.f);
}

static void damaged_adapters_are_refused(void **state)
{
    (void)state;
    adapted a;
    pt_train_options o;
    char out[200], copy[200];
    const float bad = NAN;
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/refused", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.adapter = copy;
    snprintf(copy, sizeof copy, "%s/nan", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, NULL, &bad, sizeof bad);
    expect(&o, "not finite");
    snprintf(copy, sizeof copy, "%s/name", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, "layers.1.self_attn.q_proj.lora_B", "layers.7", 8);
    expect(&o, "lora_B");
    snprintf(copy, sizeof copy, "%s/embedding", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, "layers.1.self_attn.v_proj.lora_A.weight", "layers.9", 8);
    overwrite(copy, "layers.1.self_attn.v_proj.lora_B.weight", "layers.9", 8);
    expect(&o, "layers.9");
    fixture_close(&a.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_mean_nothing_are_refused),
        cmocka_unit_test(adapters_that_do_not_belong_are_refused),
        cmocka_unit_test(targets_are_pefts),
        cmocka_unit_test(damaged_adapters_are_refused),
        cmocka_unit_test(an_adapter_that_makes_weights_infinite_is_not_merged),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
