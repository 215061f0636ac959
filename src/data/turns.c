/* turns.c - the messages that the keys of a record give: lists of turns, the system message, and a question with its history. */
#include "base/json.h"
#include "data/format_parts.h"

#include <string.h>

json_t *record_take(json_t *record, const char *key)
{
    json_t *value = json_incref(json_object_get(record, key));
    json_object_del(record, key);
    if (!json_is_null(value))
        return value;
    json_decref(value);
    return NULL;
}

int record_take_text(json_t *record, const char *key, const format_place *p, json_t **out)
{
    const json_t *value = json_object_get(record, key);
    *out = NULL;
    if (value && !json_is_null(value) && !json_is_string(value))
        return pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" is %s, but it must be a string", p->where, key, json_type_name(value));
    *out = record_take(record, key);
    return 0;
}

void message_put(json_t *messages, const char *role, const json_t *content)
{
    json_array_append_new(messages, json_pack("{s:s, s:O}", "role", role, "content", content));
}

/* ---- ShareGPT's turns ---- */

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

static int put_value(json_t *messages, const char *from, const json_t *value, const format_place *p)
{
    const char *role = message_role_of(from);
    if (!json_is_string(value))
        return pt_fail(p->error, PT_FAILED, "%.400s: message %zu: \"value\" is %s, but it must be a string", p->where, p->message,
                       value ? json_type_name(value) : "absent");
    if (!strcmp(from, "function_call"))
        return put_calls(messages, value, p);
    if (!role)
        return pt_fail(p->error, PT_FAILED,
                       "%.400s: message %zu: unknown \"from\": \"%.40s\": it must be human, gpt, system, observation, tool or "
                       "function_call", p->where, p->message, from);
    message_put(messages, role, value);
    return 0;
}

static int put_turn(json_t *messages, const json_t *turn, const format_place *p)
{
    const char *from = json_string_value(json_object_get(turn, "from"));
    json_t *value = json_incref(json_object_get(turn, "value")), *joined;
    int rc = from ? 0 : pt_fail(p->error, PT_FAILED, "%.400s: message %zu: \"from\" is not a string", p->where, p->message);
    if (rc == 0 && json_is_array(value) && (rc = texts_join_parts(value, p, &joined)) == 0) {
        json_decref(value);
        value = joined;
    }
    if (rc == 0)
        rc = put_value(messages, from, value, p);
    json_decref(value);
    if (rc == 0)
        message_copy_weight(json_array_get(messages, json_array_size(messages) - 1), turn);
    return rc;
}

/* ---- lists ---- */

int messages_add(json_t *all, const json_t *list, format_place *p)
{
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        json_t *message = json_array_get(list, i);
        p->message++;
        if (json_object_get(message, "from") && (json_object_get(message, "value") || !json_object_get(message, "role")))
            rc = put_turn(all, message, p);
        else if ((rc = message_check(message, p)) == 0)
            json_array_append(all, message);
    }
    return rc;
}

const char *message_role(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role")), *from = json_string_value(json_object_get(message, "from"));
    return role ? role : !from ? NULL : !strcmp(from, "function_call") ? "assistant" : message_role_of(from);
}

bool is_message(const json_t *value) { return json_object_get(value, "role") || json_object_get(value, "from"); }

json_t *messages_or_text(const json_t *value)
{
    const char *text = json_string_value(value);
    const size_t n = json_string_length(value);
    json_t *parsed = NULL, *given = (json_t *)value;
    if (text && text[0] == '[' && !json_text_check("", text, n, NULL))
        parsed = json_loadb(text, n, 0, NULL);
    if (is_message(json_array_get(parsed, 0)))
        given = parsed;
    json_t *out = is_message(given) ? json_pack("[O]", given) : json_incref(given);
    json_decref(parsed);
    return out;
}

/* ---- the system message ---- */

static const char *const system_keys[] = {"system", "system_prompt"};
enum { SYSTEM_KEYS = sizeof system_keys / sizeof *system_keys };

bool record_has_system(const json_t *record)
{
    bool has = false;
    for (int k = 0; k < SYSTEM_KEYS; k++)
        has = has || json_object_get(record, system_keys[k]);
    return has;
}

int messages_add_system(json_t *messages, json_t *record, const format_place *p)
{
    const char *first = message_role(json_array_get(messages, 0));
    int rc = 0;
    for (int k = 0; k < SYSTEM_KEYS && rc == 0; k++) {
        json_t *system;
        if (first && (!strcmp(first, "system") || !strcmp(first, "developer")))
            return 0;
        rc = record_take_text(record, system_keys[k], p, &system);
        if (rc == 0 && json_string_length(system)) {
            json_array_insert_new(messages, 0, json_pack("{s:s, s:O}", "role", "system", "content", system));
            first = "system";
        }
        json_decref(system);
    }
    return rc;
}

/* ---- a question ---- */

static const char *const question_keys[] = {"instruction", "query", "question", "input", NULL};
static const char *const detail_keys[] = {"input", "context", NULL};

const char *record_question(const json_t *record)
{
    const char *const *key = question_keys;
    while (*key && !json_object_get(record, *key))
        key++;
    return *key;
}

static int add_history(json_t *messages, json_t *record, const format_place *p)
{
    json_t *given = record_take(record, "history"), *history = NULL;
    int rc = 0;
    if (given && !(json_is_string(given) && !json_string_length(given)))
        rc = record_list(given, "history", p, &history);
    for (size_t i = 0; i < json_array_size(history) && rc == 0; i++) {
        const json_t *pair = json_array_get(history, i), *question = json_array_get(pair, 0), *answer = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(question) || !json_is_string(answer)) {
            rc = pt_fail(p->error, PT_FAILED, "%.400s: entry %zu of \"history\" is not [question, answer]", p->where, i + 1);
        } else {
            message_put(messages, "user", question);
            message_put(messages, "assistant", answer);
        }
    }
    json_decref(history);
    json_decref(given);
    return rc;
}

/* Adds the text of a key to `asked` on a new line. */
static int join_detail(json_t *record, const char *key, const format_place *p, json_t **asked)
{
    json_t *more, *before = *asked;
    const int rc = record_take_text(record, key, p, &more);
    if (rc < 0 || !more)
        return rc;
    *asked = texts_join(before, json_string_length(before) && json_string_length(more) ? "\n" : "", more);
    json_decref(before);
    json_decref(more);
    return 0;
}

int messages_add_question(json_t *messages, json_t *record, const format_place *p)
{
    const char *key = record_question(record);
    json_t *asked;
    int rc = record_take_text(record, key, p, &asked);
    if (rc == 0 && !asked)
        rc = pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" is null, but it must be a string", p->where, key);
    for (const char *const *more = detail_keys; *more && rc == 0; more++)
        rc = join_detail(record, *more, p, &asked);
    if (rc == 0)
        rc = add_history(messages, record, p);
    if (rc == 0)
        message_put(messages, "user", asked);
    json_decref(asked);
    return rc;
}
