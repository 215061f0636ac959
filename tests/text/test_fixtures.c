/* Ids of the Hugging Face library, stored by fixtures/make_tokenizers.py. */
#include "text/support.h"

#define WORD_START "\xe2\x96\x81"

/* `loses`: texts that cannot come back hold this; NULL: all come back. */
static void check_fixture(const char *name, bool comes_back, const char *loses)
{
    json_t *root = fixture_open(name);
    const json_t *cases = json_object_get(root, "cases");
    pair p;
    checking = name;
    pair_open_json(&p, json_object_get(root, "tokenizer"));
    check_cases(&p, cases);
    for (size_t i = 0; comes_back && i < json_array_size(cases); i++) {
        const json_t *value = json_object_get(json_array_get(cases, i), "text");
        const char *text = json_string_value(value);
        size_t n = json_string_length(value);
        if (loses && strstr(text, loses))
            continue;
        id_list ids = encode(&p, text, n, 0);
        assert_decodes_to(&p, &ids, text, n);
        id_list_free(&ids);
    }
    pair_close(&p);
    json_decref(root);
}

static void gpt2_in_its_old_layout(void **state) { check_fixture("gpt2", true, NULL); }
static void llama3_with_ignored_merges_and_a_sequence_of_post_processors(void **state) { check_fixture("llama3", true, NULL); }
static void qwen2_normalizes_to_nfc(void **state) { check_fixture("qwen2", false, NULL); }
static void digits_prefix_space_and_added_tokens_that_strip(void **state) { check_fixture("digits", false, NULL); }
static void sentence_piece_with_byte_fallback(void **state) { check_fixture("llama2", true, WORD_START); }
static void merges_over_spaces_without_byte_tokens(void **state) { check_fixture("over_spaces", false, NULL); }
static void metaspace_at_the_first_word_only(void **state) { check_fixture("metaspace", false, NULL); }

static void every_variant_of_the_sections(void **state)
{
    json_t *root = fixture_open("variants");
    const json_t *variants = json_object_get(root, "variants");
    assert_true(json_array_size(variants) > 50);
    for (size_t i = 0; i < json_array_size(variants); i++) {
        const json_t *variant = json_array_get(variants, i);
        json_t *file = json_pack("{s:O}", "model", json_object_get(root, "model"));
        json_object_update(file, json_object_get(variant, "sections"));
        char *sections = json_dumps(json_object_get(variant, "sections"), JSON_COMPACT);
        checking = sections;
        pair p;
        pair_open_json(&p, file);
        check_cases(&p, json_object_get(variant, "cases"));
        pair_close(&p);
        json_decref(file);
        checking = "";
        free(sections);
    }
    json_decref(root);
}

static void plain_text_has_no_special_tokens(void **state)
{
    static const char text[] = "ba<|endoftext|> ko";
    json_t *root = fixture_open("gpt2");
    pair p;
    pair_open_json(&p, json_object_get(root, "tokenizer"));
    uint32_t special = (uint32_t)tokenizer_find(p.t, "<|endoftext|>");
    for (unsigned plain = 0; plain < 2; plain++) {
        id_list ids = encode(&p, text, strlen(text), plain ? ENCODE_PLAIN : 0);
        size_t n_special = 0;
        for (size_t i = 0; i < ids.n; i++)
            n_special += ids.ids[i] == special;
        assert_int_equal(n_special, !plain);
        assert_decodes_to(&p, &ids, text, strlen(text));
        id_list_free(&ids);
    }
    pair_close(&p);
    json_decref(root);
}

/* id after id, as they come while a model generates */
static void streamed_bytes_are_those_of_the_whole(void **state)
{
    static const char text[] = "  Bako \xe6\x97\xa5\xff tu 12";
    json_t *root = fixture_open("llama2");
    pair p;
    pt_error e = {0};
    text_buffer streamed = {.bytes = malloc(256), .capacity = 256};
    pair_open_json(&p, json_object_get(root, "tokenizer"));
    id_list ids = encode(&p, text, strlen(text), ENCODE_TEMPLATE);
    assert_true(ids.ids[0] == tokenizer_bos(p.t));
    bool first = true;
    for (size_t i = 0; i < ids.n; i++) {
        const char *bytes;
        size_t n;
        assert_int_equal(tokenizer_id_bytes(p.t, ids.ids[i], first, true, &bytes, &n, &e), 0);
        memcpy(streamed.bytes + streamed.n, bytes, n);
        streamed.n += n;
        first = first && ids.ids[i] == tokenizer_bos(p.t);
    }
    assert_int_equal(streamed.n, strlen(text));
    assert_memory_equal(streamed.bytes, text, streamed.n);
    text_buffer_free(&streamed);
    id_list_free(&ids);
    pair_close(&p);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_in_its_old_layout),
        cmocka_unit_test(llama3_with_ignored_merges_and_a_sequence_of_post_processors),
        cmocka_unit_test(qwen2_normalizes_to_nfc),
        cmocka_unit_test(digits_prefix_space_and_added_tokens_that_strip),
        cmocka_unit_test(sentence_piece_with_byte_fallback),
        cmocka_unit_test(merges_over_spaces_without_byte_tokens),
        cmocka_unit_test(metaspace_at_the_first_word_only),
        cmocka_unit_test(every_variant_of_the_sections),
        cmocka_unit_test(plain_text_has_no_special_tokens),
        cmocka_unit_test(streamed_bytes_are_those_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
