/* pairs.c - splits records of preferences: the prompt with the chosen reply, and with the rejected one. */
#include "base/json.h"
#include "data/formats.h"

#include <string.h>

/* The number of equal messages at the start of both. Fewer than either has, so that neither reply is empty. */
static size_t alike_messages(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n + 1 < json_array_size(a) && n + 1 < json_array_size(b) && json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

/* The length of the common prefix of both texts, without a space at its end. Shorter than both, so that neither reply is empty. */
static size_t alike_bytes(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(a), *y = json_string_value(b);
    size_t n = 0;
    while (x[n] && x[n] == y[n])
        n++;
    n -= n > 0 && (!x[n] || !y[n]);
    while (n > 0 && (x[n] & 0xC0) == 0x80) /* not inside a character */
        n--;
    return n - (n > 0 && x[n - 1] == ' ');
}

static json_t *tail_of(const json_t *reply, size_t from)
{
    if (json_is_string(reply))
        return json_stringn(json_string_value(reply) + from, json_string_length(reply) - from);
    json_t *tail = json_array();
    for (size_t i = from; i < json_array_size(reply); i++)
        json_array_append(tail, json_array_get(reply, i));
    return tail;
}

static json_t *head_of(const json_t *reply, size_t n)
{
    if (json_is_string(reply))
        return json_stringn(json_string_value(reply), n);
    json_t *head = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(head, json_array_get(reply, i));
    return head;
}

/* The list, if a string has one as JSON (.csv files have strings only); else the value itself. A new reference. */
static json_t *text_or_list(const json_t *value)
{
    const char *text = json_string_value(value);
    json_t *list = text && text[0] == '[' ? json_loadb(text, json_string_length(value), 0, NULL) : NULL;
    if (json_is_array(list))
        return list;
    json_decref(list);
    return json_incref((json_t *)value);
}

static json_t *with_reply(const json_t *record, json_t *prompt, json_t *reply)
{
    json_t *out = json_copy((json_t *)record);
    json_object_del(out, "chosen");
    json_object_del(out, "rejected");
    json_object_set(out, "prompt", prompt);
    json_object_set_new(out, "completion", reply);
    return out;
}

int format_split_pair(const json_t *record, const char *where, json_t *out[2], pt_error *e)
{
    json_t *chosen = text_or_list(json_object_get(record, "chosen")), *rejected = text_or_list(json_object_get(record, "rejected"));
    const json_t *given = json_object_get(record, "prompt");
    json_t *prompt = given ? text_or_list(given) : NULL;
    int rc = 0;
    if (!(json_is_string(chosen) && json_is_string(rejected)) && !(json_is_array(chosen) && json_is_array(rejected))) {
        rc = pt_fail(e, PT_FAILED, "%.400s: \"chosen\" is %s and \"rejected\" %s, but both must be strings, or both lists of messages",
                     where, json_type_name(chosen), json_type_name(rejected));
    } else if (prompt && json_is_string(prompt) != json_is_string(chosen)) {
        rc = pt_fail(e, PT_FAILED, "%.400s: \"prompt\" is %s, but \"chosen\" and \"rejected\" are %s: all three must be strings, or "
                     "lists of messages",
                     where, json_type_name(prompt), json_is_string(chosen) ? "strings" : "lists");
    } else if (prompt) {
        out[0] = with_reply(record, prompt, json_incref(chosen));
        out[1] = with_reply(record, prompt, json_incref(rejected));
    } else {
        const size_t n = json_is_string(chosen) ? alike_bytes(chosen, rejected) : alike_messages(chosen, rejected);
        prompt = head_of(chosen, n);
        out[0] = with_reply(record, prompt, tail_of(chosen, n));
        out[1] = with_reply(record, prompt, tail_of(rejected, n));
    }
    json_decref(prompt);
    json_decref(chosen);
    json_decref(rejected);
    return rc;
}
