/* What is put around a text is what tokenizer.json's template says, whatever tokenizer_config.json's flags are: the ids that AutoTokenizer
 * of Transformers 5.24 gave for these files, with LlamaTokenizerFast, GPT2Tokenizer, Qwen2Tokenizer and PreTrainedTokenizerFast. */
#include "text/support.h"

#include "io/scratch.h"

static const char without_template[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<s>\": 1, \"</s>\": 2}, \"merges\": []}}";
static const char with_template[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<s>\": 1, \"</s>\": 2}, \"merges\": []}, \"post_processor\": "
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": "
    "[\"<s>\"]}}}}";

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

static void the_template_alone_counts(void **state)
{
    (void)state;
    static const char *const configs[] = {
        NULL,
        "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}}",
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_bos_token\": true, \"add_eos_token\": true}",
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_bos_token\": false}",
        "{\"bos_token\": \"<s>\", \"add_bos_token\": null}",
        "{\"bos_token\": null, \"add_bos_token\": true}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        check(with_template, configs[i], NULL, 1, 0);
        check(without_template, configs[i], NULL, -1, 0);
    }
    check(without_template, "{\"add_bos_token\": true}", "{\"bos_token\": \"<s>\"}", -1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_template_alone_counts)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
