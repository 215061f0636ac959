#include "chat/prompt.h"

#include "chat/replies.h"
#include "text/buffer.h"
#include "text/tokenizer_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* marks: puts them before the special tokens of this tokenizer in contents (plain_mark.h); NULL: none. */
static int render(const chat_source *s, const json_t *conversation, const tokenizer *marks, bool prompt, const char *where, time_t now,
                  chat_rendering *out, pt_error *e)
{
    json_t *variables;
    int failed = chat_variables(conversation, where, &variables, e);
    if (failed)
        return failed;
    if (marks) {
        chat_mark_messages(marks, variables);
        chat_mark_tools(marks, variables);
    }
    json_object_update_missing(variables, s->special_tokens);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt));
    const chat_template *t = json_is_null(json_object_get(variables, "tools")) ? s->plain : s->with_tools;
    failed = chat_template_render(t ? t : s->with_tools, variables, now, out, e);
    if (failed && where[0])
        failed = pt_error_prefix(e, "%.300s", where);
    json_decref(variables);
    return failed;
}

static int add_bos(const tokenizer *tok, id_list *ids, pt_error *e)
{
    const int64_t bos = tokenizer_bos(tok);
    if (bos < 0 || (ids->n && ids->ids[0] == bos))
        return 0;
    const int failed = id_list_push(ids, 0, e);
    if (failed)
        return failed;
    memmove(ids->ids + 1, ids->ids, (ids->n - 1) * sizeof *ids->ids);
    ids->ids[0] = (uint32_t)bos;
    return 0;
}

int chat_prompt(const chat_source *s, const tokenizer *tok, encoder *encoder, const json_t *conversation, bool plain, const char *where,
                time_t now, id_list *ids, pt_error *e)
{
    chat_rendering r = {0};
    int failed = render(s, conversation, plain ? tok : NULL, true, where, now, &r, e);
    ids->n = 0;
    if (!failed)
        failed = chat_encode(encoder, plain ? ENCODE_MARKED : 0, where, r.text.bytes, r.text.n, ids, e);
    if (!failed)
        failed = add_bos(tok, ids, e);
    chat_rendering_free(&r);
    return failed;
}

static bool is_special(const tokenizer *tok, uint32_t id)
{
    for (size_t i = 0; i < tok->added.n; i++)
        if (tok->added.tokens[i].id == id)
            return tok->added.tokens[i].special;
    return false;
}

/* The length of a mark "<|name|>" at `at`; 0: there is none. */
static size_t mark_length(const char *at, size_t n)
{
    size_t i = 2;
    if (n < 5 || memcmp(at, "<|", 2))
        return 0;
    while (i + 1 < n && i < CHAT_MARK_BYTES - 3 && (isalnum((unsigned char)at[i]) || strchr("_-.", at[i])))
        i++;
    return i > 2 && i + 1 < n && at[i] == '|' && at[i + 1] == '>' ? i + 2 : 0;
}

bool chat_foreign_mark_in(const text_buffer *text, const tokenizer *tok, char out[CHAT_MARK_BYTES])
{
    for (size_t i = 0; i < text->n; i++) {
        const size_t n = mark_length(text->bytes + i, text->n - i);
        if (!n)
            continue;
        snprintf(out, CHAT_MARK_BYTES, "%.*s", (int)n, text->bytes + i);
        if (tokenizer_find(tok, out) < 0)
            return true;
    }
    return false;
}

bool chat_foreign_mark(const chat_source *s, const tokenizer *tok, time_t now, char out[CHAT_MARK_BYTES])
{
    chat_rendering r = {0};
    json_t *conversation = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "Q", "role", "assistant", "content", "R");
    const bool found = !render(s, conversation, NULL, false, "", now, &r, NULL) && chat_foreign_mark_in(&r.text, tok, out);
    json_decref(conversation);
    chat_rendering_free(&r);
    return found;
}

bool chat_end_is_text(const chat_source *s, const tokenizer *tok, encoder *encoder, time_t now, char out[CHAT_MARK_BYTES])
{
    static const char reply[] = "Qreply7";
    const char *end = json_string_value(json_object_get(s->special_tokens, "eos_token"));
    chat_rendering r = {0};
    id_list ids = {0};
    bool text = false;
    if (!end || !end[0] || strlen(end) >= CHAT_MARK_BYTES)
        return false;
    json_t *conversation = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "Hello", "role", "assistant", "content", reply);
    if (!render(s, conversation, NULL, false, "", now, &r, NULL)) {
        const char *after = memmem(r.text.bytes, r.text.n, reply, strlen(reply)), *stop = r.text.bytes + r.text.n;
        const char *at = after ? memmem(after, (size_t)(stop - after), end, strlen(end)) : NULL;
        if (at && !encoder_run(encoder, after, (size_t)(stop - after), ENCODE_CONTINUES, &ids, NULL)) {
            text = true;
            for (size_t i = 0; i < ids.n; i++)
                text = text && (int64_t)ids.ids[i] != tokenizer_eos(tok);
        }
    }
    if (text)
        snprintf(out, CHAT_MARK_BYTES, "%s", end);
    json_decref(conversation);
    chat_rendering_free(&r);
    id_list_free(&ids);
    return text;
}

int64_t chat_turn_end(const chat_source *s, const tokenizer *tok, encoder *encoder, time_t now)
{
    static const char reply[] = "Qreply7";
    chat_rendering r = {0};
    id_list ids = {0};
    int64_t end = -1;
    json_t *conversation = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "Hello", "role", "assistant", "content", reply);
    if (!render(s, conversation, NULL, false, "", now, &r, NULL)) {
        const char *at = memmem(r.text.bytes, r.text.n, reply, strlen(reply));
        const char *behind = at ? at + strlen(reply) : r.text.bytes + r.text.n;
        if (!encoder_run(encoder, behind, (size_t)(r.text.bytes + r.text.n - behind), ENCODE_CONTINUES, &ids, NULL))
            for (size_t i = 0; i < ids.n && end < 0; i++)
                end = is_special(tok, ids.ids[i]) ? (int64_t)ids.ids[i] : -1;
    }
    json_decref(conversation);
    chat_rendering_free(&r);
    id_list_free(&ids);
    return end;
}

int64_t chat_turn_end_of(const char *model_dir, const char *file, const tokenizer *tok, time_t now)
{
    chat_source s;
    encoder *encoder;
    int64_t end = -1;
    if (chat_source_open(&s, model_dir, file, NULL))
        return -1;
    if (!encoder_open(tok, &encoder, NULL)) {
        end = chat_turn_end(&s, tok, encoder, now);
        encoder_close(encoder);
    }
    chat_source_close(&s);
    return end;
}
