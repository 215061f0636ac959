#include "data/formats.h"

#include "base/json.h"
#include "data/documents.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* ---- pieces of records ---- */

typedef struct place { /* of the value being read, for messages */
    const char *where;
    size_t message; /* from 1 */
    pt_error *error;
} place;

/* *out = a list, or the list that a string has as JSON; a new reference. */
static int take_list(const json_t *value, const char *key, const place *p, json_t **out)
{
    char name[512];
    *out = NULL;
    if (json_is_string(value)) {
        snprintf(name, sizeof name, "%.400s: \"%s\"", p->where, key);
        int rc = json_text_load(name, json_string_value(value), json_string_length(value), 0, out, p->error);
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

static int bad_part(const json_t *part, const place *p)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type && strcmp(type, "text"))
        return pt_fail(p->error, PT_FAILED,
                       "%.400s: message %zu has a part of type \"%.40s\", but only text is trained: remove such records from the file",
                       p->where, p->message, type);
    return pt_fail(p->error, PT_FAILED, "%.400s: message %zu: a part of its content is not {\"type\": \"text\", \"text\": \"...\"}",
                   p->where,
                   p->message);
}

/* a + between + b, a new reference. Strings may contain NUL. */
static json_t *join(const json_t *a, const char *between, const json_t *b)
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

/* *out = the joined text of a content's parts, a new reference. */
static int join_parts(const json_t *parts, const place *p, json_t **out)
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
        json_t *longer = join(all, "", text);
        json_decref(all);
        all = longer;
    }
    *out = all;
    return all ? 0 : pt_fail(p->error, PT_FAILED, "%.400s: message %zu: out of memory for its parts", p->where, p->message);
}

/* The tool calls of a message: absent, a list, or a list as JSON in a string. */
static int check_calls(json_t *message, const place *p)
{
    const json_t *given = json_object_get(message, "tool_calls");
    json_t *calls;
    if (!given || json_is_null(given))
        return 0;
    int rc = take_list(given, "tool_calls", p, &calls);
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
static int check_nothing(const json_t *message, const place *p)
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
static int check_content(json_t *message, const place *p)
{
    json_t *content = json_object_get(message, "content"), *joined;
    if (json_is_array(content)) {
        int rc = join_parts(content, p, &joined);
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

static const char *role_of(const char *from)
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
static int check_role(const json_t *message, const place *p)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role)
        return pt_fail(p->error, PT_FAILED, "%.400s: message %zu is not an object with a \"role\"", p->where, p->message);
    const char *right = role_meant(role);
    if (!right || !strcmp(right, role))
        return 0;
    return pt_fail(p->error, PT_FAILED, "%.400s: message %zu: unknown role \"%s\": write \"%s\"", p->where, p->message, role, right);
}

static int check_messages(const json_t *messages, place *p)
{
    int rc = 0;
    if (!json_array_size(messages))
        return pt_fail(p->error, PT_FAILED, "%.400s: the conversation is empty: remove such records from the file", p->where);
    for (size_t i = 0; i < json_array_size(messages) && rc == 0; i++) {
        p->message = i + 1;
        json_t *message = json_array_get(messages, i);
        rc = check_role(message, p);
        if (rc == 0)
            rc = check_calls(message, p);
        if (rc == 0)
            rc = check_content(message, p);
    }
    return rc;
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

static void copy_weight(json_t *to, const json_t *from)
{
    for (int k = 0; k < WEIGHT_KEYS; k++)
        if (json_object_get(from, weight_keys[k]))
            json_object_set(to, weight_keys[k], json_object_get(from, weight_keys[k]));
}

static int skip_message(const json_t *messages, size_t i, format_record *out, place *p)
{
    if (!out->skipped)
        out->skipped = calloc(json_array_size(messages), 1);
    if (!out->skipped)
        return pt_fail(p->error, PT_FAILED, "%.400s: out of memory for its weights", p->where);
    out->skipped[i] = 1;
    return 0;
}

/* Removes the weights from the messages, so that templates do not see them, and marks replies of weight 0, which are not trained on. */
static int take_weights(json_t *messages, place *p, format_record *out)
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
            const char *role = json_string_value(json_object_get(message, "role"));
            const char *from = json_string_value(json_object_get(message, "from"));
            role = role ? role : from ? role_of(from) : NULL;
            has = has || has_idle_weight(message, (role && !strcmp(role, "assistant")) || (from && !strcmp(from, "function_call")));
        }
    }
    return has;
}

static int read_messages(json_t *record, place *p, format_record *out)
{
    json_t *messages;
    int rc = take_list(json_object_get(record, "messages"), "messages", p, &messages);
    if (rc == 0)
        rc = check_messages(messages, p);
    if (rc == 0)
        rc = take_weights(messages, p, out);
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
static int put_calls(json_t *messages, const json_t *value, const place *p)
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

static int put_turn(json_t *messages, json_t *turn, const place *p)
{
    const char *from = json_string_value(json_object_get(turn, "from")), *role = from ? role_of(from) : NULL;
    json_t *value = json_object_get(turn, "value"), *joined = NULL;
    if (!from)
        return pt_fail(p->error, PT_FAILED, "%.400s: message %zu is not {\"from\": ..., \"value\": ...}", p->where, p->message);
    if (json_is_array(value)) {
        int rc = join_parts(value, p, &joined);
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
        copy_weight(json_array_get(messages, json_array_size(messages) - 1), turn);
    return rc;
}

static int read_sharegpt(const json_t *record, place *p, format_record *out)
{
    json_t *turns, *messages = json_array();
    int rc = take_list(json_object_get(record, "conversations"), "conversations", p, &turns);
    put_system(messages, record);
    for (size_t i = 0; i < json_array_size(turns) && rc == 0; i++) {
        json_t *turn = json_array_get(turns, i);
        p->message = i + 1;
        if (json_object_get(turn, "from") || !json_object_get(turn, "role"))
            rc = put_turn(messages, turn, p);
        else if ((rc = check_role(turn, p)) == 0 && (rc = check_calls(turn, p)) == 0 && (rc = check_content(turn, p)) == 0)
            json_array_append(messages, turn);
    }
    if (rc == 0 && !json_array_size(turns))
        rc = check_messages(turns, p);
    if (rc == 0)
        rc = take_weights(messages, p, out);
    if (rc == 0)
        out->conversation = conversation_of(record, messages);
    else
        json_decref(messages);
    json_decref(turns);
    return rc;
}

/* ---- prompt and completion ---- */

/* Makes a prompt of the question and a newline, and a completion of the answer. */
static int take_question(json_t *record, const place *p)
{
    const json_t *question = json_object_get(record, "question");
    json_t *answer = json_object_get(record, "answer"), *nothing = json_string("");
    int rc = 0;
    if (!json_is_string(question) || !json_is_string(answer))
        rc = pt_fail(p->error, PT_FAILED, "%.400s: \"question\" is %s and \"answer\" %s, but both must be strings", p->where,
                     json_type_name(question), json_type_name(answer));
    if (rc == 0) {
        json_object_set_new(record, "prompt", join(question, "\n", nothing));
        json_object_set(record, "completion", answer);
    }
    json_decref(nothing);
    return rc;
}

static int read_prompt(json_t *record, place *p, format_record *out)
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
    int rc = check_messages(messages, p);
    if (rc == 0)
        rc = take_weights(messages, p, out);
    out->prompt_messages = json_array_size(prompt);
    if (rc == 0)
        out->conversation = conversation_of(record, messages);
    else
        json_decref(messages);
    return rc;
}

/* ---- preferences ---- */

/* The number of equal messages at the start of both. */
static size_t alike_messages(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n < json_array_size(a) && n < json_array_size(b) && json_equal(json_array_get(a, n), json_array_get(b, n)))
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
                     where,
                     json_type_name(chosen), json_type_name(rejected));
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

/* ---- Alpaca ---- */

static int take_text(const json_t *record, const char *key, const place *p, const json_t **out)
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

static int put_history(json_t *messages, const json_t *record, const place *p)
{
    const json_t *given = json_object_get(record, "history");
    json_t *history;
    if (!given || json_is_null(given) || (json_is_string(given) && !json_string_length(given)))
        return 0;
    int rc = take_list(given, "history", p, &history);
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

static int read_alpaca(const json_t *record, const place *p, format_record *out)
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
    json_t *asked = join(instruction, json_string_length(instruction) && json_string_length(input) ? "\n" : "", input);
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
    place p = {.where = where, .error = e};
    *out = (format_record){0};
    switch (f) {
    case PT_DATA_MESSAGES: return read_messages(record, &p, out);
    case PT_DATA_SHAREGPT: return read_sharegpt(record, &p, out);
    case PT_DATA_PROMPT: return read_prompt(record, &p, out);
    default: return read_alpaca(record, &p, out);
    }
}
