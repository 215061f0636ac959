/* fuzz_tokenizer.c - any bytes as a tokenizer.json, or as a text for a fixed small tokenizer.
 *
 *     JSON 00 TEXT     a file and a text for it; no 00: the file alone
 *     0..3 TEXT        a text for one of four tokenizers below
 *
 * What holds: a file is refused with a sentence that names it, or opens; a text becomes ids below the
 * vocabulary's size, which decode (a refusal: the same on the second try); the same text gives the same
 * ids when it is cut where tokenizer_cut says; and bytes come back where the tokenizer loses nothing. */
#include "text/tokenizer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MODEL_LETTERS                                                                                                   \
    "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\\u2581\": 2, \"a\": 3, \"b\": 4, \"ab\": 5, \"\\u2581a\": 6, \"\\n\": 7, "  \
    "\"b\\u2581\": 8, \"abab\": 9}, \"merges\": [\"a b\", \"b \\u2581\", \"\\u2581 a\", \"ab ab\"]"

typedef struct fixed_tokenizer {
    const char *before, *after; /* of the byte tokens, which code writes */
    bool lossless;
} fixed_tokenizer;

static const fixed_tokenizer fixed[] = {
    {"{\"added_tokens\": [{\"id\": 300, \"content\": \"<|end|>\", \"special\": true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
     "\"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"th\": 256, \"the\": 257, "
     "\"\\u0120the\": 258, \"aa\": 259",
     "}, \"merges\": [\"t h\", \"th e\", \"\\u0120 the\", \"a a\"]}}", true},
    {"{\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
     "\"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]"
     "+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
     "\"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": "
     "{\"ignore_merges\": true, \"vocab\": {\"th\": 256, \"\\u0120a\": 257",
     "}, \"merges\": [\"t h\"]}}", false},
    {"{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"\\u2581\"}, {\"type\": "
     "\"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}]}, \"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", "
     "\"special\": true, \"normalized\": true, \"rstrip\": true}], \"model\": {\"unk_token\": \"<unk>\", " MODEL_LETTERS "}}",
     NULL, false},
    {"{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": \"Metaspace\", "
     "\"replacement\": \"\\u2581\"}, {\"type\": \"Punctuation\", \"behavior\": \"MergedWithPrevious\"}]}, \"added_tokens\": [{\"id\": 1, "
     "\"content\": \"<s>\", \"lstrip\": true, \"single_word\": true}], \"model\": {\"byte_fallback\": true, " MODEL_LETTERS "}}",
     NULL, false},
};
enum { FIXED = sizeof fixed / sizeof *fixed };

/* Byte-level tokenizers get one token for each byte's character, ids 0 to 255. */
static tokenizer *open_fixed(int which)
{
    char *json = malloc(1 << 14);
    int n = snprintf(json, 1 << 14, "%s", fixed[which].before), other = 256;
    for (int byte = 0; fixed[which].after && byte < 256; byte++) {
        bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        n += snprintf(json + n, (1 << 14) - (size_t)n, ", \"\\u%04x\": %d", printable ? byte : other++, byte);
    }
    n += snprintf(json + n, (1 << 14) - (size_t)n, "%s", fixed[which].after ? fixed[which].after : "");
    tokenizer *t;
    pt_error e = {0};
    if (tokenizer_open_memory("fuzz/fixed.json", json, (size_t)n, &t, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    free(json);
    return t;
}

static int run(encoder *c, const char *text, size_t n, unsigned flags, id_list *ids)
{
    pt_error e = {0};
    int status = encoder_run(c, text, n, flags, ids, &e);
    assert(status == 0 || (status == PT_FAILED && strlen(e.text) > 20));
    return status;
}

static void check_cut(const tokenizer *t, encoder *c, const char *text, size_t n, const id_list *whole)
{
    id_list parts = {0};
    for (size_t at = 0; at < n;) {
        size_t end = tokenizer_cut(t, text, n, at + 1);
        assert(end > at && end <= n);
        assert(run(c, text + at, end - at, at ? ENCODE_CONTINUES : 0, &parts) == 0);
        at = end;
    }
    assert(parts.n == whole->n && (parts.n == 0 || memcmp(parts.ids, whole->ids, parts.n * sizeof *parts.ids) == 0));
    id_list_free(&parts);
}

static void check_text(const tokenizer *t, const char *text, size_t n, bool lossless)
{
    encoder *c;
    pt_error e = {0};
    id_list ids = {0}, again = {0};
    text_buffer decoded = {0};
    assert(encoder_open(t, &c, &e) == 0);
    int status = run(c, text, n, 0, &ids);
    assert(run(c, text, n, 0, &again) == status);
    if (!status) {
        assert(ids.n == again.n && (ids.n == 0 || memcmp(ids.ids, again.ids, ids.n * sizeof *ids.ids) == 0));
        for (size_t i = 0; i < ids.n; i++)
            assert(ids.ids[i] < tokenizer_vocab_size(t));
        assert(tokenizer_decode(t, ids.ids, ids.n, false, &decoded, &e) == 0);
        if (lossless)
            assert(decoded.n == n && (n == 0 || memcmp(decoded.bytes, text, n) == 0));
        check_cut(t, c, text, n, &ids);
    }
    again.n = 0;
    run(c, text, n, ENCODE_TEMPLATE | ENCODE_PLAIN, &again);
    text_buffer_free(&decoded);
    id_list_free(&ids);
    id_list_free(&again);
    encoder_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static tokenizer *tokenizers[FIXED];
    if (n > 0 && data[0] < FIXED) {
        int which = data[0];
        if (!tokenizers[which])
            tokenizers[which] = open_fixed(which);
        check_text(tokenizers[which], (const char *)data + 1, n - 1, fixed[which].lossless);
        return 0;
    }
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    size_t n_json = end ? (size_t)(end - data) : n;
    tokenizer *t = NULL;
    pt_error e = {0};
    int status = tokenizer_open_memory("fuzz/tokenizer.json", (const char *)data, n_json, &t, &e);
    if (status) {
        assert(status == PT_FAILED && e.code == PT_FAILED);
        assert(!strncmp(e.text, "fuzz/tokenizer.json", 19) && strlen(e.text) > 24);
        return 0;
    }
    check_text(t, end ? (const char *)end + 1 : "", end ? n - n_json - 1 : 0, false);
    check_text(t, "ab <s> 12 \xe2\x96\x81 \xff\n", 17, false);
    tokenizer_close(t);
    return 0;
}
