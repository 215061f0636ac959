/* calls.c - arguments of tool calls. OpenAI's API writes them as JSON in a string; most templates expect the values. */
#include "chat/replies.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

typedef struct call_place { const char *where; size_t message; pt_error *error; } call_place;

static int decode(const json_t *text, const call_place *p, json_t **out)
{
    char name[512];
    const char *bytes = json_string_value(text);
    if (strspn(bytes, " \t\r\n") == json_string_length(text)) {
        *out = json_object();
        return 0;
    }
    snprintf(name, sizeof name, "%.300s: message %zu: \"arguments\" of a tool call", p->where, p->message);
    int failed = json_text_load(name, bytes, json_string_length(text), JSON_DECODE_ANY, out, p->error);
    if (!failed && !json_is_object(*out))
        failed = pt_fail(p->error, PT_FAILED, "%.420s: the string has %s, but a JSON object is needed", name, json_type_name(*out));
    if (failed)
        json_decref(*out);
    return failed;
}

static bool has_text(const json_t *holder) { return json_is_string(json_object_get(holder, "arguments")); }

/* *out = a call with its arguments decoded, a new reference: the call itself if they are no string. */
static int decode_call(json_t *call, const call_place *p, json_t **out)
{
    json_t *function = json_object_get(call, "function"), *holder = has_text(function) ? function : call, *value;
    *out = json_incref(call);
    if (!has_text(holder))
        return 0;
    const int failed = decode(json_object_get(holder, "arguments"), p, &value);
    if (failed) {
        json_decref(call);
        *out = NULL;
        return failed;
    }
    json_t *copy = json_copy(holder);
    json_object_set_new(copy, "arguments", value);
    if (holder == function) {
        json_t *outer = json_copy(call);
        json_object_set_new(outer, "function", copy);
        copy = outer;
    }
    json_decref(call);
    *out = copy;
    return 0;
}

static int decode_calls(const json_t *calls, const call_place *p, json_t **out)
{
    json_t *list = json_array(), *call;
    int failed = 0;
    for (size_t i = 0; i < json_array_size(calls) && !failed; i++)
        if (!(failed = decode_call(json_array_get(calls, i), p, &call)))
            json_array_append_new(list, call);
    if (failed)
        json_decref(list);
    else
        *out = list;
    return failed;
}

static bool any_text(const json_t *calls)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        any = any || has_text(call) || has_text(json_object_get(call, "function"));
    }
    return any;
}

int chat_decode_arguments(json_t *variables, const char *where, bool *decoded, pt_error *e)
{
    json_t *messages = json_object_get(variables, "messages"), *out = json_array();
    int failed = 0;
    *decoded = false;
    for (size_t i = 0; i < json_array_size(messages) && !failed; i++) {
        json_t *message = json_array_get(messages, i), *calls = json_object_get(message, "tool_calls"), *values;
        const call_place p = {where, i + 1, e};
        if (!any_text(calls)) {
            json_array_append(out, message);
        } else if (!(failed = decode_calls(calls, &p, &values))) {
            json_t *copy = json_copy(message);
            json_object_set_new(copy, "tool_calls", values);
            json_array_append_new(out, copy);
            *decoded = true;
        }
    }
    if (failed || !*decoded)
        json_decref(out);
    else
        json_object_set_new(variables, "messages", out);
    return failed;
}
