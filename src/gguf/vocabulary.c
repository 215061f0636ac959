#include "gguf/vocabulary_parts.h"

#include "base/json.h"
#include "base/units.h"
#include "chat/source.h"
#include "io/files.h"
#include "text/buffer.h"

#include <stdio.h>
#include <string.h>

/* llama.cpp's token types. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

/* ---- tokens ---- */

static const added_token *added_of(const tokenizer *tok, uint32_t id)
{
    for (size_t i = 0; i < tok->added.n; i++)
        if (tok->added.tokens[i].id == id)
            return &tok->added.tokens[i];
    return NULL;
}

static bool is_byte_token(const bpe *b, uint32_t id, const char *text, size_t n)
{
    for (int byte = 0; byte < 256 && n == 6 && text[0] == '<'; byte++)
        if (b->fallback[byte] == id)
            return true;
    return false;
}

/* Special tokens of Gemma 4 that llama.cpp is to show in a reply, because it reads calls of tools and thoughts by them. */
static bool is_shown(const vocabulary *v, const char *text, size_t n)
{
    static const char *const shown[] = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                        "<|\"|>"};
    for (size_t i = 0; v->gemma4 && i < sizeof shown / sizeof *shown; i++)
        if (n == strlen(shown[i]) && !memcmp(text, shown[i], n))
            return true;
    return false;
}

/* The text and type of an id. Added tokens are matched in the raw text, so their spaces stay spaces. */
static int token_of(const vocabulary *v, uint32_t id, text_buffer *out, int *kind, pt_error *e)
{
    const tokenizer *tok = v->tokenizer;
    size_t n;
    const char *text = string_table_get(&tok->added.names, id, &n);
    out->n = 0;
    if (text) {
        const added_token *a = added_of(tok, id);
        if (v->gemma4 && a && !a->special && memmem(text, n, space_mark, MARK_BYTES)) { /* spaces in a text are merged to it */
            *kind = TOKEN_NORMAL;
            return text_buffer_append(out, text, n, e);
        }
        *kind = id == tok->model.unk ? TOKEN_UNKNOWN : (a && !a->special) || is_shown(v, text, n) ? TOKEN_USER_DEFINED : TOKEN_CONTROL;
        int status = 0;
        for (size_t i = 0; i < n && !status;) {
            const bool space = !tok->model.byte_level && *kind == TOKEN_USER_DEFINED && n - i >= MARK_BYTES &&
                               !memcmp(text + i, space_mark, MARK_BYTES);
            status = text_buffer_append(out, space ? " " : text + i, 1, e);
            i += space ? MARK_BYTES : 1;
        }
        return status;
    }
    text = string_table_get(&tok->model.tokens, id, &n);
    if (text) {
        *kind = id == tok->model.unk                                              ? TOKEN_UNKNOWN
                : !tok->model.byte_level && is_byte_token(&tok->model, id, text, n) ? TOKEN_BYTE
                                                                                : TOKEN_NORMAL;
        return text_buffer_append(out, text, n, e);
    }
    char name[32];
    *kind = TOKEN_UNUSED;
    return text_buffer_append(out, name, (size_t)snprintf(name, sizeof name, "[PAD%u]", id), e);
}

static int put_tokens(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    string_table seen;
    text_buffer text = {0};
    int status = string_table_init(&seen, (uint32_t)v->vocab, e), kind;
    if (status)
        return status;
    gguf_begin_array(writer, "tokenizer.ggml.tokens", GGUF_ARRAY_STRING, (uint64_t)v->vocab);
    for (uint32_t id = 0; id < v->vocab && !status; id++) {
        status = token_of(v, id, &text, &kind, e);
        if (!status && string_table_find(&seen, text.bytes, text.n) != NO_ID)
            status = pt_fail(
                e, PT_FAILED,
                "%.300s/tokenizer.json: ids %u and %u have the same text \"%.*s\", which llama.cpp does not accept",
                v->folder, string_table_find(&seen, text.bytes, text.n), id, (int)(text.n < 60 ? text.n : 60),
                text.bytes);
        if (!status)
            status = string_table_add(&seen, id, text.bytes, text.n, e);
        if (!status)
            gguf_add_string(writer, text.bytes, text.n);
    }
    if (!status)
        gguf_begin_array(writer, "tokenizer.ggml.token_type", GGUF_ARRAY_I32, (uint64_t)v->vocab);
    for (uint32_t id = 0; id < v->vocab && !status; id++)
        if (!(status = token_of(v, id, &text, &kind, e)))
            gguf_add_i32(writer, kind);
    text_buffer_free(&text);
    string_table_free(&seen);
    return status;
}

/* Tells of tokens without a row in the embedding, which the file cannot have. */
static void tell_rowless(const vocabulary *v)
{
    const tokenizer *tok = v->tokenizer;
    const uint32_t ids = tokenizer_vocab_size(tok);
    uint32_t left = 0, first = 0;
    for (uint32_t id = v->vocab < ids ? (uint32_t)v->vocab : ids; id < ids; id++)
        if (tokenizer_has_id(tok, id) && !left++)
            first = id;
    if (!left)
        return;
    size_t n;
    const char *text = string_table_get(&tok->added.names, first, &n);
    if (!text)
        text = string_table_get(&tok->model.tokens, first, &n);
    vocabulary_tell(v,
                    "%u token%s of the tokenizer %s no row in the model's embedding (the first: id %u, \"%.*s\"): llama.cpp reads %s as "
                    "plain text",
                    left, plural(left), left == 1 ? "has" : "have", first, (int)(n < 60 ? n : 60), text, left == 1 ? "it" : "them");
}

/* ---- byte-level BPE ---- */

static int put_merges(gguf_writer *writer, const json_t *merges)
{
    const size_t all = json_array_size(merges);
    size_t first = 0;
    if (json_is_string(json_array_get(merges, 0)) && !strncmp(json_string_value(json_array_get(merges, 0)), "#version", 8))
        first = 1;
    text_buffer text = {0};
    int status = 0;
    gguf_begin_array(writer, "tokenizer.ggml.merges", GGUF_ARRAY_STRING, all - first);
    for (size_t i = first; i < all && !status; i++) {
        const json_t *merge = json_array_get(merges, i), *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        if (json_is_string(merge)) {
            gguf_add_string(writer, json_string_value(merge), json_string_length(merge));
            continue;
        }
        text.n = 0;
        status = text_buffer_append(&text, json_string_value(a), json_string_length(a), NULL);
        status = status ? status : text_buffer_append(&text, " ", 1, NULL);
        status = status ? status : text_buffer_append(&text, json_string_value(b), json_string_length(b), NULL);
        gguf_add_string(writer, text.bytes, text.n);
    }
    text_buffer_free(&text);
    return status;
}

int vocabulary_put_merges(gguf_writer *writer, const char *where, const json_t *root, pt_error *e)
{
    return put_merges(writer, json_object_get(json_object_get(root, "model"), "merges"))
               ? pt_fail(e, PT_FAILED, "%.300s: no memory for its merges", where)
               : 0;
}

static int put_byte_level(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    const normalizer *n = &v->tokenizer->normalizer;
    char path[FILE_PATH_BYTES];
    json_source file;
    const char *cut = NULL;
    if (n->n > 1 || (n->n == 1 && n->steps[0].kind != NORMALIZE_NFC))
        return vocabulary_refuse(v, "a byte-level BPE with a normalizer other than NFC", e);
    int status = path_join(path, v->folder, "tokenizer.json", e);
    if (!status)
        status = json_source_open(&file, path, e);
    if (status)
        return status;
    status = gguf_word_cut_name(path, file.object, &cut, e);
    if (!status) {
        gguf_put_string(writer, "tokenizer.ggml.model", "gpt2");
        gguf_put_string(writer, "tokenizer.ggml.pre", cut);
        status = vocabulary_put_merges(writer, path, file.object, e);
    }
    json_source_close(&file);
    return status;
}

/* ---- special tokens ---- */

/* The id that `key` ("eos_token" ...) of a file names, by a string or an object with "content"; -1: none. */
static int64_t named_token(const vocabulary *v, const char *file_name, const char *key)
{
    char path[FILE_PATH_BYTES];
    json_source file;
    if (path_join(path, v->folder, file_name, NULL) || !path_exists(path) || json_source_open(&file, path, NULL))
        return -1;
    const json_t *value = json_object_get(file.object, key), *name = json_is_object(value) ? json_object_get(value, "content") : value;
    const int64_t id = json_is_string(name) ? tokenizer_find(v->tokenizer, json_string_value(name)) : -1;
    json_source_close(&file);
    return id < v->vocab ? id : -1;
}

static int64_t find_token(const vocabulary *v, const char *key)
{
    const int64_t id = named_token(v, "tokenizer_config.json", key);
    return id >= 0 ? id : named_token(v, "special_tokens_map.json", key);
}

int64_t vocabulary_bos(const vocabulary *v)
{
    int64_t bos = tokenizer_bos(v->tokenizer);
    bos = bos >= 0 ? bos : find_token(v, "bos_token");
    bos = bos >= 0 ? bos : v->bos;
    return bos < v->vocab ? bos : -1;
}

/* Whether llama.cpp takes the token for an end of text by its spelling. */
static bool ends_by_name(const tokenizer *tok, int32_t id)
{
    static const char *const names[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tokenizer_find(tok, names[i]) == id)
            return true;
    return false;
}

static int put_ends(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    static const char *const more[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    int used = 0, left = 0;
    if (!v->stops_n)
        return pt_fail(e, PT_FAILED, "%.300s: no file names the end-of-text token, so that llama.cpp would use one of its own: write "
                                     "\"eos_token_id\" into generation_config.json", v->folder);
    gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", (uint32_t)v->stops[0]);
    for (int i = 1; i < v->stops_n; i++) {
        if (ends_by_name(v->tokenizer, v->stops[i]))
            continue;
        if (used < 2)
            gguf_put_u32(writer, more[used++], (uint32_t)v->stops[i]);
        else
            left++;
    }
    if (left)
        vocabulary_tell(v,
                        "%d of the %d end-of-text tokens have no place in the file: llama.cpp does not stop at them",
                        left, v->stops_n);
    return 0;
}

static int put_tasks(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    const tokenizer *tok = v->tokenizer;
    const int64_t bos = vocabulary_bos(v), padding = find_token(v, "pad_token");
    if (tok->post.before.n > 1)
        return vocabulary_refuse(v, "more than one token before a text", e);
    if (bos >= 0)
        gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    if (tok->model.unk != NO_ID && tok->model.unk < v->vocab)
        gguf_put_u32(writer, "tokenizer.ggml.unknown_token_id", tok->model.unk);
    if (padding >= 0)
        gguf_put_u32(writer, "tokenizer.ggml.padding_token_id", (uint32_t)padding);
    gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", tokenizer_template_adds_bos(tok));
    gguf_put_bool(writer, "tokenizer.ggml.add_eos_token", false);
    return put_ends(writer, v, e);
}

static int put_chat(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    chat_texts c;
    const int status = v->template ? chat_texts_of_file(&c, v->template, e) : chat_texts_find(&c, v->folder, e);
    if (status)
        return status;
    const chat_text *plain = c.plain.text ? &c.plain : &c.with_tools;
    if (plain->text)
        gguf_put_bytes(writer, "tokenizer.chat_template", plain->text, plain->n);
    if (c.plain.text && c.with_tools.text) {
        gguf_begin_array(writer, "tokenizer.chat_templates", GGUF_ARRAY_STRING, 1);
        gguf_add_string(writer, "tool_use", strlen("tool_use"));
        gguf_put_bytes(writer, "tokenizer.chat_template.tool_use", c.with_tools.text, c.with_tools.n);
    }
    chat_texts_free(&c);
    return 0;
}

int gguf_put_vocabulary(gguf_writer *writer, const vocabulary *of_model, pt_error *e)
{
    vocabulary own = *of_model, *v = &own;
    own.gemma4 = vocabulary_is_gemma4(of_model);
    int status = v->tokenizer->model.byte_level ? put_byte_level(writer, v, e) : gguf_put_sentencepiece(writer, v, e);
    if (!status)
        status = put_tokens(writer, v, e);
    if (!status)
        tell_rowless(v);
    if (!status)
        status = put_tasks(writer, v, e);
    return status ? status : put_chat(writer, v, e);
}
