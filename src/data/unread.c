#include "data/unread.h"

#include "data/format_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- what looks like content ---- */

static bool is_named_so(const char *key)
{
    static const char *const names[] = {
        "prompt",   "completion", "chosen",  "rejected",      "question", "answer",        "answers",      "instruction", "input",
        "inputs",   "output",     "outputs", "context",       "query",    "response",      "responses",    "reply",       "system",
        "system_prompt", "history", "messages", "conversations", "conversation", "dialog", "dialogue",     "text",        "content",
        "tools",    "functions",  "label",   "kto_tag",       "reasoning", "reasoning_content", "thinking", "rationale",  "explanation",
        "solution", "images",     "image"};
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !is; i++)
        is = !strcmp(key, names[i]);
    return is;
}

/* Metadata are words, numbers and short titles. */
static bool is_long_text(const json_t *value)
{
    enum { LONG = 80 };
    return json_string_length(value) > LONG && strpbrk(json_string_value(value), " \n");
}

static bool has_nothing(const json_t *value)
{
    const char *text = json_string_value(value);
    if (text)
        return !text[strspn(text, " \t\r\n")] || !strcmp(text, "[]") || !strcmp(text, "{}");
    return json_is_null(value) || (json_is_array(value) && !json_array_size(value)) || (json_is_object(value) && !json_object_size(value));
}

/* Templates strip texts. */
static bool has_text(const text_buffer *in, const json_t *text)
{
    const char *from = json_string_value(text), *to = from + json_string_length(text);
    while (from < to && isspace((unsigned char)*from))
        from++;
    while (to > from && isspace((unsigned char)to[-1]))
        to--;
    return from == to || (in->n && memmem(in->bytes, in->n, from, (size_t)(to - from)));
}

static bool was_read(const json_t *value, const text_buffer *const texts[2])
{
    enum { MESSAGES = 8 }; /* so many show it; a text may be searched for each message */
    if (json_is_string(value))
        return has_text(texts[0], value) || (texts[1] && has_text(texts[1], value));
    bool all = json_is_array(value);
    for (size_t i = 0; i < json_array_size(value) && i < MESSAGES && all; i++) {
        const json_t *message = json_array_get(value, i), *content = json_object_get(message, "content");
        content = json_is_string(message) ? message : content ? content : json_object_get(message, "value");
        all = json_is_string(content) && was_read(content, texts);
    }
    return all;
}

/* ---- counting ---- */

/* Counts n records with a key; keys beyond the table are not counted. */
static void add_key(unread_tally *tally, const char *name, uint64_t n)
{
    size_t k = 0;
    while (k < UNREAD_KEYS && tally->keys[k].records && strcmp(tally->keys[k].name, name))
        k++;
    if (k == UNREAD_KEYS)
        return;
    memcpy(tally->keys[k].name, name, UNREAD_NAME);
    tally->keys[k].records += n;
}

void unread_count(const json_t *rest, const text_buffer *const texts[2], uint64_t line, uint32_t file, unread_tally *tally)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)rest, key, value) {
        char name[UNREAD_NAME] = "";
        const bool content = is_named_so(key) || is_long_text(value) || is_message(json_array_get(value, 0));
        if (!content || has_nothing(value) || was_read(value, texts))
            continue;
        for (size_t i = 0; key[i] && i < UNREAD_NAME - 1; i++)
            name[i] = iscntrl((unsigned char)key[i]) ? '?' : key[i];
        if (!tally->keys[0].records) {
            tally->line = line;
            tally->file = file;
        }
        add_key(tally, name, 1);
    }
}

void unread_add(unread_tally *all, const unread_tally *more)
{
    if (!all->keys[0].records) {
        all->line = more->line;
        all->file = more->file;
    }
    for (size_t k = 0; k < UNREAD_KEYS && more->keys[k].records; k++)
        add_key(all, more->keys[k].name, more->keys[k].records);
}

void unread_name(const unread_tally *tally, bool counts, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t k = 0; k < UNREAD_KEYS && tally->keys[k].records && used + UNREAD_NAME + 48 < size; k++) {
        const unsigned long long n = tally->keys[k].records;
        used += (size_t)snprintf(out + used, size - used, "%s\"%s\"", k ? ", " : "", tally->keys[k].name);
        if (counts)
            used += (size_t)snprintf(out + used, size - used, " (in %llu record%s)", n, n == 1 ? "" : "s");
    }
}
