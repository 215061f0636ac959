/* messages.c - the messages of a record: content, tool calls, roles, weights. */
#include "base/json.h"
#include "data/format_parts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int record_list(const json_t *value, const char *key, const format_place *p, json_t **out)
{
    char name[512];
    const char *text = json_string_value(value);
    *out = NULL;
    if (text && text[strspn(text, " \t\r\n")] == '[') {
        snprintf(name, sizeof name, "%.400s: \"%s\"", p->where, key);
        int rc = json_text_load(name, text, json_string_length(value), 0, out, p->error);
        if (rc < 0)
            return rc;
    } else {
        *out = json_incref((json_t *)value);
    }
    if (json_is_array(*out))
        return 0;
    pt_fail(p->error, PT_FAILED, "%.400s: \"%s\" is %s, but a list is needed", p->where, key, json_type_name(*out));
    json_decref(*out);
    *out = NULL;
    return PT_FAILED;
}

static int bad_part(const json_t *part, const format_place *p)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type && strcmp(type, "text"))
        return pt_fail(p->error, PT_FAILED,
                       "%.400s: message %zu has a part of type \"%.40s\", but only text is trained: remove such records from the file",
                       p->where, p->message, type);
    return pt_fail(p->error, PT_FAILED, "%.400s: message %zu: a part of its content is not {\"type\": \"text\", \"text\": \"...\"}",
                   p->where, p->message);
}

json_t *texts_join(const json_t *a, const char *between, const json_t *b)
{
    const size_t n[3] = {json_string_length(a), strlen(between), json_string_length(b)};
    char *text = malloc(n[0] + n[1] + n[2] + 1);
    if (!text)
        return NULL;
    memcpy(text, n[0] ? json_string_value(a) : "", n[0]);
    memcpy(text + n[0], between, n[1]);
    memcpy(text + n[0] + n[1], n[2] ? json_string_value(b) : "", n[2]);
    json_t *joined = json_stringn(text, n[0] + n[1] + n[2]);
    free(text);
    return joined;
}

int texts_join_parts(const json_t *parts, const format_place *p, json_t **out)
{
    json_t *all = json_string("");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *text = json_is_string(part) ? part : json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!text)
            text = json_object_get(part, "value");
        if (!json_is_string(text) || (type && strcmp(type, "text"))) {
            json_decref(all);
            return bad_part(part, p);
        }
        json_t *longer = texts_join(all, "", text);
        json_decref(all);
        all = longer;
    }
    *out = all;
    return all ? 0 : pt_fail(p->error, PT_FAILED, "%.400s: message %zu: out of memory for its parts", p->where, p->message);
}

static bool is_reasoning(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && (!strcmp(type, "reasoning") || !strcmp(type, "thinking"));
}

/* The text of {"type": "reasoning", "text" or "reasoning": "..."} or {"type": "thinking", "thinking": "..." or parts}. */
static int reasoning_text(const json_t *part, const format_place *p, json_t **out)
{
    static const char *const keys[] = {"text", "reasoning", "thinking", "content", "value"};
    json_t *text = NULL;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && !text; k++)
        text = json_object_get(part, keys[k]);
    if (json_is_array(text))
        return texts_join_parts(text, p, out);
    *out = json_incref(text);
    return json_is_string(text) ? 0 : bad_part(part, p);
}

/* Splits a content into the joined text of its reasoning, NULL if it has none, and its other parts; new references. */
static int split_reasoning(const json_t *content, const format_place *p, json_t **reasoning, json_t *rest)
{
    int rc = 0;
    *reasoning = NULL;
    for (size_t i = 0; i < json_array_size(content) && rc == 0; i++) {
        json_t *part = json_array_get(content, i), *text = NULL, *before = *reasoning;
        if (!is_reasoning(part)) {
            json_array_append(rest, part);
            continue;
        }
        rc = reasoning_text(part, p, &text);
        *reasoning = rc < 0 ? NULL : texts_join(before, "", text);
        json_decref(before);
        json_decref(text);
    }
    return rc;
}

/* Moves parts of reasoning from a reply's content to the keys in which templates look for it. */
static int take_reasoning(json_t *message, const format_place *p)
{
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *rest = json_array(), *reasoning = NULL;
    int rc = !strcmp(role, "assistant") ? split_reasoning(json_object_get(message, "content"), p, &reasoning, rest) : 0;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && rc == 0 && reasoning; k++) {
        const json_t *given = json_object_get(message, keys[k]);
        if (given && !json_is_null(given))
            rc = pt_fail(p->error, PT_FAILED, "%.400s: message %zu has \"%s\" and a part of reasoning in its content: keep one of them",
                         p->where, p->message, keys[k]);
    }
    for (size_t k = 0; k < sizeof keys / sizeof *keys && rc == 0 && reasoning; k++)
        json_object_set(message, keys[k], reasoning);
    if (rc == 0 && reasoning)
        json_object_set(message, "content", rest);
    json_decref(rest);
    json_decref(reasoning);
    return rc;
}

/* The tool calls of a message: absent, a list, or a list as JSON in a string. */
static int check_calls(json_t *message, const format_place *p)
{
    const json_t *given = json_object_get(message, "tool_calls");
    json_t *calls;
    if (!given || json_is_null(given))
        return 0;
    int rc = record_list(given, "tool_calls", p, &calls);
    for (size_t i = 0; i < json_array_size(calls) && rc == 0; i++)
        if (!json_is_object(json_array_get(calls, i)))
            rc = pt_fail(p->error, PT_FAILED, "%.400s: message %zu: one of its \"tool_calls\" is %s, but an object is needed", p->where,
                         p->message, json_type_name(json_array_get(calls, i)));
    if (rc == 0)
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    return rc;
}

/* Refuses a message without content, unless it has a key that may replace it. Templates would raise, skip the message, or print "None". */
static int check_nothing(const json_t *message, const format_place *p)
{
    static const char *const instead[] = {"tool_calls", "reasoning_content", "reasoning", "thinking", "tool_responses"};
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; i < sizeof instead / sizeof *instead; i++)
        if (json_object_get(message, instead[i]) && !json_is_null(json_object_get(message, instead[i])))
            return 0;
    return pt_fail(p->error, PT_FAILED, "%.400s: message %zu (%.40s) has no \"content\": give it a string, which may be empty, or take "
                   "such records out of the file", p->where, p->message, role ? role : "");
}

/* The content of a message must be a string or a list of parts; it may be absent beside tool calls and the like. */
static int check_content(json_t *message, const format_place *p)
{
    json_t *content, *joined;
    int rc = json_is_array(json_object_get(message, "content")) ? take_reasoning(message, p) : 0;
    content = json_object_get(message, "content");
    if (rc < 0)
        return rc;
    if (json_is_array(content)) {
        rc = texts_join_parts(content, p, &joined);
        return rc < 0 ? rc : json_object_set_new(message, "content", joined);
    }
    if (!content || json_is_null(content))
        return check_nothing(message, p);
    if (json_is_string(content))
        return 0;
    return pt_fail(p->error, PT_FAILED, "%.400s: message %zu: \"content\" is %s, but it must be a string", p->where, p->message,
                   json_type_name(content));
}

/* ---- messages ---- */

static const struct { const char *from, *role; } roles[] = {
    {"human", "user"},         {"gpt", "assistant"},     {"chatgpt", "assistant"},       {"bing", "assistant"}, {"bard", "assistant"},
    {"model", "assistant"},    {"bot", "assistant"},     {"observation", "tool"},        {"function_response", "tool"},
    {"user", "user"},          {"assistant", "assistant"}, {"system", "system"},         {"tool", "tool"},      {"developer", "developer"}};

const char *message_role_of(const char *from)
{
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(roles[i].from, from))
            return roles[i].role;
    return NULL;
}

/* The known role that was meant: other capitals, blanks around it, or the name in another format. NULL: none. */
static const char *role_meant(const char *role)
{
    while (isspace((unsigned char)*role))
        role++;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const size_t n = strlen(roles[i].from);
        if (!strncasecmp(roles[i].from, role, n) && !role[n + strspn(role + n, " \t\r\n")])
            return roles[i].role;
    }
    return NULL;
}

/* The template decides which roles exist, so unknown ones are accepted. Another format's name of a known role, or another spelling, is
 * refused: templates would silently print or skip it. */
static int check_role(const json_t *message, const format_place *p)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role)
        return pt_fail(p->error, PT_FAILED, "%.400s: message %zu is not an object with a \"role\" or a \"from\"", p->where, p->message);
    const char *right = role_meant(role);
    if (!right || !strcmp(right, role))
        return 0;
    return pt_fail(p->error, PT_FAILED, "%.400s: message %zu: unknown role \"%s\": write \"%s\"", p->where, p->message, role, right);
}

int message_check(json_t *message, const format_place *p)
{
    int rc = check_role(message, p);
    if (rc == 0)
        rc = check_calls(message, p);
    return rc < 0 ? rc : check_content(message, p);
}

/* ---- weights ---- */

static const char *const weight_keys[] = {"weight", "loss_weight"};
enum { WEIGHT_KEYS = sizeof weight_keys / sizeof *weight_keys };

/* 0 or 1, also given as false or true; -1: another value. */
static int weight_of(const json_t *value)
{
    if (json_is_boolean(value))
        return json_is_true(value);
    const double x = json_is_number(value) ? json_number_value(value) : -1;
    return x == 0 ? 0 : x == 1 ? 1 : -1;
}

void message_copy_weight(json_t *to, const json_t *from)
{
    for (int k = 0; k < WEIGHT_KEYS; k++)
        if (json_object_get(from, weight_keys[k]))
            json_object_set(to, weight_keys[k], json_object_get(from, weight_keys[k]));
}

static int skip_message(const json_t *messages, size_t i, format_record *out, format_place *p)
{
    if (!out->skipped)
        out->skipped = calloc(json_array_size(messages), 1);
    if (!out->skipped)
        return pt_fail(p->error, PT_FAILED, "%.400s: out of memory for its weights", p->where);
    out->skipped[i] = 1;
    return 0;
}

int messages_take_weights(json_t *messages, format_place *p, format_record *out)
{
    int rc = 0;
    for (size_t i = 0; i < json_array_size(messages) && rc == 0; i++) {
        json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        for (int k = 0; k < WEIGHT_KEYS && rc == 0; k++) {
            const json_t *value = json_object_get(message, weight_keys[k]);
            const int weight = value && !json_is_null(value) ? weight_of(value) : 1;
            if (weight < 0)
                rc = pt_fail(p->error, PT_FAILED,
                             "%.400s: message %zu: \"%s\" must be 0, so that the message is not trained on, or 1: change it", p->where,
                             i + 1, weight_keys[k]);
            else if (!weight && role && !strcmp(role, "assistant"))
                rc = skip_message(messages, i, out, p);
            json_object_del(message, weight_keys[k]);
        }
    }
    return rc;
}

static bool has_idle_weight(const json_t *object, bool may_have)
{
    bool has = false;
    for (int k = 0; k < WEIGHT_KEYS; k++) {
        const json_t *value = json_object_get(object, weight_keys[k]);
        has = has || (value && !may_have && weight_of(value) != 0);
    }
    return has;
}

bool format_has_idle_weight(const json_t *record)
{
    static const char *const lists[] = {"messages", "conversations", "prompt", "completion", "chosen", "rejected"};
    bool has = has_idle_weight(record, false);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *list = json_object_get(record, lists[i]);
        for (size_t m = 0; json_is_array(list) && m < json_array_size(list); m++) {
            const json_t *message = json_array_get(list, m);
            const char *role = message_role(message);
            has = has || has_idle_weight(message, role && !strcmp(role, "assistant"));
        }
    }
    return has;
}
