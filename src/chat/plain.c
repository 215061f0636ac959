/* plain.c - contents in which special tokens are plain text: marks in the variables of a conversation (plain_mark.h). */
#include "chat/replies.h"

#include "text/buffer.h"
#include "text/plain_mark.h"

#include <string.h>

static json_t *marked_text(const tokenizer *tok, json_t *value)
{
    const char *text = json_string_value(value);
    const size_t n = json_string_length(value);
    text_buffer out = {0};
    if (!plain_mark_needed(tok, text, n))
        return json_incref(value);
    json_t *marked = plain_mark_put(tok, text, n, &out, NULL) ? NULL : json_stringn(out.bytes, out.n);
    text_buffer_free(&out);
    return marked;
}

static json_t *marked_value(const tokenizer *tok, json_t *value);

static json_t *marked_object(const tokenizer *tok, json_t *value)
{
    json_t *out = json_object(), *inner;
    const char *key;
    json_object_foreach(value, key, inner) {
        json_t *name = json_string(key), *marked = marked_text(tok, name);
        json_object_set_new(out, json_string_value(marked), marked_value(tok, inner));
        json_decref(marked);
        json_decref(name);
    }
    return out;
}

/* A copy, with marks in all of its strings. */
static json_t *marked_value(const tokenizer *tok, json_t *value)
{
    if (json_is_string(value))
        return marked_text(tok, value);
    if (json_is_object(value))
        return marked_object(tok, value);
    if (!json_is_array(value))
        return json_incref(value);
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(value); i++)
        json_array_append_new(out, marked_value(tok, json_array_get(value, i)));
    return out;
}

void chat_mark_messages(const tokenizer *tok, json_t *variables)
{
    json_t *messages = json_object_get(variables, "messages"), *out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i), *marked = marked_value(tok, message);
        json_object_set(marked, "role", json_object_get(message, "role"));
        json_array_append_new(out, marked);
    }
    json_object_set_new(variables, "messages", out);
}

void chat_mark_tools(const tokenizer *tok, json_t *variables)
{
    json_t *tools = json_object_get(variables, "tools");
    if (tools)
        json_object_set_new(variables, "tools", marked_value(tok, tools));
}

int chat_drop_marks(chat_rendering *r, pt_error *e)
{
    text_buffer out = {0};
    size_t at = 0;
    int failed = 0;
    for (size_t k = 0; k <= 2 * r->n_spans && !failed; k++) { /* up to each end of a span, and to the end */
        size_t *end = k == 2 * r->n_spans ? NULL : k % 2 ? &r->spans[k / 2].end : &r->spans[k / 2].first;
        const size_t to = end ? *end : r->text.n;
        failed = to > at ? plain_mark_drop(r->text.bytes + at, to - at, &out, e) : 0;
        at = to > at ? to : at;
        if (end)
            *end = out.n;
    }
    if (!failed)
        failed = text_buffer_append(&out, "", 1, e);
    if (failed) {
        text_buffer_free(&out);
        return failed;
    }
    out.n--;
    text_buffer_free(&r->text);
    r->text = out;
    return 0;
}
