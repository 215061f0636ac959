/* replies.h - where the replies of a conversation are in its rendering, of a template that does not mark them. */
#ifndef PT_CHAT_REPLIES_H
#define PT_CHAT_REPLIES_H

#include "chat/chat.h"

typedef struct chat_call { /* a conversation that is made into tokens */
    const chat_template *template;
    const tokenizer *tokenizer;
    encoder *encoder;
    json_t *variables;
    const chat_wish *wish;
    chat_tokens *out;
    pt_error *error;
} chat_call;

int chat_render(const chat_call *c, const json_t *variables, chat_rendering *out);
/* The first n messages, with or without the prompt for a reply. */
int chat_render_first(const chat_call *c, size_t n, bool prompt, chat_rendering *out);

bool chat_is_reply(const chat_call *c, size_t i); /* message i is the assistant's */
bool chat_is_special(const tokenizer *t, uint32_t id);
size_t chat_common(const text_buffer *x, const text_buffer *y); /* how many bytes both begin with */

/* The spans of c->out->rendering become the replies; with CHAT_LAST the last alone. Refused where one cannot be found. */
int chat_find_replies(const chat_call *c);

/* ---- frames.c ----
 *
 * A frame is what a template writes between the contents of two messages, before the first and behind the last. One rendering with marks
 * in the contents' places shows them; they hold if the whole is frame, content, frame, content ... to its last byte. A reply that stands
 * between the same frames as one that was found is where that was, so that a conversation of many turns is rendered a few times and not a
 * few times a reply. A reply whose content is empty beside tool calls gets no mark and lies within a frame. */

typedef struct chat_frames {
    size_t marks;                 /* contents with a mark; 0: no frames are known, or they do not hold */
    size_t *message;              /* of each mark */
    size_t *begin, *end;          /* where each content is in the whole */
} chat_frames;

int chat_frames_find(const chat_call *c, chat_frames *f);
void chat_frames_free(chat_frames *f);

/* A reply that was found. `ended_n`: bytes of the special token that ends it; 0: none does. */
typedef struct chat_reply { size_t message; chat_span span; size_t ended_n; } chat_reply;

/* Whether message i is where `found` is, as its frames tell; then *span is where. */
bool chat_frames_same(const chat_call *c, const chat_frames *f, const chat_reply *found, size_t i, chat_span *span);

bool chat_has_calls(const chat_call *c, size_t i);

#endif
