/* pairs.c - splits records of preferences: the prompt with the chosen reply, and with the rejected one. Replies are texts, messages or
 * lists of messages. The prompt is
 *
 *   - the common beginning of both replies, if they are lists that begin with it: with all of a list "prompt", or else with a message that
 *     is not the assistant's
 *   - else "prompt", a text or a list; else "messages" or "conversations"; else a question as in Alpaca's format
 *   - else the common beginning of both replies
 */
#include "base/json.h"
#include "data/format_parts.h"

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

/* Does the list begin with all messages of `head`, with more behind them? */
static bool begins_with(const json_t *list, const json_t *head)
{
    bool begins = json_array_size(list) > json_array_size(head);
    for (size_t i = 0; i < json_array_size(head) && begins; i++)
        begins = json_equal(json_array_get(list, i), json_array_get(head, i));
    return begins;
}

static bool is_reply(const json_t *message)
{
    const char *role = message_role(message);
    return role && !strcmp(role, "assistant");
}

/* ---- the prompt beside the replies ---- */

bool pair_has_question(const json_t *record)
{
    return !json_object_get(record, "prompt") &&
           (json_object_get(record, "messages") || json_object_get(record, "conversations") || record_question(record));
}

/* Takes the conversation or the question that the replies answer: a list of messages. NULL: the record has none. */
static int take_question(json_t *record, const format_place *p, json_t **out)
{
    const char *key = json_object_get(record, "messages") ? "messages" : "conversations";
    json_t *given = record_take(record, key);
    int rc = 0;
    *out = NULL;
    if (given) {
        rc = record_list(given, key, p, out);
    } else if (record_question(record)) {
        *out = json_array();
        rc = messages_add_question(*out, record, p);
    }
    json_decref(given);
    return rc;
}

/* ---- both replies ---- */

typedef struct pair { json_t *prompt, *reply[2]; } pair; /* each a text or a list of messages */

/* Takes the common beginning of both replies as the prompt. */
static int split_replies(pair *x, const format_place *p)
{
    const bool texts = json_is_string(x->reply[0]);
    const size_t n = texts ? alike_bytes(x->reply[0], x->reply[1]) : alike_messages(x->reply[0], x->reply[1]);
    if (!texts && !n)
        return pt_fail(p->error, PT_FAILED, "%.400s: there is no prompt: \"chosen\" and \"rejected\" must begin with the same messages, or "
                       "the record needs a \"prompt\"", p->where);
    json_decref(x->prompt);
    x->prompt = head_of(x->reply[0], n);
    for (int k = 0; k < 2; k++) {
        json_t *tail = tail_of(x->reply[k], n);
        json_decref(x->reply[k]);
        x->reply[k] = tail;
    }
    return 0;
}

static int take_replies(json_t *record, pair *x, const format_place *p)
{
    static const char *const keys[] = {"chosen", "rejected"};
    for (int k = 0; k < 2; k++) {
        json_t *given = json_incref(json_object_get(record, keys[k]));
        json_object_del(record, keys[k]);
        x->reply[k] = messages_or_text(given);
        json_decref(given);
    }
    const json_t *a = x->reply[0], *b = x->reply[1];
    if ((json_is_string(a) && json_is_string(b)) || (json_is_array(a) && json_is_array(b)))
        return 0;
    return pt_fail(p->error, PT_FAILED, "%.400s: \"chosen\" is %s and \"rejected\" %s, but both must be strings, or both messages or lists "
                   "of messages", p->where, json_type_name(a), json_type_name(b));
}

static int take_prompt(json_t *record, pair *x, const format_place *p)
{
    json_t *given = record_take(record, "prompt");
    x->prompt = given ? messages_or_text(given) : NULL;
    json_decref(given);
    const bool lists = json_is_array(x->reply[0]), listed = json_is_array(x->prompt);
    const bool whole = lists && (listed ? begins_with(x->reply[0], x->prompt) && begins_with(x->reply[1], x->prompt)
                                        : json_array_size(x->reply[0]) && !is_reply(json_array_get(x->reply[0], 0)));
    if (whole)
        return split_replies(x, p);
    const int rc = x->prompt ? 0 : take_question(record, p, &x->prompt);
    return rc < 0 || x->prompt ? rc : split_replies(x, p);
}

int format_split_pair(json_t *record, const char *where, json_t *out[2], pt_error *e)
{
    const format_place p = {.where = where, .error = e};
    pair x = {0};
    int rc = take_replies(record, &x, &p);
    if (rc == 0)
        rc = take_prompt(record, &x, &p);
    for (int k = 0; k < 2 && rc == 0; k++) {
        out[k] = json_copy(record);
        json_object_set(out[k], "prompt", x.prompt);
        json_object_set(out[k], "completion", x.reply[k]);
    }
    json_decref(x.prompt);
    json_decref(x.reply[0]);
    json_decref(x.reply[1]);
    return rc;
}
