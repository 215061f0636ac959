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

/* The key of the reply beside a question; NULL: none. */
static const char *reply_of(const json_t *record)
{
    return json_object_get(record, "output") ? "output" : json_object_get(record, "response") ? "response" : NULL;
}

static bool has_keys(pt_data_format f, const json_t *record)
{
    const char *const *keys = formats[f].keys;
    return keys[0] && json_object_get(record, keys[0]) &&
           (f == PT_DATA_ALPACA ? reply_of(record) != NULL : !keys[1] || json_object_get(record, keys[1]));
}

/* Other keys of prompt and of alpaca, recognized only if the record has the keys of no other format. */
static bool is_question(const json_t *record) { return json_object_get(record, "question") && json_object_get(record, "answer"); }
static bool is_query(const json_t *record) { return record_question(record) && reply_of(record); }

bool format_fits(pt_data_format f, const json_t *record)
{
    return has_keys(f, record) || (f == PT_DATA_PROMPT && is_question(record)) || (f == PT_DATA_ALPACA && is_query(record));
}

bool format_converses(pt_data_format f)
{
    return f == PT_DATA_MESSAGES || f == PT_DATA_SHAREGPT || f == PT_DATA_PROMPT || f == PT_DATA_ALPACA;
}

pt_data_format format_of(const json_t *record)
{
    static const pt_data_format order[] = {PT_DATA_PREFERENCE, PT_DATA_MESSAGES, PT_DATA_SHAREGPT, PT_DATA_PROMPT, PT_DATA_ALPACA,
                                           PT_DATA_TEXT};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (has_keys(order[i], record))
            return order[i];
    return is_question(record) ? PT_DATA_PROMPT : is_query(record) ? PT_DATA_ALPACA : PT_DATA_AUTO;
}

static bool is_list(const json_t *record, const char *key)
{
    json_t *value = messages_or_text(json_object_get(record, key));
    const bool list = json_is_array(value);
    json_decref(value);
    return list;
}

bool format_chats(pt_data_format f, const json_t *record)
{
    if (f == PT_DATA_PROMPT)
        return is_list(record, "prompt") || is_list(record, "completion") || record_has_system(record);
    if (f == PT_DATA_PREFERENCE)
        return is_list(record, "prompt") || is_list(record, "chosen") || record_has_system(record) || pair_has_question(record);
    return f == PT_DATA_MESSAGES || f == PT_DATA_SHAREGPT || f == PT_DATA_ALPACA;
}

int format_label(const json_t *record)
{
    static const char *const keys[] = {"label", "kto_tag"}, *const words[2][3] = {{"false", "False", "0"}, {"true", "True", "1"}};
    int label = -1;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && label < 0; k++) {
        const json_t *value = json_object_get(record, keys[k]);
        const char *text = json_string_value(value);
        if (json_is_boolean(value) || json_is_integer(value))
            label = json_is_true(value) || json_integer_value(value) == 1 ? 1
                    : json_is_false(value) || json_integer_value(value) == 0 ? 0 : -1;
        for (int i = 0; text && i < 6; i++)
            label = !strcmp(text, words[i / 3][i % 3]) ? i / 3 : label;
    }
    return label;
}

const char *format_name(pt_data_format f) { return formats[f].name; }

const char *format_keys(pt_data_format f)
{
    static const char *const keys[] = {
        [PT_DATA_AUTO] = "", [PT_DATA_TEXT] = "\"text\"", [PT_DATA_MESSAGES] = "\"messages\"", [PT_DATA_SHAREGPT] = "\"conversations\"",
        [PT_DATA_PROMPT] = "\"prompt\" and \"completion\"",
        [PT_DATA_ALPACA] = "\"instruction\" (or \"query\", \"question\", \"input\") and \"output\" (or \"response\")",
        [PT_DATA_TOKENS] = "",
        [PT_DATA_PREFERENCE] = "\"chosen\" and \"rejected\""};
    return keys[f];
}

int format_unknown(json_t *record, const char *where, pt_error *e)
{
    char keys[320];
    record_keys(record, keys, sizeof keys);
    return pt_fail(e, PT_FAILED,
                   "%.400s: the format of this record is unknown: it has none of the keys \"text\", \"messages\", \"conversations\", "
                   "\"prompt\" and \"completion\", \"question\" and \"answer\", \"instruction\" (or \"query\", \"input\") and \"output\" "
                   "(or \"response\"), or \"chosen\" and \"rejected\" (its keys: %s): rename its keys to those of one format",
                   where, keys[0] ? keys : "none");
}

/* ---- the readers ---- */

/* A conversation of `messages`, with the record's tools and settings, or without messages the error. Takes the messages. */
static int finish(int rc, json_t *record, json_t *messages, format_place *p, format_record *out)
{
    if (rc == 0)
        rc = messages_take_weights(messages, p, out);
    if (rc == 0) {
        json_t *tools = record_take(record, "tools"), *settings = record_take(record, "chat_template_kwargs");
        out->conversation = json_pack("{s:O}", "messages", messages);
        if (tools && !(json_is_string(tools) && !json_string_length(tools)))
            json_object_set(out->conversation, "tools", tools);
        if (settings)
            json_object_set(out->conversation, "chat_template_kwargs", settings);
        json_decref(tools);
        json_decref(settings);
    }
    json_decref(messages);
    return rc;
}

static int read_list(json_t *record, const char *key, format_place *p, format_record *out)
{
    json_t *given = record_take(record, key), *turns, *messages = json_array();
    int rc = record_list(given, key, p, &turns);
    if (rc == 0)
        rc = messages_add(messages, turns, p);
    if (rc == 0 && !json_array_size(messages))
        rc = pt_fail(p->error, PT_FAILED, "%.400s: the conversation is empty: remove such records from the file", p->where);
    if (rc == 0)
        rc = messages_add_system(messages, record, p);
    json_decref(turns);
    json_decref(given);
    return finish(rc, record, messages, p, out);
}

/* Both as texts: joined without a template. */
static int take_texts(format_record *out, json_t *prompt, json_t *completion, const char *between)
{
    json_t *nothing = json_string("");
    out->prompt = texts_join(prompt, between, nothing);
    out->completion = json_incref(completion);
    json_decref(nothing);
    return 0;
}

/* Adds a text as one message, or a list. */
static int add_either(json_t *messages, const char *role, const char *key, json_t *value, format_place *p)
{
    if (json_is_string(value)) {
        message_put(messages, role, value);
        p->message++;
        return 0;
    }
    if (!json_array_size(value))
        return pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" has no messages: remove such records from the file", p->where, key);
    return messages_add(messages, value, p);
}

static int join_messages(json_t *record, const char *const keys[2], json_t *const values[2], format_place *p, format_record *out)
{
    json_t *messages = json_array();
    int rc = add_either(messages, "user", keys[0], values[0], p);
    if (rc == 0)
        rc = messages_add_system(messages, record, p);
    out->prompt_messages = json_array_size(messages);
    if (rc == 0)
        rc = add_either(messages, "assistant", keys[1], values[1], p);
    return finish(rc, record, messages, p, out);
}

static int read_prompt(json_t *record, format_place *p, format_record *out)
{
    static const char *const names[2][2] = {{"prompt", "completion"}, {"question", "answer"}};
    const bool asks = !has_keys(PT_DATA_PROMPT, record);
    const char *const *keys = names[asks];
    json_t *values[2] = {NULL, NULL};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        json_t *given = record_take(record, keys[i]);
        values[i] = messages_or_text(given);
        if (!json_is_string(values[i]) && !json_is_array(values[i]))
            rc = pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" is %s, but it must be a string or a list of messages", p->where, keys[i],
                         values[i] ? json_type_name(values[i]) : "null");
        json_decref(given);
    }
    if (rc == 0)
        rc = json_is_array(values[0]) || json_is_array(values[1]) || record_has_system(record)
                 ? join_messages(record, keys, values, p, out)
                 : take_texts(out, values[0], values[1], asks ? "\n" : "");
    json_decref(values[0]);
    json_decref(values[1]);
    return rc;
}

static int read_alpaca(json_t *record, format_place *p, format_record *out)
{
    const char *key = reply_of(record);
    json_t *messages = json_array(), *reply = NULL;
    int rc = messages_add_question(messages, record, p);
    if (rc == 0)
        rc = record_take_text(record, key, p, &reply);
    if (rc == 0 && !reply)
        rc = pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" is null, but it must be a string", p->where, key);
    if (rc == 0)
        message_put(messages, "assistant", reply);
    if (rc == 0)
        rc = messages_add_system(messages, record, p);
    json_decref(reply);
    return finish(rc, record, messages, p, out);
}

void format_record_free(format_record *r)
{
    json_decref(r->conversation);
    json_decref(r->prompt);
    json_decref(r->completion);
    free(r->skipped);
    *r = (format_record){0};
}

int format_read(pt_data_format f, json_t *record, const char *where, format_record *out, pt_error *e)
{
    format_place p = {.where = where, .error = e};
    *out = (format_record){0};
    switch (f) {
    case PT_DATA_MESSAGES: return read_list(record, "messages", &p, out);
    case PT_DATA_SHAREGPT: return read_list(record, "conversations", &p, out);
    case PT_DATA_PROMPT: return read_prompt(record, &p, out);
    default: return read_alpaca(record, &p, out);
    }
}
