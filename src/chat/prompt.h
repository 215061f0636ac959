/* prompt.h - a conversation and the generation prompt, as token ids. */
#ifndef PT_CHAT_PROMPT_H
#define PT_CHAT_PROMPT_H

#include "chat/source.h"

/* Renders the conversation with the generation prompt; BOS appears once. `plain`: special tokens in contents are plain text. `where` names
 * the conversation in errors. `ids` is overwritten. */
int chat_prompt(const chat_source *s, const tokenizer *tok, encoder *encoder, const json_t *conversation, bool plain, const char *where,
                time_t now, id_list *ids, pt_error *e);

/* The special token that the template writes after a reply; -1: none, or the template refuses replies. */
int64_t chat_turn_end(const chat_source *s, const tokenizer *tok, encoder *encoder, time_t now);
/* The same for the templates that chat_source_open finds; -1 also if there are none. */
int64_t chat_turn_end_of(const char *model_dir, const char *file, const tokenizer *tok, time_t now);

/* Finds a mark such as "<|user|>" that the template writes around messages but that is no token of the tokenizer. False: there is none. */
enum { CHAT_MARK_BYTES = 64 };
bool chat_foreign_mark_in(const text_buffer *text, const tokenizer *tok, char out[CHAT_MARK_BYTES]); /* any such mark in the text */
bool chat_foreign_mark(const chat_source *s, const tokenizer *tok, time_t now, char out[CHAT_MARK_BYTES]);

/* Does the template write the end-of-text token after a reply, and the tokenizer reads it as other tokens? */
bool chat_end_is_text(const chat_source *s, const tokenizer *tok, encoder *encoder, time_t now, char out[CHAT_MARK_BYTES]);

#endif
