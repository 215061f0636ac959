/* Long texts: cut anywhere that tokenizer_cut allows, and with bytes that are not UTF-8. */
#include "text/support.h"
#include "seed.h"

static uint64_t seed;
enum { CAPACITY = 4096 };

static id_list encode_cut(const pair *p, const char *text, size_t n, uint64_t *counter, size_t *n_cuts)
{
    id_list ids = {0};
    pt_error e = {0};
    for (size_t at = 0; at < n;) {
        size_t end = tokenizer_cut(p->t, text, n, at + 1 + draw(seed, counter, 40));
        assert_true(end > at && end <= n);
        if (encoder_run(p->c, text + at, end - at, at ? ENCODE_CONTINUES : 0, &ids, &e))
            fail_msg("%s", e.text);
        *n_cuts += end < n;
        at = end;
    }
    return ids;
}

static void check_cuts(const char *name, uint64_t stream, bool garbage, size_t min_cuts)
{
    json_t *root = fixture_open(name);
    pair p;
    uint64_t counter = stream << 32;
    size_t n_cuts = 0;
    checking = name;
    pair_open_json(&p, json_object_get(root, "tokenizer"));
    for (int i = 0; i < 1500; i++) {
        char text[CAPACITY];
        size_t n = random_text(seed, &counter, text, CAPACITY, garbage);
        id_list whole = encode(&p, text, n, 0), parts = encode_cut(&p, text, n, &counter, &n_cuts);
        assert_same_ids(&parts, &whole, text, n);
        id_list_free(&whole);
        id_list_free(&parts);
    }
    print_message("%s: %zu cuts\n", name, n_cuts);
    assert_true(n_cuts >= min_cuts);
    pair_close(&p);
    json_decref(root);
}

static void cut_texts_have_the_ids_of_the_whole(void **state)
{
    check_cuts("gpt2", 1, true, 1000);
    check_cuts("llama3", 2, true, 1000);
    check_cuts("qwen2", 3, true, 1000);
    check_cuts("llama2", 5, true, 1000);
    check_cuts("metaspace", 6, true, 1000);
    check_cuts("over_spaces", 7, false, 100);
}

/* Lines of words of these, one after the other; the text's length. */
static size_t write_lines(uint64_t *counter, const char *begins, const char *const *words, uint32_t words_n, const char *ends,
                          char text[CAPACITY])
{
    size_t n = 0;
    while (n < CAPACITY - 512) {
        n += (size_t)sprintf(text + n, "%s", begins);
        for (uint32_t k = 1 + draw(seed, counter, 6); k > 0; k--)
            n += (size_t)sprintf(text + n, "%s", words[draw(seed, counter, words_n)]);
        n += (size_t)sprintf(text + n, "%s", ends);
    }
    return n;
}

/* In most of a text's lines there is a place, and none of the places shows. */
static void check_lines(const pair *p, uint64_t *counter, const char *begins, const char *const *words, uint32_t words_n, const char *ends)
{
    char text[CAPACITY];
    for (int round = 0; round < 2; round++) {
        size_t n = write_lines(counter, begins, words, words_n, ends, text), places = 0, lines = 0;
        id_list whole = encode(p, text, n, 0);
        for (size_t at = 0; at < n; at++)
            lines += text[at] == '\n';
        for (size_t at = tokenizer_cut(p->t, text, n, 1); at < n; at = tokenizer_cut(p->t, text, n, at + 1), places++) {
            id_list parts = {0};
            pt_error e = {0};
            if (encoder_run(p->c, text, at, 0, &parts, &e) || encoder_run(p->c, text + at, n - at, ENCODE_CONTINUES, &parts, &e))
                fail_msg("%s", e.text);
            assert_same_ids(&parts, &whole, text, n);
            id_list_free(&parts);
        }
        if (places < lines / 2)
            fail_msg("%s: %zu places in %zu lines of \"%.*s\"", checking, places, lines, (int)strcspn(text, "\n"), text);
        id_list_free(&whole);
    }
}

static void texts_without_spaces_can_be_cut_at_their_lines(void **state)
{
    static const char *const names[] = {"gpt2", "llama3", "qwen2"};
    static const char *const words[] = {"日本語", "吾輩は猫", "名前", "가나", "ー", "７", "12"};
    static const char *const numbers[] = {"1,", "23,", "4567,", "-8,", "9.5,"};
    uint64_t counter = 21ull << 32;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *root = fixture_open(names[i]);
        pair p;
        checking = names[i];
        pair_open_json(&p, json_object_get(root, "tokenizer"));
        check_lines(&p, &counter, "", words, 7, "\r\n");
        check_lines(&p, &counter, "", words, 7, "\n");
        check_lines(&p, &counter, "", numbers, 5, "2\n");
        check_lines(&p, &counter, "\t", numbers, 5, "2\r\n");
        check_lines(&p, &counter, "　", words, 7, "\n");
        check_lines(&p, &counter, "　", words, 7, "\r\n");
        pair_close(&p);
        json_decref(root);
    }
}

static void check_garbage(const char *name, uint64_t stream, bool byte_level)
{
    json_t *root = fixture_open(name);
    pair p;
    uint64_t counter = stream << 32;
    pair_open_json(&p, json_object_get(root, "tokenizer"));
    for (int i = 0; i < 3000; i++) {
        char text[64];
        size_t n = draw(seed, &counter, 64);
        for (size_t k = 0; k < n; k++)
            text[k] = (char)draw(seed, &counter, 256);
        if (!byte_level && memmem(text, n, "\xe2\x96\x81", 3))
            continue; /* the one character that comes back as a space */
        id_list ids = encode(&p, text, n, 0);
        assert_decodes_to(&p, &ids, text, n);
        id_list_free(&ids);
    }
    pair_close(&p);
    json_decref(root);
}

static void any_bytes_come_back(void **state)
{
    check_garbage("gpt2", 11, true);
    check_garbage("llama3", 12, true);
    check_garbage("llama2", 13, false);
}

static void bad_utf8_without_byte_tokens_is_an_error_with_its_offset(void **state)
{
    json_t *root = fixture_open("over_spaces");
    pair p;
    id_list ids = {0};
    pt_error e = {0};
    pair_open_json(&p, json_object_get(root, "tokenizer"));
    assert_int_equal(encoder_run(p.c, "ba ko\xff tu", 9, 0, &ids, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "0xFF"));
    assert_non_null(strstr(e.text, "offset 5"));
    id_list_free(&ids);
    pair_close(&p);
    json_decref(root);
}

/* Several times the size at which the encoder cuts by itself, with and without places to cut. */
static void a_text_of_megabytes_has_the_ids_of_its_lines(void **state)
{
    enum { LINES = 120000 };
    static const char line[] = "Bako ritu 12345 shiBA.";
    json_t *root = fixture_open("gpt2");
    pair p;
    pair_open_json(&p, json_object_get(root, "tokenizer"));
    char *text = malloc(LINES * (sizeof line));
    for (size_t i = 0; i < LINES; i++)
        memcpy(text + i * sizeof line, line, sizeof line), text[(i + 1) * sizeof line - 1] = ' ';
    id_list first = encode(&p, text, sizeof line - 1, 0), all = encode(&p, text, LINES * sizeof line - 1, 0);
    id_list next = encode(&p, text + sizeof line - 1, sizeof line, 0);
    assert_int_equal(all.n, first.n + (LINES - 1) * next.n);
    assert_memory_equal(all.ids, first.ids, first.n * sizeof *first.ids);
    for (size_t i = 1; i < LINES; i++)
        assert_memory_equal(all.ids + first.n + (i - 1) * next.n, next.ids, next.n * sizeof *next.ids);
    memset(text, 'x', LINES * sizeof line);
    id_list flat = encode(&p, text, LINES * sizeof line, 0);
    assert_decodes_to(&p, &flat, text, LINES * sizeof line);
    id_list_free(&flat);
    id_list_free(&first);
    id_list_free(&next);
    id_list_free(&all);
    free(text);
    pair_close(&p);
    json_decref(root);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_texts_have_the_ids_of_the_whole),
        cmocka_unit_test(texts_without_spaces_can_be_cut_at_their_lines),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(bad_utf8_without_byte_tokens_is_an_error_with_its_offset),
        cmocka_unit_test(a_text_of_megabytes_has_the_ids_of_its_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
