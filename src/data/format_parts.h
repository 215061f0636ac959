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
/* The same for all messages, of which there must be some; counts p->message. */
int messages_check(const json_t *messages, format_place *p);
/* Removes the weights from the messages, so that templates do not see them, and marks replies of weight 0 in out->skipped. */
int messages_take_weights(json_t *messages, format_place *p, format_record *out);
void message_copy_weight(json_t *to, const json_t *from);

#endif
