/* bpe_open.c - the `model` section of tokenizer.json → a bpe. */
#include "text/bpe.h"

#include "text/buffer.h"
#include "text/section.h"
#include "text/utf8.h"

#include <stdio.h>
#include <stdlib.h>

/* Refuses a key unless it is absent, null, "", 0 or false, because it would change the tokens in a way that is not implemented. */
static int refuse(const json_t *model, const char *key, const char *why, pt_error *e)
{
    const json_t *value = json_object_get(model, key);
    if (!value || json_is_null(value) || json_is_false(value) ||
        (json_is_string(value) && json_string_length(value) == 0) ||
        (json_is_number(value) && json_number_value(value) == 0))
        return 0;
    return pt_fail(e, PT_FAILED, "model.%s is set: %s; use a tokenizer without it", key, why);
}

static int check_type(const json_t *model, pt_error *e)
{
    const json_t *type = json_object_get(model, "type");
    if (!json_is_object(model))
        return pt_fail(e, PT_FAILED, "model is missing or not an object; is this a tokenizer.json?");
    if (type && !json_is_null(type) && (!json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0))
        return pt_fail(e, PT_FAILED, "model.type is %.40s%s%s; only BPE is supported", json_is_string(type) ? "\"" : "",
                       json_is_string(type) ? json_string_value(type) : "not a string",
                       json_is_string(type) ? "\"" : "");
    if (!json_is_object(json_object_get(model, "vocab")))
        return pt_fail(e, PT_FAILED, "model.vocab is missing or not an object; only BPE models are supported");
    if (!json_is_array(json_object_get(model, "merges")))
        return pt_fail(e, PT_FAILED, "model.merges is missing or not an array; only BPE models are supported");
    return 0;
}

static int read_vocab(bpe *b, json_t *vocab, pt_error *e)
{
    const char *token;
    json_t *value;
    json_int_t highest = -1;
    json_object_foreach(vocab, token, value) {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > MAX_TOKEN_ID)
            return pt_fail(e, PT_FAILED, "model.vocab: the id of \"%.60s\" is not an integer from 0 to %d; correct the file",
                           token, MAX_TOKEN_ID);
        if (id > highest)
            highest = id;
    }
    int status = string_table_init(&b->tokens, (uint32_t)(highest + 1), e);
    if (status)
        return status;
    json_object_foreach(vocab, token, value) {
        uint32_t id = (uint32_t)json_integer_value(value);
        size_t n;
        const char *other = string_table_get(&b->tokens, id, &n);
        if (other)
            return pt_fail(e, PT_FAILED, "model.vocab: \"%.60s\" and \"%.*s\" both have id %u; correct the file", token,
                           (int)(n < 60 ? n : 60), other, id);
        if ((status = string_table_add(&b->tokens, id, token, strlen(token), e)))
            return status;
    }
    return 0;
}

/* Finds the ids of the two sides of merge `i`, "left right" or ["left", "right"], and of the merged token. */
static int read_merge(const bpe *b, const json_t *item, size_t i, uint32_t pair[2], uint32_t *joined, pt_error *e)
{
    const char *side[2];
    size_t n[2];
    if (json_is_string(item)) {
        const char *space = memchr(json_string_value(item), ' ', json_string_length(item));
        side[0] = json_string_value(item);
        n[0] = space ? (size_t)(space - side[0]) : 0;
        side[1] = space ? space + 1 : "";
        n[1] = space ? json_string_length(item) - n[0] - 1 : 0;
        if (!space || memchr(side[1], ' ', n[1]))
            return pt_fail(e, PT_FAILED, "model.merges[%zu]: \"%.60s\" is not two tokens and one space; correct the file",
                           i, side[0]);
    } else {
        if (!json_is_array(item) || json_array_size(item) != 2)
            return pt_fail(e, PT_FAILED, "model.merges[%zu] is neither \"a b\" nor [\"a\", \"b\"]; correct the file", i);
        for (size_t k = 0; k < 2; k++) {
            const json_t *part = json_array_get(item, k);
            if (!json_is_string(part))
                return pt_fail(e, PT_FAILED, "model.merges[%zu]: a side is not a string; correct the file", i);
            side[k] = json_string_value(part);
            n[k] = json_string_length(part);
        }
    }
    for (int k = 0; k < 2; k++) {
        pair[k] = string_table_find(&b->tokens, side[k], n[k]);
        if (pair[k] == NO_ID)
            return pt_fail(e, PT_FAILED, "model.merges[%zu]: token \"%.*s\" is not in the vocabulary; correct the file", i,
                           (int)(n[k] < 60 ? n[k] : 60), side[k]);
    }
    char small[256], *text = n[0] + n[1] <= sizeof small ? small : malloc(n[0] + n[1]);
    if (!text)
        return pt_fail(e, PT_FAILED, "no memory to read model.merges[%zu]; free some memory", i);
    memcpy(text, side[0], n[0]);
    memcpy(text + n[0], side[1], n[1]);
    *joined = string_table_find(&b->tokens, text, n[0] + n[1]);
    if (text != small)
        free(text);
    if (*joined == NO_ID)
        return pt_fail(e, PT_FAILED,
                       "model.merges[%zu]: the token that \"%.*s\" and \"%.*s\" make is not in the vocabulary; correct the file", i,
                       (int)(n[0] < 60 ? n[0] : 60), side[0], (int)(n[1] < 60 ? n[1] : 60), side[1]);
    return 0;
}

static int read_merges(bpe *b, const json_t *merges, pt_error *e)
{
    size_t n = json_array_size(merges), n_read = 0;
    uint32_t *pairs = malloc((n + 1) * 2 * sizeof *pairs);
    if (!pairs)
        return pt_fail(e, PT_FAILED, "no memory for %zu merges; free some memory", n);
    int status = merge_table_init(&b->merges, n, e);
    for (size_t i = 0; i < n && !status; i++) {
        const json_t *item = json_array_get(merges, i);
        uint32_t joined, *pair = pairs + 2 * n_read;
        if (json_is_string(item) && strncmp(json_string_value(item), "#version", 8) == 0)
            continue;
        if (!(status = read_merge(b, item, i, pair, &joined, e)))
            merge_table_put(&b->merges, pair[0], pair[1], (uint64_t)n_read++ << 32 | joined);
    }
    if (!status)
        status = bpe_find_joins(b, pairs, n_read, e);
    free(pairs);
    return status;
}

/* Reads the raw bytes of each token in the byte alphabet, and the ids of single bytes. */
static int read_byte_words(bpe *b, pt_error *e)
{
    int status = string_table_init(&b->words, b->tokens.n_ids, e);
    text_buffer raw = {0};
    for (uint32_t id = 0; id < b->tokens.n_ids && !status; id++) {
        size_t n, i = 0;
        const char *token = string_table_get(&b->tokens, id, &n);
        if (!token || (status = text_buffer_reserve(&raw, n + 1, e)))
            continue;
        for (raw.n = 0; i < n;) {
            unsigned length;
            int byte = character_to_byte(utf8_read(token + i, &length));
            if (byte < 0)
                break;
            raw.bytes[raw.n++] = (char)byte;
            i += length;
        }
        if (i == n)
            status = string_table_add(&b->words, id, raw.bytes, raw.n, e);
    }
    for (unsigned byte = 0; byte < 256 && !status; byte++) {
        char c = (char)byte;
        b->byte_unit[byte] = string_table_find(&b->words, &c, 1);
    }
    text_buffer_free(&raw);
    return status;
}

static int read_character_units(bpe *b, pt_error *e)
{
    b->unit = malloc(0x10000 * sizeof *b->unit);
    if (!b->unit)
        return pt_fail(e, PT_FAILED, "no memory for the vocabulary's characters; free some memory");
    for (uint32_t c = 0; c < 0x10000; c++) {
        char text[4];
        unsigned n = utf8_write(c, text);
        b->unit[c] = string_table_find(&b->tokens, text, n);
    }
    return 0;
}

static int read_unk(bpe *b, const json_t *model, pt_error *e)
{
    const json_t *unk = json_object_get(model, "unk_token");
    b->unk = NO_ID;
    if (!unk || json_is_null(unk))
        return 0;
    if (!json_is_string(unk))
        return pt_fail(e, PT_FAILED, "model.unk_token is not a string; write a token or null");
    b->unk = string_table_find(&b->tokens, json_string_value(unk), json_string_length(unk));
    if (b->unk == NO_ID)
        return pt_fail(e, PT_FAILED, "model.unk_token \"%.60s\" is not in the vocabulary; add it or write null",
                       json_string_value(unk));
    return 0;
}

int bpe_open(bpe *b, const json_t *model, bool byte_level, pt_error *e)
{
    memset(b, 0, sizeof *b);
    b->byte_level = byte_level;
    int status = check_type(model, e);
    if (!status)
        status = refuse(model, "dropout", "ids would be random", e);
    if (!status)
        status = refuse(model, "continuing_subword_prefix", "prefixed subwords are not supported", e);
    if (!status)
        status = refuse(model, "end_of_word_suffix", "suffixed subwords are not supported", e);
    if (!status)
        status = section_flag(model, "model", "byte_fallback", false, &b->byte_fallback, e);
    if (!status)
        status = section_flag(model, "model", "fuse_unk", false, &b->fuse_unk, e);
    if (!status)
        status = section_flag(model, "model", "ignore_merges", false, &b->ignore_merges, e);
    if (!status)
        status = read_vocab(b, json_object_get(model, "vocab"), e);
    if (!status)
        status = read_unk(b, model, e);
    for (unsigned byte = 0; byte < 256 && !status; byte++) {
        char token[8];
        int n = snprintf(token, sizeof token, "<0x%02X>", byte);
        b->fallback[byte] = string_table_find(&b->tokens, token, (size_t)n);
    }
    if (!status)
        status = byte_level ? read_byte_words(b, e) : read_character_units(b, e);
    if (!status)
        status = read_merges(b, json_object_get(model, "merges"), e);
    return status;
}

void bpe_close(bpe *b)
{
    string_table_free(&b->tokens);
    string_table_free(&b->words);
    merge_table_free(&b->merges);
    merge_table_free(&b->far_joins);
    free(b->unit);
    memset(b, 0, sizeof *b);
}
