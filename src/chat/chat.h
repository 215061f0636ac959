/* chat.h - converts a conversation to token ids, and marks those that are learned: the assistant's replies and the token that ends each.
 *
 * Templates may mark replies with {% generation %}. For other templates, the conversation is rendered again with other content in place of
 * a reply; what both renderings share is what the template writes before and after any reply there (replies.c).
 *
 *   start   the end of the prompt for the reply, if the whole rendering begins with the conversation up to that prompt; else the end of
 *           what the template writes before any reply there
 *   end     after the special tokens that follow any reply there. If there are none, or the reply has tool calls: its end in the rendering
 *           that ends with this reply, if the reply is the same there; else the token that ends another reply, if it comes before the next
 *           message
 *
 * The result is checked against the whole rendering, and a reply that cannot be found is refused. Replies with equal surroundings are
 * searched once (frames.c).
 *
 * BOS appears once, whether the template writes it, the tokenizer adds it, or both do. */
#ifndef PT_CHAT_CHAT_H
#define PT_CHAT_CHAT_H

#include "chat/source.h"

typedef struct chat_tokens { /* zero-initialize; each call overwrites it */
    chat_rendering rendering;
    id_list ids;
    uint8_t *learned; /* 0 or 1 for each id */
} chat_tokens;

typedef enum chat_learned {
    CHAT_REPLIES,
    CHAT_LAST,       /* the last reply */
    CHAT_COMPLETION, /* what follows the first prompt_messages messages and the generation prompt */
    CHAT_ALL
} chat_learned;

typedef struct chat_wish {
    chat_learned learned;
    size_t prompt_messages;
    const char *where; /* names the conversation in errors */
    time_t now;        /* time for strftime_now */
    bool plain;        /* special tokens in messages and tools are plain text; the template's own are not */
    const uint8_t *skipped; /* for each message, 1: a reply that is not learned; NULL: all are */
} chat_wish;

int chat_tokenize(const chat_source *s, const tokenizer *tok, encoder *encoder, const json_t *conversation, const chat_wish *wish,
                  chat_tokens *out, pt_error *e);

/* Joins two texts without a template, and appends the end-of-text token. The ids after those of the prompt alone are learned, or all
 * (CHAT_ALL). */
/* `where` names the record in errors. plain: special tokens in the texts are plain text. */
typedef struct chat_pair { const char *where, *prompt, *completion; size_t prompt_n, completion_n; bool plain; } chat_pair;
int chat_tokenize_pair(const tokenizer *tok, encoder *encoder, const chat_pair *p, chat_learned learned, chat_tokens *out, pt_error *e);
void chat_tokens_free(chat_tokens *x);

#endif
