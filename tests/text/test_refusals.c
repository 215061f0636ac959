/* Files that are broken, or that ask for what is not there: an error that names it. */
#include "text/support.h"

static const char bare[] = "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}";

static void check_refused(const char *json, size_t n, const char *named)
{
    pt_error e = {0};
    tokenizer *t = NULL;
    if (tokenizer_open_memory("some/tokenizer.json", json, n, &t, &e) == 0)
        fail_msg("accepted: %.200s", json);
    assert_int_equal(e.code, PT_FAILED);
    if (strncmp(e.text, "some/tokenizer.json", 19) != 0 || !strstr(e.text, named) || strchr(e.text, '\n'))
        fail_msg("\"%s\" does not name \"%s\", for %.200s", e.text, named, json);
}

static void what_is_not_supported_is_named(void **state)
{
    static const struct { const char *sections, *named; } cases[] = {
        {"\"model\": {\"type\": \"Unigram\", \"vocab\": []}", "Unigram"},
        {"\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}", "WordPiece"},
        {"\"model\": {\"vocab\": {}}", "merges"},
        {"\"model\": 3", "model"},
        {"\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {}, \"merges\": []}", "dropout"},
        {"\"model\": {\"end_of_word_suffix\": \"</w>\", \"vocab\": {}, \"merges\": []}", "end_of_word_suffix"},
        {"\"model\": {\"continuing_subword_prefix\": \"##\", \"vocab\": {}, \"merges\": []}", "continuing_subword_prefix"},
        {"\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}", "\"b\""},
        {"\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}", "merges[0]"},
        {"\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}", "merges[0]"},
        {"\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]}", "merges[0]"},
        {"\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}", "merges[0]"},
        {"\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", 1]]}", "merges[0]"},
        {"\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}", "\"a\""},
        {"\"model\": {\"vocab\": {\"a\": 4000000000}, \"merges\": []}", "\"a\""},
        {"\"model\": {\"vocab\": {\"a\": 1.5}, \"merges\": []}", "\"a\""},
        {"\"model\": {\"vocab\": {\"a\": 1, \"b\": 1}, \"merges\": []}", "id 1"},
        {"\"model\": {\"unk_token\": \"<unk>\", \"vocab\": {\"a\": 1}, \"merges\": []}", "<unk>"},
        {"\"model\": {\"fuse_unk\": 1, \"vocab\": {\"a\": 1}, \"merges\": []}", "fuse_unk"},
        {"\"normalizer\": {\"type\": \"Precompiled\"}", "Precompiled"},
        {"\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"BertNormalizer\"}]}", "BertNormalizer"},
        {"\"normalizer\": {\"type\": \"Sequence\"}", "normalizers"},
        {"\"normalizer\": {\"type\": \"Prepend\"}", "prepend"},
        {"\"normalizer\": {}", "type"},
        {"\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}", "UnicodeScripts"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}}", "("},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a&&b]\"}}", "&&"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a[b]]\"}}", "class"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?m:a.)\"}}", "(?m"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(*UTF)a\"}}", "(*"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\C\"}}", "escape"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {}}", "pattern"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"-\"}, \"behavior\": \"Sideways\"}", "Sideways"},
        {"\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"__\"}", "replacement"},
        {"\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}", "last"},
        {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}", "Digits"},
        {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}", "single"},
        {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}", "<s>"},
        {"\"post_processor\": {\"type\": \"RobertaProcessing\", \"sep\": [\"x\", 77], \"cls\": [\"a\", 0]}", "77"},
        {"\"post_processor\": {\"type\": \"Other\"}", "Other"},
        {"\"decoder\": {\"type\": \"WordPiece\"}", "WordPiece"},
        {"\"decoder\": {\"type\": \"ByteLevel\"}", "ByteLevel"},
        {"\"decoder\": {\"type\": \"Strip\", \"content\": \"x\", \"start\": 1, \"stop\": 0}", "Strip"},
        {"\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"__\"}", "replacement"},
        {"\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\"}", "replacement"},
        {"\"added_tokens\": [{\"id\": 5}]", "added_tokens[0]"},
        {"\"added_tokens\": [{\"content\": \"x\"}]", "added_tokens[0]"},
        {"\"added_tokens\": [{\"content\": \"a\", \"id\": 3}]", "\"a\""},
        {"\"added_tokens\": [{\"content\": \"x\", \"id\": 1}]", "\"b\""},
        {"\"added_tokens\": [{\"content\": \"x\", \"id\": 5}, {\"content\": \"y\", \"id\": 5}]", "\"x\""},
        {"\"added_tokens\": [{\"content\": \"x\", \"id\": 5, \"lstrip\": \"yes\"}]", "lstrip"},
        {"\"added_tokens\": {}", "added_tokens"},
        {"\"tokens_of_tomorrow\": []", "tokens_of_tomorrow"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[1024];
        bool has_model = strncmp(cases[i].sections, "\"model\"", 7) == 0;
        int n = snprintf(json, sizeof json, "{%s%s%s}", cases[i].sections, has_model ? "" : ", ", has_model ? "" : bare);
        check_refused(json, (size_t)n, cases[i].named);
    }
}

/* {BEFORE ITEM, ITEM, ... AFTER, the bare model}, n items. */
static char *repeated(const char *before, const char *item, int n, const char *after)
{
    size_t room = strlen(before) + (size_t)n * (strlen(item) + 1) + strlen(after) + sizeof bare + 8;
    char *json = malloc(room), *at = json + sprintf(json, "{%s", before);
    for (int i = 0; i < n; i++)
        at += sprintf(at, "%s%s", i ? "," : "", item);
    sprintf(at, "%s, %s}", after, bare);
    return json;
}

static void what_would_take_all_memory_or_the_stack_is_refused(void **state)
{
    (void)state;
    static const char split[] = "{\"type\": \"Split\", \"pattern\": {\"String\": \"x\"}, \"behavior\": \"Isolated\"}";
    char content[1001], replace[1200];
    memset(content, 'a', sizeof content - 1);
    content[sizeof content - 1] = 0;
    snprintf(replace, sizeof replace, "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"%s\"}", content);
    char *cases[] = {repeated("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [", split, 50000, "]}"),
                     repeated("\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [", "{\"type\": \"NFC\"}", 50000, "]}"),
                     repeated("\"decoder\": {\"type\": \"Sequence\", \"decoders\": [", replace, 8, "]}")};
    static const char *const named[] = {"pre_tokenizer", "normalizer", "decoder"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_refused(cases[i], strlen(cases[i]), named[i]);
        free(cases[i]);
    }
}

static void a_space_may_be_written_as_a_null_character(void **state)
{
    (void)state;
    char json[256];
    tokenizer *t;
    pt_error e = {0};
    snprintf(json, sizeof json, "{\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\\u0000\"}, %s}", bare);
    if (tokenizer_open_memory("bare", json, strlen(json), &t, &e))
        fail_msg("%s", e.text);
    tokenizer_close(t);
}

static void broken_json_is_refused_at_its_place(void **state)
{
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP);
    memset(deep, '[', DEEP);
    check_refused(deep, DEEP, ":1:");
    free(deep);
    check_refused("", 0, ":");
    check_refused("{", 1, ":1:");
    check_refused("[]", 2, "object");
    check_refused("{\"model\": \"\xff\"}", 13, "UTF-8");
}

static void a_bare_model_opens_and_encodes(void **state)
{
    char json[256];
    tokenizer *t;
    pt_error e = {0};
    pair p;
    snprintf(json, sizeof json, "{%s}", bare);
    if (tokenizer_open_memory("bare", json, strlen(json), &t, &e))
        fail_msg("%s", e.text);
    p.t = t;
    pair_open_encoder(&p);
    id_list ids = encode(&p, "aab", 3, 0);
    assert_ids(&ids, (uint32_t[]){0, 2}, 2, "aab", 3);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), -1);
    assert_int_equal(tokenizer_find(t, "ab"), 2);
    assert_int_equal(tokenizer_find(t, "abc"), -1);
    id_list_free(&ids);
    pair_close(&p);
}

static void ids_beyond_the_vocabulary_are_refused(void **state)
{
    char json[256];
    tokenizer *t;
    pt_error e = {0};
    const char *bytes;
    size_t n;
    snprintf(json, sizeof json, "{\"model\": {\"vocab\": {\"a\": 3}, \"merges\": []}}");
    if (tokenizer_open_memory("bare", json, strlen(json), &t, &e))
        fail_msg("%s", e.text);
    assert_int_equal(tokenizer_id_bytes(t, 3, true, false, &bytes, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(tokenizer_id_bytes(t, 2, true, false, &bytes, &n, &e), PT_FAILED); /* a hole */
    assert_non_null(strstr(e.text, "2"));
    assert_int_equal(tokenizer_id_bytes(t, 4, true, false, &bytes, &n, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "4"));
    tokenizer_close(t);
}

/* ---- folders ---- */

static char folder[64];

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!text) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int64_t eos_of_folder(void)
{
    tokenizer *t;
    pt_error e = {0};
    if (tokenizer_open(folder, &t, &e))
        fail_msg("%s", e.text);
    int64_t eos = tokenizer_eos(t);
    tokenizer_close(t);
    return eos;
}

static void eos_comes_from_the_first_file_that_knows_it(void **state)
{
    static const char *const names[] = {"tokenizer.json", "config.json", "generation_config.json", "special_tokens_map.json",
                                        "tokenizer_config.json"};
    tokenizer *t = NULL;
    pt_error e = {0};
    char json[256];
    strcpy(folder, "/tmp/pt-text-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tokenizer_open(folder, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "tokenizer.json"));
    snprintf(json, sizeof json, "{%s}", bare);
    put("tokenizer.json", json);
    assert_int_equal(eos_of_folder(), -1);
    put("config.json", "{\"eos_token_id\": 1}");
    assert_int_equal(eos_of_folder(), 1);
    put("generation_config.json", "{\"eos_token_id\": [2, 1]}");
    assert_int_equal(eos_of_folder(), 2);
    put("special_tokens_map.json", "{\"eos_token\": \"a\"}");
    assert_int_equal(eos_of_folder(), 0);
    put("tokenizer_config.json", "{\"eos_token\": {\"content\": \"b\"}, \"model_max_length\": 1000000000000000019884624838656}");
    assert_int_equal(eos_of_folder(), 1);
    put("tokenizer_config.json", "{\"eos_token\": null}");
    assert_int_equal(eos_of_folder(), 0);
    put("special_tokens_map.json", NULL);
    put("generation_config.json", "{\"eos_token_id\": 77}");
    assert_int_equal(eos_of_folder(), 1); /* no token has 77; config.json's */
    put("config.json", "{\"eos_token_id\": -1}");
    assert_int_equal(eos_of_folder(), -1);
    put("generation_config.json", "{\"eos_token_id\": \"b\"}");
    assert_int_equal(eos_of_folder(), -1); /* nor does what is no number end a text */
    for (int i = 0; i < 5; i++)
        put(names[i], NULL);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(what_would_take_all_memory_or_the_stack_is_refused),
        cmocka_unit_test(a_space_may_be_written_as_a_null_character),
        cmocka_unit_test(broken_json_is_refused_at_its_place),
        cmocka_unit_test(a_bare_model_opens_and_encodes),
        cmocka_unit_test(ids_beyond_the_vocabulary_are_refused),
        cmocka_unit_test(eos_comes_from_the_first_file_that_knows_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
