/* chat.h - a conversation to token ids, and which of them are learned: the assistant's replies and the token that ends each.
 *
 * Where the template marks them by {% generation %}, the marks say it. Else the conversation is rendered up to each reply with the
 * prompt for one, which must be how the whole begins: there the reply starts. It ends where the rendering up to and with it ends, less
 * what the template writes behind every conversation; or, where the template writes earlier replies otherwise than the last (without
 * their thinking), at the next of the tokens that end a reply. A template whose prompt is not how the reply begins is refused.
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
