/* formats.h - recognizes records of data files by their keys, and finds the conversation in each.
 *
 *   messages    {"messages": [{"role", "content"}, ...], "system": "...", "tools": [...]}
 *   sharegpt    {"conversations": [{"from", "value"}, ...], "system": "...", "tools": "..."}
 *   prompt      {"prompt", "completion"}: texts, or lists of messages; a conversation if one of them is a list or the record has "system".
 *               Or {"question", "answer"}, joined by a newline, if the record has the keys of no other format
 *   alpaca      {"instruction", "input", "output", "system", "history": [[question, answer], ...]}; also "context" for "input", "response"
 *               for "output"; "query", "question" or "input" for "instruction", if the record has the keys of no other format
 *   text        {"text"}
 *   preference  {"prompt", "chosen", "rejected"} (pairs.c)
 *
 * A record with the keys of several formats has the first of these formats. A list may also be JSON in a string, as in .csv files.
 */
#ifndef PT_DATA_FORMATS_H
#define PT_DATA_FORMATS_H

#include "protrain.h"

#include <jansson.h>
#include <stdbool.h>

pt_data_format format_of(const json_t *record); /* PT_DATA_AUTO: no format */
bool format_fits(pt_data_format f, const json_t *record); /* the record has the keys of f */
bool format_converses(pt_data_format f);        /* a prompt with a reply, or a conversation: such records may follow one another */
bool format_chats(pt_data_format f, const json_t *record); /* the record is a conversation, not one or two texts */
const char *format_name(pt_data_format f);      /* as for --data-format */
const char *format_keys(pt_data_format f);      /* the required keys, for messages */
int format_unknown(json_t *record, const char *where, pt_error *e); /* the error for a record of no format */

/* Whether the record has a weight that has no effect: of the whole record, or of a message that is not the assistant's. */
bool format_has_idle_weight(const json_t *record);

/* Whether its tools or tool calls have a key whose value is null, other than a default of JSON schema. Parquet stores keys so that only
 * other records have. */
bool format_has_null(const json_t *record);

/* Whether "label" or "kto_tag" (true, false, 1 or 0) marks a good reply, 1, or a bad one, 0. -1: the record has no mark. */
int format_label(const json_t *record);

/* Splits a preference record into two of prompt and completion, with the chosen and the rejected reply; new references. The keys that
 * are read are removed from the record. */
int format_split_pair(json_t *record, const char *where, json_t *out[2], pt_error *e);

/* The contents of a record: a conversation, or two texts. */
typedef struct format_record {
    json_t *conversation;   /* {"messages", "tools", ...}, a new reference; NULL: two texts */
    size_t prompt_messages; /* the number of messages that are the prompt, if prompt and completion are messages */
    uint8_t *skipped;       /* per message, 1: a reply of weight 0, which is not trained on. NULL: none. malloc'ed */
    json_t *prompt, *completion; /* strings, new references */
} format_record;
void format_record_free(format_record *r);

/* `record` must have the keys of f, a format of records other than text and preferences; `where` (file and line) names it. The keys that
 * are read are removed from the record. Joins content in parts. PT_FAILED: content that is not text, an invalid role, an empty question or
 * reply. */
int format_read(pt_data_format f, json_t *record, const char *where, format_record *out, pt_error *e);

#endif
