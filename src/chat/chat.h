/* chat.h - a conversation to token ids, and which of them are learned: the assistant's replies and the token that ends each.
 *
 * Where the template marks them by {% generation %}, the marks say it. Else the conversation is rendered with other contents in a reply's
 * place, which shows what stands before and behind any reply there (replies.c). A reply starts where the prompt for it ends, if the
 * conversation up to it with the prompt is how the whole begins, else behind what stands before any reply. It ends with the special tokens
 * that follow any reply there; where none do, or it has tool calls, it is as long as in the conversation up to and with it, if it is the
 * same there; else it ends with the token that ends another reply, if that stands before the next message. All of it is checked against
 * the whole, and refused where it does not hold. Of many replies those between equal surroundings are looked for once (frames.c).
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

typedef enum chat_learned {
    CHAT_REPLIES,
    CHAT_LAST,       /* the last reply */
    CHAT_COMPLETION, /* what follows the first prompt_messages messages and the prompt for a reply */
    CHAT_ALL
} chat_learned;

typedef struct chat_wish {
    chat_learned learned;
    size_t prompt_messages;
    const char *where; /* the conversation in messages */
    time_t now;        /* what strftime_now prints */
    const uint8_t *skipped; /* of each message, 1: a reply that is not learned; NULL: all are */
} chat_wish;

int chat_tokenize(const chat_source *s, const tokenizer *t, encoder *c, const json_t *conversation, const chat_wish *wish, chat_tokens *out,
                  pt_error *e);

/* Two texts without a template, joined as they stand, and the token that ends a text. Learned is what the ids of both have behind those of
 * the prompt alone; or all (CHAT_ALL). */
typedef struct chat_pair { const char *prompt, *completion; size_t prompt_n, completion_n; } chat_pair;
int chat_tokenize_pair(const tokenizer *t, encoder *c, const chat_pair *p, chat_learned learned, chat_tokens *out, pt_error *e);
void chat_tokens_free(chat_tokens *x);

#endif
