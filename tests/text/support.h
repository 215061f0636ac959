/* support.h - tokenizers from JSON, and comparing ids. */
#ifndef TEST_TEXT_SUPPORT_H
#define TEST_TEXT_SUPPORT_H

#include "base/json.h"
#include "base/rng.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct pair { /* a tokenizer and an encoder */
    tokenizer *t;
    encoder *c;
} pair;

static inline void pair_open_encoder(pair *p)
{
    pt_error e = {0};
    if (encoder_open(p->t, &p->c, &e))
        fail_msg("%s", e.text);
}

static inline void pair_open_json(pair *p, const json_t *value)
{
    pt_error e = {0};
    char *text = json_dumps(value, JSON_COMPACT);
    if (tokenizer_open_memory("test.json", text, strlen(text), &p->t, &e))
        fail_msg("%s", e.text);
    free(text);
    pair_open_encoder(p);
}

/* Skips the test where the folder is absent. */
static inline void pair_open_shared(pair *p, const char *folder)
{
    char path[4096];
    pt_error e = {0};
    snprintf(path, sizeof path, PT_SHARED_DATA "/%s", folder);
    if (access(path, F_OK) != 0) {
        print_message("skipped: %s is not there\n", path);
        skip();
    }
    if (tokenizer_open(path, &p->t, &e))
        fail_msg("%s", e.text);
    pair_open_encoder(p);
}

static inline void pair_close(pair *p)
{
    encoder_close(p->c);
    tokenizer_close(p->t);
}

static inline id_list encode(const pair *p, const char *text, size_t n, unsigned flags)
{
    id_list ids = {0};
    pt_error e = {0};
    if (encoder_run(p->c, text, n, flags, &ids, &e))
        fail_msg("%s", e.text);
    return ids;
}

static const char *checking = ""; /* what a message of assert_ids says it is about */

static inline void assert_ids(const id_list *got, const uint32_t *wanted, size_t n, const char *text, size_t n_text)
{
    size_t i = 0;
    while (i < n && i < got->n && got->ids[i] == wanted[i])
        i++;
    if (i < n || i < got->n)
        fail_msg("%s: id %zu is %lld, should be %lld (%zu ids, should be %zu) in \"%.*s\"", checking, i,
                 i < got->n ? (long long)got->ids[i] : -1, i < n ? (long long)wanted[i] : -1, got->n, n, (int)n_text, text);
}

static inline void assert_same_ids(const id_list *a, const id_list *b, const char *text, size_t n_text)
{
    assert_ids(a, b->ids, b->n, text, n_text);
}

static inline void assert_decodes_to(const pair *p, const id_list *ids, const char *text, size_t n)
{
    text_buffer out = {0};
    pt_error e = {0};
    if (tokenizer_decode(p->t, ids->ids, ids->n, false, &out, &e))
        fail_msg("%s", e.text);
    if (out.n != n || (n && memcmp(out.bytes, text, n) != 0))
        fail_msg("decoded to \"%.*s\" instead of \"%.*s\"", (int)out.n, out.bytes, (int)n, text);
    text_buffer_free(&out);
}

static inline json_t *fixture_open(const char *name)
{
    char path[4096];
    pt_error e = {0};
    json_t *root;
    snprintf(path, sizeof path, PT_FIXTURES "/tokenizers/%s.json", name);
    if (json_file_load(path, 0, &root, &e))
        fail_msg("%s", e.text);
    return root;
}

static inline void check_ids(const pair *p, const json_t *item, const char *key, unsigned flags)
{
    const json_t *text = json_object_get(item, "text"), *list = json_object_get(item, key);
    size_t n = json_array_size(list);
    uint32_t *wanted = malloc((n + 1) * sizeof *wanted);
    for (size_t i = 0; i < n; i++)
        wanted[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    id_list got = encode(p, json_string_value(text), json_string_length(text), flags);
    assert_ids(&got, wanted, n, json_string_value(text), json_string_length(text));
    id_list_free(&got);
    free(wanted);
}

/* Every case of a fixture, once more after all the others have been through the cache. */
static inline void check_cases(const pair *p, const json_t *cases)
{
    assert_true(json_array_size(cases) > 0);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < json_array_size(cases); i++) {
            check_ids(p, json_array_get(cases, i), "ids", 0);
            check_ids(p, json_array_get(cases, i), "with_template", ENCODE_TEMPLATE);
        }
}

/* ---- random texts ---- */

static inline uint32_t draw(uint64_t seed, uint64_t *counter, uint32_t below)
{
    uint32_t words[4];
    rng_words(seed, RNG_TEST, 0, (*counter)++, words);
    return words[0] % below;
}

/* Words, spaces, other scripts, special tokens; with `garbage` stray bytes too. Returns the length. */
static inline size_t random_text(uint64_t seed, uint64_t *counter, char *out, size_t capacity, bool garbage)
{
    static const char *const bits[] = {
        "the", " cat", " and", "ing", " ", "  ", "\n", "\n\n", "\t", "'s", "I'LL", " 12345", "7", ".", ", ", "!?", "é", "e\xcc\x81",
        "日本語", "、", "ко", "ш", "🙂", "\xc2\xa0", "\xe2\x96\x81", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|end|>",
        " <|begin|>", "<unk>", "[LR]", "Ba", "<0x0A>", "ab", "x", "ba", "kori", "tu", "-", "_", "\r\n", "가", "ا", "ก"};
    static const char *const bad[] = {"\xff", "\x80", "\xe3\x81", "\xc3", "\xf0\x9f", "\xed\xa0\x80", "\xc0\xaf"};
    size_t n = 0, pieces = 1 + draw(seed, counter, 40);
    while (pieces-- > 0) {
        const char *bit = garbage && draw(seed, counter, 8) == 0 ? bad[draw(seed, counter, sizeof bad / sizeof *bad)]
                                                                 : bits[draw(seed, counter, sizeof bits / sizeof *bits)];
        size_t length = strlen(bit);
        if (n + length > capacity)
            break;
        memcpy(out + n, bit, length);
        n += length;
    }
    return n;
}

#endif
