/* prompt.h - a conversation up to the place where the model goes on, as token ids. */
#ifndef PT_CHAT_PROMPT_H
#define PT_CHAT_PROMPT_H

#include "chat/source.h"

/* The conversation with the prompt for a reply behind it; the token at the beginning is there once. `where` names it in messages. `ids` is
 * begun anew. */
int chat_prompt(const chat_source *s, const tokenizer *t, encoder *c, const json_t *conversation, const char *where, time_t now,
                id_list *ids,
                pt_error *e);

/* The special token that the template puts behind a reply; -1: none, or the template does not take a reply. */
int64_t chat_turn_end(const chat_source *s, const tokenizer *t, encoder *c, time_t now);

/* A mark such as "<|user|>" that the template writes around messages and that is no token of the tokenizer. false: there is none. */
enum { CHAT_MARK_BYTES = 64 };
bool chat_foreign_mark(const chat_source *s, const tokenizer *t, time_t now, char out[CHAT_MARK_BYTES]);

#endif
