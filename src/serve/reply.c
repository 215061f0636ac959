#include "serve/reply.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put(text_buffer *out, json_t *o, bool as_event)
{
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    int failed = !text || (as_event && text_buffer_append(out, "data: ", 6, NULL)) || text_buffer_append(out, text, strlen(text), NULL) ||
                 text_buffer_append(out, as_event ? "\n\n" : "\n", as_event ? 2 : 1, NULL);
    free(text);
    return failed;
}

static json_t *usage_of(const serve_reply *r)
{
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)r->prompt_tokens, "completion_tokens", (json_int_t)r->tokens,
                     "total_tokens", (json_int_t)(r->prompt_tokens + r->tokens));
}

static const char *end_of(const serve_reply *r) { return r->cut ? "length" : "stop"; }

/* choices: NULL: none */
static json_t *envelope(const serve_reply *r, bool piece, json_t *choice)
{
    char id[40];
    snprintf(id, sizeof id, "%s-%llx-%llx", r->chat ? "chatcmpl" : "cmpl", (unsigned long long)r->created, (unsigned long long)r->number);
    json_t *choices = json_array();
    if (choice)
        json_array_append_new(choices, choice);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object",
                     !r->chat ? "text_completion" : piece ? "chat.completion.chunk" : "chat.completion", "created", (json_int_t)r->created,
                     "model", r->model, "choices", choices);
}

/* content: a text, taken; reason NULL: it goes on. */
static json_t *choice_of(const serve_reply *r, const char *key, json_t *content, const char *reason)
{
    json_t *choice = json_pack("{s:i, s:o, s:n, s:o}", "index", 0, r->chat ? key : "text", content, "logprobs", "finish_reason",
                               reason ? json_string(reason) : json_null());
    return choice;
}

int serve_put_whole(text_buffer *out, const serve_reply *r, const char *text, size_t n)
{
    json_t *content = json_stringn(n ? text : "", n);
    if (r->chat)
        content = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", content, "refusal");
    json_t *o = envelope(r, false, choice_of(r, "message", content, end_of(r)));
    json_object_set_new(o, "usage", usage_of(r));
    return put(out, o, false);
}

int serve_put_first(text_buffer *out, const serve_reply *r)
{
    if (!r->chat)
        return 0;
    return put(out, envelope(r, true, choice_of(r, "delta", json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL)), true);
}

int serve_put_piece(text_buffer *out, const serve_reply *r, const char *text, size_t n)
{
    json_t *content = json_stringn(text, n);
    return put(out, envelope(r, true, choice_of(r, "delta", r->chat ? json_pack("{s:o}", "content", content) : content, NULL)), true);
}

int serve_put_last(text_buffer *out, const serve_reply *r, bool usage)
{
    int failed = put(out, envelope(r, true, choice_of(r, "delta", r->chat ? json_object() : json_string(""), end_of(r))), true);
    if (usage && !failed) {
        json_t *o = envelope(r, true, NULL);
        json_object_set_new(o, "usage", usage_of(r));
        failed = put(out, o, true);
    }
    return failed || text_buffer_append(out, "data: [DONE]\n\n", 14, NULL);
}

int serve_put_error(text_buffer *out, const char *sentence, bool of_server, bool as_event)
{
    return put(out, json_pack("{s:{s:s, s:s, s:n, s:n}}", "error", "message", sentence, "type",
                              of_server ? "server_error" : "invalid_request_error", "param", "code"), as_event);
}

int serve_put_models(text_buffer *out, const char *model, int64_t created, bool list)
{
    json_t *one = json_pack("{s:s, s:s, s:I, s:s}", "id", model, "object", "model", "created", (json_int_t)created, "owned_by", "protrain");
    return put(out, list ? json_pack("{s:s, s:[o]}", "object", "list", "data", one) : one, false);
}
