/* chat.h - a conversation to token ids, and which of them are learned: the assistant's replies and the token that ends each.
 *
 * Where the template marks them by {% generation %}, the marks say it. Else the conversation is rendered with other contents in a reply's
 * place, which shows what stands before and behind any reply there. A reply starts where the prompt for it ends, if the conversation up
 * to it with the prompt is how the whole begins, else behind what stands before any reply. It ends with the special token that follows
 * it; where none does, or it has tool calls, where the conversation up to and with it ends, if that is how the whole begins; else with the
 * token that ends another reply. All of it is checked against the whole, and refused where it does not hold.
 *
 * The token at the beginning is there once, whether the template writes it, the tokenizer adds it, or both do. */
#ifndef PT_CHAT_CHAT_H
#define PT_CHAT_CHAT_H

#include "chat/source.h"

typedef struct chat_tokens { /* zero-initialise; each call begins anew */
    chat_rendering rendering;
    id_list ids;
    uint8_t *learned; /* 0 or 1, of each id */
} chat_tokens;

/* `where` names the conversation in messages. */
int chat_tokenize(const chat_source *s, const tokenizer *t, encoder *c, const json_t *conversation, const char *where, time_t now,
                  chat_tokens *out, pt_error *e);
void chat_tokens_free(chat_tokens *x);

#endif
