/* formats.h - records of data files by their keys, and the conversation in each.
 *
 *   messages    {"messages": [{"role", "content"}, ...], "tools": [...]}
 *   sharegpt    {"conversations": [{"from", "value"}, ...], "system": "...", "tools": "..."}
 *   prompt      {"prompt", "completion"}: two texts, or two lists of messages; or {"question", "answer"}: texts, on a line each, where a
 *               record has no keys of any other format
 *   alpaca      {"instruction", "input", "output", "system", "history": [[question, answer], ...]}
 *   text        {"text"}
 *   preference  {"prompt", "chosen", "rejected"}: texts or lists of messages, as of a prompt and its completion; without "prompt" it is
 *               what chosen and rejected begin with alike
 *
 * A record with the keys of several is the first of these. What a list is may also be JSON in a string, as .csv files have it.
 */
#ifndef PT_DATA_FORMATS_H
#define PT_DATA_FORMATS_H

#include "protrain.h"

#include <jansson.h>
#include <stdbool.h>

pt_data_format format_of(const json_t *record); /* PT_DATA_AUTO: of none */
bool format_fits(pt_data_format f, const json_t *record); /* it has the keys of f */
bool format_chats(pt_data_format f, const json_t *record); /* that record is a conversation, not one or two texts */
const char *format_name(pt_data_format f);      /* as --data-format has it */
const char *format_keys(pt_data_format f);      /* those that it needs, for messages */
int format_unknown(json_t *record, const char *where, pt_error *e); /* the error of a record that is of none */

/* Whether it has a weight that nothing obeys: of the record as a whole, or of a message that is not the assistant's. */
bool format_has_idle_weight(const json_t *record);

/* A record of preferences as two of prompt and completion, new references: with the chosen reply, and with the rejected one. */
int format_split_pair(const json_t *record, const char *where, json_t *out[2], pt_error *e);

/* What a record is an example of: a conversation, or two texts. */
typedef struct format_record {
    json_t *conversation;   /* {"messages", "tools", ...}, a new reference; NULL: two texts */
    size_t prompt_messages; /* of a prompt in messages: how many the messages begin with */
    uint8_t *skipped;       /* of each message, 1: a reply of weight 0, which is not trained on; NULL: there is none. malloc'ed */
    const json_t *prompt, *completion; /* strings, which live as long as the record */
} format_record;
void format_record_free(format_record *r);

/* `record` has the keys of f, a format of records that is neither text nor preferences, and is changed; `where` (file and line) names it.
 * Content in parts is joined; what is no text, a role that is none, nothing where a reply or a question should be: PT_FAILED. */
int format_read(pt_data_format f, json_t *record, const char *where, format_record *out, pt_error *e);

#endif
