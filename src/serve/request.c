#include "serve/request.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

static const json_t *find(const serve_request *r, const char *key)
{
    const json_t *value = json_object_get(r->json, key);
    return json_is_null(value) ? NULL : value;
}

static int fail(const char *key, const char *what, pt_error *e) { return pt_fail(e, PT_FAILED, "\"%s\" %s", key, what); }

static int get_number(const serve_request *r, const char *key, double low, double high, double *out, pt_error *e)
{
    const json_t *value = find(r, key);
    if (!value)
        return 0;
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= low && number <= high))
        return pt_fail(e, PT_FAILED, "\"%s\" must be a number from %g to %g", key, low, high);
    *out = number;
    return 0;
}

static int get_whole(const serve_request *r, const char *key, int64_t low, int64_t *out, pt_error *e)
{
    const json_t *value = find(r, key);
    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < low)
        return pt_fail(e, PT_FAILED, "\"%s\" must be a whole number of at least %lld", key, (long long)low);
    *out = json_integer_value(value);
    return 0;
}

static int get_flag(const json_t *value, const char *key, bool *out, pt_error *e)
{
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_boolean(value))
        return fail(key, "must be true or false", e);
    *out = json_is_true(value);
    return 0;
}

static int get_stops(serve_request *r, pt_error *e)
{
    static const char rule[] = "must be a text, or a list of at most four, none of them empty";
    const json_t *value = find(r, "stop");
    const size_t n = json_is_array(value) ? json_array_size(value) : value != NULL;
    if (n > SERVE_STOPS_MOST)
        return fail("stop", rule, e);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(one) || !json_string_length(one) || strlen(json_string_value(one)) != json_string_length(one))
            return fail("stop", rule, e);
        r->stops[r->stops_n++] = json_string_value(one);
    }
    return 0;
}

/* What would change the reply and is not done: refused unless it asks for nothing. */
static int refuse_others(const serve_request *r, pt_error *e)
{
    static const char *const keys[] = {"tools", "functions", "logprobs", "top_logprobs", "echo", "suffix", "logit_bias", "audio",
                                       "presence_penalty", "frequency_penalty"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = find(r, keys[i]);
        const bool nothing = !value || json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
                             (json_is_array(value) && !json_array_size(value)) || (json_is_object(value) && !json_object_size(value)) ||
                             (json_is_string(value) && !json_string_length(value));
        if (!nothing)
            return fail(keys[i], "is not supported: leave it out", e);
    }
    static const char *const counts[] = {"n", "best_of"};
    for (size_t i = 0; i < 2; i++)
        if (find(r, counts[i]) && !(json_is_integer(find(r, counts[i])) && json_integer_value(find(r, counts[i])) == 1))
            return fail(counts[i], "must be 1: there is one reply to a request", e);
    const json_t *format = find(r, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    return format && (!type || strcmp(type, "text") != 0) ? fail("response_format", "must be {\"type\": \"text\"}", e) : 0;
}

/* ---- the prompt ---- */

/* The text of a content that is a list of parts. NULL: it has others than texts. */
static json_t *join_parts(const json_t *parts)
{
    size_t n = 0, at = 0;
    const size_t count = json_array_size(parts);
    for (size_t i = 0; i < count; i++) {
        const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
            return NULL;
        n += json_string_length(text);
    }
    char *all = malloc(n + 1);
    for (size_t i = 0; all && i < count; i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        memcpy(all + at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    json_t *joined = all ? json_stringn(all, n) : NULL;
    free(all);
    return joined;
}

static int get_messages(serve_request *r, pt_error *e)
{
    json_t *messages = json_object_get(r->json, "messages");
    if (!json_is_array(messages) || !json_array_size(messages))
        return fail("messages", "must be a list of at least one message", e);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *one = json_array_get(messages, i), *content = json_object_get(one, "content");
        const char *role = json_string_value(json_object_get(one, "role"));
        if (!role || !role[0])
            return pt_fail(e, PT_FAILED, "message %zu has no \"role\", such as \"user\"", i + 1);
        if (json_is_array(content)) {
            json_t *joined = join_parts(content);
            if (!joined)
                return pt_fail(e, PT_FAILED, "message %zu has parts that are not texts: only texts are supported", i + 1);
            json_object_set_new(one, "content", joined);
        } else if (!json_is_string(content))
            return pt_fail(e, PT_FAILED, "the \"content\" of message %zu must be a text", i + 1);
    }
    r->messages = messages;
    return 0;
}

static int get_prompt(serve_request *r, pt_error *e)
{
    const json_t *prompt = find(r, "prompt");
    if (json_is_array(prompt) && json_array_size(prompt) == 1)
        prompt = json_array_get(prompt, 0);
    if (!json_is_string(prompt))
        return fail("prompt", "must be a text, or a list of one", e);
    r->prompt = json_string_value(prompt);
    r->prompt_n = json_string_length(prompt);
    return 0;
}

/* ---- the body ---- */

static int get_all(serve_request *r, pt_error *e)
{
    const json_t *options = find(r, "stream_options");
    int failed = r->chat ? get_messages(r, e) : get_prompt(r, e);
    if (!failed)
        failed = get_whole(r, "max_tokens", 1, &r->most_tokens, e);
    if (!failed)
        failed = get_whole(r, "max_completion_tokens", 1, &r->most_tokens, e);
    if (!failed)
        failed = get_number(r, "temperature", 0, 1000, &r->temperature, e);
    if (!failed && r->temperature > 0 && r->temperature < 1e-3)
        failed = fail("temperature", "must be 0, or at least 0.001", e);
    if (!failed)
        failed = get_number(r, "top_p", 1e-9, 1, &r->top_p, e);
    if (!failed)
        failed = get_whole(r, "top_k", 0, &r->top_k, e);
    if (!failed)
        failed = get_whole(r, "seed", 0, &r->seed, e);
    if (!failed)
        failed = get_stops(r, e);
    if (!failed)
        failed = get_flag(find(r, "stream"), "stream", &r->stream, e);
    if (!failed && options && !json_is_object(options))
        failed = fail("stream_options", "must be an object", e);
    if (!failed)
        failed = get_flag(json_object_get(options, "include_usage"), "include_usage", &r->usage, e);
    return failed ? failed : refuse_others(r, e);
}

int serve_request_parse(const char *text, size_t n, bool chat, serve_request *out, pt_error *e)
{
    json_error_t where;
    *out = (serve_request){.chat = chat, .most_tokens = -1, .top_k = -1, .temperature = -1, .top_p = -1, .seed = -1};
    out->json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!out->json)
        return pt_fail(e, PT_FAILED, "the body is not JSON: line %d, column %d: %.150s", where.line, where.column, where.text);
    int failed = json_is_object(out->json) ? get_all(out, e) : pt_fail(e, PT_FAILED, "the body must be an object");
    if (failed)
        serve_request_free(out);
    return failed;
}

void serve_request_free(serve_request *r)
{
    json_decref(r->json);
    r->json = r->messages = NULL;
}
