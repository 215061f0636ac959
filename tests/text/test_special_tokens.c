/* What tokenizer_config.json says of a text's ends, beside tokenizer.json's template: as AutoTokenizer of Transformers 5 has it. */
#include "text/support.h"

#include "io/scratch.h"

static const char without_template[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<s>\": 1, \"</s>\": 2}, \"merges\": []}}";
static const char with_template[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<s>\": 1, \"</s>\": 2}, \"merges\": []}, \"post_processor\": "
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}}}";

typedef struct ends { int64_t bos; size_t after; } ends;

static ends ends_of(const char *tokenizer_json, const char *config, const char *map)
{
    pair p;
    pt_error e = {0};
    tree_remove(scratch_path("model"), NULL);
    if (dir_make(scratch_path("model"), &e))
        fail_msg("%s", e.text);
    scratch_put("model/tokenizer.json", tokenizer_json, strlen(tokenizer_json));
    if (config)
        scratch_put("model/tokenizer_config.json", config, strlen(config));
    if (map)
        scratch_put("model/special_tokens_map.json", map, strlen(map));
    if (tokenizer_open(scratch_path("model"), &p.t, &e))
        fail_msg("%s", e.text);
    pair_open_encoder(&p);
    id_list ids = encode(&p, "a", 1, ENCODE_TEMPLATE);
    ends found = {tokenizer_bos(p.t), tokenizer_template_after(p.t)};
    assert_int_equal(ids.n, 1 + (found.bos >= 0) + found.after);
    assert_int_equal(ids.ids[found.bos >= 0], 0);
    if (found.after)
        assert_int_equal(ids.ids[ids.n - 1], 2);
    id_list_free(&ids);
    pair_close(&p);
    return found;
}

static void check(const char *tokenizer_json, const char *config, const char *map, int64_t bos, size_t after)
{
    ends found = ends_of(tokenizer_json, config, map);
    assert_int_equal(found.bos, bos);
    assert_int_equal(found.after, after);
}

static void flags_of_the_config_replace_the_template(void **state)
{
    (void)state;
    static const char tokens[] = "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}";
    char config[300];
    check(without_template, NULL, NULL, -1, 0);
    check(with_template, NULL, NULL, 1, 0);
    snprintf(config, sizeof config, "%s}", tokens);
    check(with_template, config, NULL, 1, 0);
    check(without_template, config, NULL, -1, 0);
    snprintf(config, sizeof config, "%s, \"add_bos_token\": true}", tokens);
    check(without_template, config, NULL, 1, 0);
    snprintf(config, sizeof config, "%s, \"add_bos_token\": true, \"add_eos_token\": true}", tokens);
    check(without_template, config, NULL, 1, 1);
    check(with_template, config, NULL, 1, 1);
    snprintf(config, sizeof config, "%s, \"add_bos_token\": false}", tokens);
    check(with_template, config, NULL, -1, 0);
}

static void a_begin_without_a_token_is_none(void **state)
{
    (void)state;
    check(without_template, "{\"add_bos_token\": true, \"bos_token\": null}", NULL, -1, 0);
    check(without_template, "{\"add_bos_token\": true}", "{\"bos_token\": \"<s>\"}", 1, 0);
    check(without_template, "{\"add_eos_token\": true}", NULL, -1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_of_the_config_replace_the_template),
        cmocka_unit_test(a_begin_without_a_token_is_none),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
