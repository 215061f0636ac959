#include "data/formats.h"

#include "base/json.h"
#include "data/documents.h"
#include "data/format_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- which format ---- */

static const struct { const char *name, *keys[2]; } formats[] = {
    [PT_DATA_AUTO] = {"auto", {NULL}},
    [PT_DATA_TEXT] = {"text", {"text"}},
    [PT_DATA_MESSAGES] = {"messages", {"messages"}},
    [PT_DATA_SHAREGPT] = {"sharegpt", {"conversations"}},
    [PT_DATA_PROMPT] = {"prompt", {"prompt", "completion"}},
    [PT_DATA_ALPACA] = {"alpaca", {"instruction", "output"}},
    [PT_DATA_TOKENS] = {"tokens", {NULL}},
    [PT_DATA_PREFERENCE] = {"preference", {"chosen", "rejected"}},
};

static bool has_keys(pt_data_format f, const json_t *record)
{
    const char *const *keys = formats[f].keys;
    return keys[0] && json_object_get(record, keys[0]) && (!keys[1] || json_object_get(record, keys[1]));
}

/* Another form of prompt and completion, recognized only if the record has the keys of no other format. */
static bool is_question(const json_t *record) { return json_object_get(record, "question") && json_object_get(record, "answer"); }

bool format_fits(pt_data_format f, const json_t *record) { return has_keys(f, record) || (f == PT_DATA_PROMPT && is_question(record)); }

pt_data_format format_of(const json_t *record)
{
    static const pt_data_format order[] = {PT_DATA_PREFERENCE, PT_DATA_MESSAGES, PT_DATA_SHAREGPT, PT_DATA_PROMPT, PT_DATA_ALPACA,
                                           PT_DATA_TEXT};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (has_keys(order[i], record))
            return order[i];
    return is_question(record) ? PT_DATA_PROMPT : PT_DATA_AUTO;
}

bool format_chats(pt_data_format f, const json_t *record)
{
    const char *reply = f == PT_DATA_PROMPT ? "completion" : f == PT_DATA_PREFERENCE ? "chosen" : NULL;
    return reply ? json_is_array(json_object_get(record, reply)) : f == PT_DATA_MESSAGES || f == PT_DATA_SHAREGPT || f == PT_DATA_ALPACA;
}

const char *format_name(pt_data_format f) { return formats[f].name; }

const char *format_keys(pt_data_format f)
{
    static const char *const keys[] = {
        [PT_DATA_AUTO] = "", [PT_DATA_TEXT] = "\"text\"", [PT_DATA_MESSAGES] = "\"messages\"", [PT_DATA_SHAREGPT] = "\"conversations\"",
        [PT_DATA_PROMPT] = "\"prompt\" and \"completion\"", [PT_DATA_ALPACA] = "\"instruction\" and \"output\"", [PT_DATA_TOKENS] = "",
        [PT_DATA_PREFERENCE] = "\"chosen\" and \"rejected\""};
    return keys[f];
}

int format_unknown(json_t *record, const char *where, pt_error *e)
{
    char keys[320];
    record_keys(record, keys, sizeof keys);
    return pt_fail(e, PT_FAILED,
                   "%.400s: the format of this record is unknown: it has none of the keys \"text\", \"messages\", \"conversations\", "
                   "\"prompt\" and \"completion\", \"question\" and \"answer\", \"instruction\" and \"output\", or \"chosen\" and "
                   "\"rejected\" (its keys: %s): rename its keys to those of one format",
                   where, keys[0] ? keys : "none");
}

static int read_messages(json_t *record, format_place *p, format_record *out)
{
    json_t *messages;
    int rc = record_list(json_object_get(record, "messages"), "messages", p, &messages);
    if (rc == 0)
        rc = messages_check(messages, p);
    if (rc == 0)
        rc = messages_take_weights(messages, p, out);
    if (rc == 0) {
        json_object_set(record, "messages", messages);
        out->conversation = json_incref(record);
    }
    json_decref(messages);
    return rc;
}

/* A conversation of `messages` (takes the reference), with the record's tools and settings. */
static json_t *conversation_of(const json_t *record, json_t *messages)
{
    json_t *c = json_pack("{s:o}", "messages", messages), *tools = json_object_get(record, "tools");
    json_t *settings = json_object_get(record, "chat_template_kwargs");
    if (tools && !(json_is_string(tools) && !json_string_length(tools)))
        json_object_set(c, "tools", tools);
    if (settings)
        json_object_set(c, "chat_template_kwargs", settings);
    return c;
}

static void put_message(json_t *messages, const char *role, const json_t *content)
{
    json_array_append_new(messages, json_pack("{s:s, s:O}", "role", role, "content", content));
}

static void put_system(json_t *messages, const json_t *record)
{
    const json_t *system = json_object_get(record, "system");
    if (json_is_string(system) && json_string_length(system))
        put_message(messages, "system", system);
}

/* ---- ShareGPT ---- */

/* Adds tool calls: {"name", "arguments"}, or a list of them. */
static int put_calls(json_t *messages, const json_t *value, const format_place *p)
{
    json_t *calls = NULL, *list = json_array();
    char name[512];
    snprintf(name, sizeof name, "%.400s: message %zu", p->where, p->message);
    int rc = json_text_load(name, json_string_value(value), json_string_length(value), 0, &calls, p->error);
    const size_t n = json_is_array(calls) ? json_array_size(calls) : 1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        json_t *call = json_is_array(calls) ? json_array_get(calls, i) : calls;
        if (!json_is_string(json_object_get(call, "name")))
            rc = pt_fail(p->error, PT_FAILED, "%s: a function_call is not {\"name\": ..., \"arguments\": ...}", name);
        else
            json_array_append_new(list, json_pack("{s:s, s:O}", "type", "function", "function", call));
    }
    if (rc == 0)
        json_array_append_new(messages, json_pack("{s:s, s:s, s:O}", "role", "assistant", "content", "", "tool_calls", list));
    json_decref(calls);
    json_decref(list);
    return rc;
}

static int put_turn(json_t *messages, json_t *turn, const format_place *p)
{
    const char *from = json_string_value(json_object_get(turn, "from")), *role = from ? message_role_of(from) : NULL;
    json_t *value = json_object_get(turn, "value"), *joined = NULL;
    if (!from)
        return pt_fail(p->error, PT_FAILED, "%.400s: message %zu is not {\"from\": ..., \"value\": ...}", p->where, p->message);
    if (json_is_array(value)) {
        int rc = texts_join_parts(value, p, &joined);
        if (rc < 0)
            return rc;
        value = joined;
    }
    int rc = 0;
    if (!json_is_string(value))
        rc = pt_fail(p->error, PT_FAILED, "%.400s: message %zu: \"value\" is %s, but it must be a string", p->where, p->message,
                     json_type_name(value));
    else if (!strcmp(from, "function_call"))
        rc = put_calls(messages, value, p);
    else if (role)
        put_message(messages, role, value);
    else
        rc = pt_fail(p->error, PT_FAILED,
                     "%.400s: message %zu: unknown \"from\": \"%.40s\": it must be human, gpt, system, observation, tool or function_call",
                     p->where, p->message, from);
    json_decref(joined);
    if (rc == 0)
        message_copy_weight(json_array_get(messages, json_array_size(messages) - 1), turn);
    return rc;
}

static int read_sharegpt(const json_t *record, format_place *p, format_record *out)
{
    json_t *turns, *messages = json_array();
    int rc = record_list(json_object_get(record, "conversations"), "conversations", p, &turns);
    put_system(messages, record);
    for (size_t i = 0; i < json_array_size(turns) && rc == 0; i++) {
        json_t *turn = json_array_get(turns, i);
        p->message = i + 1;
        if (json_object_get(turn, "from") || !json_object_get(turn, "role"))
            rc = put_turn(messages, turn, p);
        else if ((rc = message_check(turn, p)) == 0)
            json_array_append(messages, turn);
    }
    if (rc == 0 && !json_array_size(turns))
        rc = messages_check(turns, p);
    if (rc == 0)
        rc = messages_take_weights(messages, p, out);
    if (rc == 0)
        out->conversation = conversation_of(record, messages);
    else
        json_decref(messages);
    json_decref(turns);
    return rc;
}

/* ---- prompt and completion ---- */

/* Makes a prompt of the question and a newline, and a completion of the answer. */
static int take_question(json_t *record, const format_place *p)
{
    const json_t *question = json_object_get(record, "question");
    json_t *answer = json_object_get(record, "answer"), *nothing = json_string("");
    int rc = 0;
    if (!json_is_string(question) || !json_is_string(answer))
        rc = pt_fail(p->error, PT_FAILED, "%.400s: \"question\" is %s and \"answer\" %s, but both must be strings", p->where,
                     json_type_name(question), json_type_name(answer));
    if (rc == 0) {
        json_object_set_new(record, "prompt", texts_join(question, "\n", nothing));
        json_object_set(record, "completion", answer);
    }
    json_decref(nothing);
    return rc;
}

static int read_prompt(json_t *record, format_place *p, format_record *out)
{
    const int failed = has_keys(PT_DATA_PROMPT, record) ? 0 : take_question(record, p);
    if (failed)
        return failed;
    json_t *prompt = json_object_get(record, "prompt"), *completion = json_object_get(record, "completion");
    if (json_is_string(prompt) && json_is_string(completion)) {
        out->prompt = prompt;
        out->completion = completion;
        return 0;
    }
    if (!json_is_array(prompt) || !json_is_array(completion))
        return pt_fail(p->error, PT_FAILED,
                       "%.400s: \"prompt\" is %s and \"completion\" %s, but both must be strings, or both lists of messages",
                       p->where, json_type_name(prompt), json_type_name(completion));
    if (!json_array_size(prompt) || !json_array_size(completion))
        return pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" has no messages: remove such records from the file", p->where,
                       json_array_size(prompt) ? "completion" : "prompt");
    json_t *messages = json_copy(prompt);
    json_array_extend(messages, completion);
    int rc = messages_check(messages, p);
    if (rc == 0)
        rc = messages_take_weights(messages, p, out);
    out->prompt_messages = json_array_size(prompt);
    if (rc == 0)
        out->conversation = conversation_of(record, messages);
    else
        json_decref(messages);
    return rc;
}

/* ---- Alpaca ---- */

static int take_text(const json_t *record, const char *key, const format_place *p, const json_t **out)
{
    const json_t *value = json_object_get(record, key);
    *out = value;
    if (!value || json_is_null(value)) {
        *out = NULL;
        return 0;
    }
    return json_is_string(value) ? 0 : pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" is %s, but it must be a string", p->where, key,
                                               json_type_name(value));
}

static int put_history(json_t *messages, const json_t *record, const format_place *p)
{
    const json_t *given = json_object_get(record, "history");
    json_t *history;
    if (!given || json_is_null(given) || (json_is_string(given) && !json_string_length(given)))
        return 0;
    int rc = record_list(given, "history", p, &history);
    for (size_t i = 0; i < json_array_size(history) && rc == 0; i++) {
        const json_t *pair = json_array_get(history, i), *question = json_array_get(pair, 0), *answer = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(question) || !json_is_string(answer)) {
            rc = pt_fail(p->error, PT_FAILED, "%.400s: entry %zu of \"history\" is not [question, answer]", p->where, i + 1);
        } else {
            put_message(messages, "user", question);
            put_message(messages, "assistant", answer);
        }
    }
    json_decref(history);
    return rc;
}

static int read_alpaca(const json_t *record, const format_place *p, format_record *out)
{
    const json_t *instruction = NULL, *input = NULL, *output = NULL, *system;
    int rc = take_text(record, "instruction", p, &instruction);
    if (rc == 0)
        rc = take_text(record, "input", p, &input);
    if (rc == 0)
        rc = take_text(record, "output", p, &output);
    if (rc == 0)
        rc = take_text(record, "system", p, &system);
    if (rc == 0 && (!instruction || !output))
        rc = pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" is null, but it must be a string", p->where,
                     instruction ? "output" : "instruction");
    if (rc < 0)
        return rc;
    json_t *messages = json_array();
    put_system(messages, record);
    rc = put_history(messages, record, p);
    json_t *asked = texts_join(instruction, json_string_length(instruction) && json_string_length(input) ? "\n" : "", input);
    put_message(messages, "user", asked);
    json_decref(asked);
    put_message(messages, "assistant", output);
    if (rc == 0)
        out->conversation = conversation_of(record, messages);
    else
        json_decref(messages);
    return rc;
}

void format_record_free(format_record *r)
{
    json_decref(r->conversation);
    free(r->skipped);
    *r = (format_record){0};
}

int format_read(pt_data_format f, json_t *record, const char *where, format_record *out, pt_error *e)
{
    format_place p = {.where = where, .error = e};
    *out = (format_record){0};
    switch (f) {
    case PT_DATA_MESSAGES: return read_messages(record, &p, out);
    case PT_DATA_SHAREGPT: return read_sharegpt(record, &p, out);
    case PT_DATA_PROMPT: return read_prompt(record, &p, out);
    default: return read_alpaca(record, &p, out);
    }
}
