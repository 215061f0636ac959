/* format_parts.h - shared by the readers of records (formats.c) and of their messages (messages.c). */
#ifndef PT_DATA_FORMAT_PARTS_H
#define PT_DATA_FORMAT_PARTS_H

#include "data/formats.h"

typedef struct format_place { /* of the value being read, for messages */
    const char *where;
    size_t message; /* from 1 */
    pt_error *error;
} format_place;

/* *out = a list, or the list that a string has as JSON; a new reference. */
int record_list(const json_t *value, const char *key, const format_place *p, json_t **out);
/* a + between + b, a new reference. Strings may contain NUL. */
json_t *texts_join(const json_t *a, const char *between, const json_t *b);

/* *out = the joined text of a content's parts, a new reference. */
int texts_join_parts(const json_t *parts, const format_place *p, json_t **out);

/* The role of ShareGPT's `from`; NULL: unknown. */
const char *message_role_of(const char *from);
/* Checks role, tool calls and content of a message; joins content in parts. */
int message_check(json_t *message, const format_place *p);
/* Removes the weights from the messages, so that templates do not see them, and marks replies of weight 0 in out->skipped. */
int messages_take_weights(json_t *messages, format_place *p, format_record *out);
void message_copy_weight(json_t *to, const json_t *from);

/* ---- turns.c ---- */

/* Removes a key from the record, so that what is left in the end was not read. A new reference; NULL: absent or null. */
json_t *record_take(json_t *record, const char *key);
int record_take_text(json_t *record, const char *key, const format_place *p, json_t **out); /* a string, or NULL */

void message_put(json_t *messages, const char *role, const json_t *content);
/* Adds a list of {"role", "content"} or {"from", "value"}, checked; counts p->message. */
int messages_add(json_t *all, const json_t *list, format_place *p);
const char *message_role(const json_t *message); /* NULL: none, or unknown */
bool is_message(const json_t *value);            /* {"role"} or {"from"} */
/* A list of messages: the value itself, one message, or a list as JSON in a string; else the value. A new reference. */
json_t *messages_or_text(const json_t *value);

/* "system" or "system_prompt", even an empty one: the records of a file then all go through the template. */
bool record_has_system(const json_t *record);
/* Takes it and puts it first, unless the conversation begins with its own. */
int messages_add_system(json_t *messages, json_t *record, const format_place *p);
/* The key of a question for the user: "instruction", "query", "question" or "input"; NULL: none. */
const char *record_question(const json_t *record);
/* Takes it, with "input", "context" and "history". */
int messages_add_question(json_t *messages, json_t *record, const format_place *p);

/* pairs.c: the prompt is a conversation, or a question. */
bool pair_has_question(const json_t *record);

#endif
