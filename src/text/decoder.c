#include "text/decoder.h"

#include "text/buffer.h"
#include "text/section.h"
#include "text/utf8.h"

#include <stdlib.h>

enum { MAX_REPLACES = 8, TOKEN_BYTES_MOST = 1 << 20 };

typedef struct rules {
    bool byte_level, byte_fallback, fused;
    bool drops_space; /* drops one leading space of the text */
    const json_t *replace[MAX_REPLACES]; /* {"pattern": {"String": ..}, "content": ..} */
    size_t n_replaces;
    char metaspace[4];     /* the character that stands for a space */
    size_t n_metaspace;    /* 0: none */
} rules;

/* ---- reading the section ---- */

static int read_strip(rules *r, const json_t *section, pt_error *e)
{
    const json_t *content = json_object_get(section, "content");
    json_int_t start = json_integer_value(json_object_get(section, "start"));
    json_int_t stop = json_integer_value(json_object_get(section, "stop"));
    if (start == 0 && stop == 0)
        return 0;
    if (!json_is_string(content) || strcmp(json_string_value(content), " ") != 0 || start != 1 || stop != 0 || !r->fused)
        return pt_fail(e, PT_FAILED, "decoder: Strip is supported only for one space at the start (content \" \", start 1, "
                                     "stop 0) after Fuse; write that");
    r->drops_space = true;
    return 0;
}

static int read_replace(rules *r, const json_t *section, pt_error *e)
{
    const json_t *search = json_object_get(json_object_get(section, "pattern"), "String");
    if (!json_is_string(search) || json_string_length(search) == 0 || !json_is_string(json_object_get(section, "content")))
        return pt_fail(e, PT_FAILED, "decoder: Replace is supported only from a string to a string; write that");
    if (r->n_replaces == MAX_REPLACES)
        return pt_fail(e, PT_FAILED, "decoder: more than %d Replace steps; join them", MAX_REPLACES);
    r->replace[r->n_replaces++] = section;
    return 0;
}

static int read_metaspace(rules *r, const json_t *section, pt_error *e)
{
    const json_t *scheme = json_object_get(section, "prepend_scheme");
    int status = section_mark(section, "decoder", r->metaspace, &r->n_metaspace, e);
    if (status)
        return status;
    r->drops_space = json_is_string(scheme) ? strcmp(json_string_value(scheme), "never") != 0
                                            : !json_is_false(json_object_get(section, "add_prefix_space"));
    return 0;
}

static int read_section(rules *r, const json_t *section, pt_error *e)
{
    const json_t *type = json_object_get(section, "type"), *list = json_object_get(section, "decoders");
    const char *name = json_is_string(type) ? json_string_value(type) : "(none)";
    if (strcmp(name, "Sequence") == 0) {
        int status = json_is_array(list) ? 0
                                         : pt_fail(e, PT_FAILED, "decoder: a Sequence without the array \"decoders\"; correct the file");
        for (size_t i = 0; i < json_array_size(list) && !status; i++)
            status = read_section(r, json_array_get(list, i), e);
        return status;
    }
    if (strcmp(name, "ByteLevel") == 0)
        r->byte_level = true;
    else if (strcmp(name, "ByteFallback") == 0)
        r->byte_fallback = true;
    else if (strcmp(name, "Fuse") == 0)
        r->fused = true;
    else if (strcmp(name, "Strip") == 0)
        return read_strip(r, section, e);
    else if (strcmp(name, "Replace") == 0)
        return read_replace(r, section, e);
    else if (strcmp(name, "Metaspace") == 0)
        return read_metaspace(r, section, e);
    else
        return pt_fail(e, PT_FAILED, "decoder: type \"%.60s\" is not supported (ByteLevel, ByteFallback, Fuse, Strip, Replace, "
                                     "Metaspace and Sequence are); use a tokenizer without it",
                       name);
    return 0;
}

/* ---- decoding each token ---- */

/* Appends text with every occurrence of `search`, which is not empty, replaced. */
static int replace_all(const char *text, size_t n, const char *search, size_t n_search, const char *content,
                       size_t n_content, text_buffer *out, pt_error *e)
{
    const size_t start = out->n;
    for (int status;;) {
        const char *hit = memmem(text, n, search, n_search);
        size_t before = hit ? (size_t)(hit - text) : n;
        status = text_buffer_append(out, text, before, e);
        if (status || !hit)
            return status;
        if (out->n - start > TOKEN_BYTES_MOST)
            return pt_fail(e, PT_FAILED, "decoder: Replace turns a token into more than %d bytes; correct the file", TOKEN_BYTES_MOST);
        if ((status = text_buffer_append(out, content, n_content, e)))
            return status;
        text += before + n_search;
        n -= before + n_search;
    }
}

static int decode_plain(const rules *r, const char *text, size_t n, text_buffer work[2], text_buffer *out, pt_error *e)
{
    int into = 0, status = 0;
    for (size_t i = 0; i < r->n_replaces; i++, into = !into) {
        const json_t *search = json_object_get(json_object_get(r->replace[i], "pattern"), "String");
        const json_t *content = json_object_get(r->replace[i], "content");
        work[into].n = 0;
        if ((status = replace_all(text, n, json_string_value(search), json_string_length(search),
                                  json_string_value(content), json_string_length(content), &work[into], e)))
            return status;
        text = work[into].bytes;
        n = work[into].n;
    }
    if (r->n_metaspace)
        return replace_all(text, n, r->metaspace, r->n_metaspace, " ", 1, out, e);
    return text_buffer_append(out, text, n, e);
}

/* The byte that a token like <0x0A> stands for, or -1. */
static int fallback_byte(const bpe *model, uint32_t id, size_t n)
{
    for (int byte = 0; n == 6 && byte < 256; byte++)
        if (model->fallback[byte] == id)
            return byte;
    return -1;
}

static int decode_model_token(const rules *r, const bpe *model, uint32_t id, text_buffer work[2], text_buffer *out,
                              pt_error *e)
{
    size_t n, n_raw;
    const char *text = string_table_get(&model->tokens, id, &n);
    const char *raw = model->byte_level ? string_table_get(&model->words, id, &n_raw) : NULL;
    int byte = r->byte_fallback ? fallback_byte(model, id, n) : -1;
    if (byte >= 0) {
        char c = (char)byte;
        return text_buffer_append(out, &c, 1, e);
    }
    if (r->byte_level && raw)
        return text_buffer_append(out, raw, n_raw, e);
    return decode_plain(r, text, n, work, out, e);
}

/* An added token decodes to the text that it matched. `as_searched`: to its normalized text, in which a leading U+2581 stands for a
 * space. */
static int decode_added_token(const rules *r, const added_token *t, bool as_searched, text_buffer work[2],
                              text_buffer *out, pt_error *e)
{
    if (as_searched)
        return decode_plain(r, t->search.bytes, t->search.n, work, out, e);
    return text_buffer_append(out, t->content.bytes, t->content.n, e);
}

static int decode_all(decoder *d, const rules *r, const bpe *model, const added_tokens *added, bool prepends, pt_error *e)
{
    text_buffer work[2] = {0};
    int status = 0;
    for (uint32_t id = 0; id < d->n_ids && !status; id++) {
        size_t n;
        d->tokens[id] = (decoded_token){d->bytes.n, NO_ID, false, false, r->drops_space};
        if (!string_table_get(&model->tokens, id, &n))
            continue;
        status = decode_model_token(r, model, id, work, &d->bytes, e);
        d->tokens[id].n = (uint32_t)(d->bytes.n - d->tokens[id].at);
    }
    for (size_t i = 0; i < added->n && !status; i++) {
        const added_token *t = &added->tokens[i];
        size_t at = d->bytes.n;
        bool as_searched = prepends && t->normalized && t->id != model->unk;
        status = decode_added_token(r, t, as_searched, work, &d->bytes, e);
        d->tokens[t->id] = (decoded_token){at, (uint32_t)(d->bytes.n - at), t->special, prepends && !t->normalized,
                                           r->drops_space && as_searched};
    }
    text_buffer_free(&work[0]);
    text_buffer_free(&work[1]);
    return status;
}

int decoder_open(decoder *d, const json_t *section, const bpe *model, const added_tokens *added, bool prepends,
                 pt_error *e)
{
    *d = (decoder){0};
    rules r = {.byte_level = false};
    int status = 0;
    if (section && !json_is_null(section))
        status = read_section(&r, section, e);
    else
        r.byte_level = model->byte_level;
    if (status)
        return status;
    if (model->byte_level != r.byte_level)
        return pt_fail(e, PT_FAILED, "decoder: one of pre_tokenizer and decoder is ByteLevel, the other is not; write it in both");
    if (r.byte_level && (r.byte_fallback || r.n_replaces || r.n_metaspace || r.drops_space))
        return pt_fail(e, PT_FAILED, "decoder: ByteLevel together with other steps is not supported; leave the others out");
    d->n_ids = model->tokens.n_ids > added->names.n_ids ? model->tokens.n_ids : added->names.n_ids;
    d->tokens = malloc((d->n_ids + 1) * sizeof *d->tokens);
    if (!d->tokens)
        return pt_fail(e, PT_FAILED, "decoder: no memory for %u tokens; free some memory", d->n_ids);
    return decode_all(d, &r, model, added, prepends, e);
}

void decoder_close(decoder *d)
{
    text_buffer_free(&d->bytes);
    free(d->tokens);
    *d = (decoder){0};
}
