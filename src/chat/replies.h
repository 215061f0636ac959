/* replies.h - finds the replies of a conversation in its rendering, for templates that do not mark them. */
#ifndef PT_CHAT_REPLIES_H
#define PT_CHAT_REPLIES_H

#include "chat/chat.h"

typedef struct chat_call { /* one conversation being converted */
    const chat_template *template;
    const tokenizer *tokenizer;
    encoder *encoder;
    json_t *variables;
    const chat_wish *wish;
    chat_tokens *out;
    pt_error *error;
} chat_call;

/* encoder_run, whose error names the conversation. */
int chat_encode(encoder *encoder, unsigned flags, const char *where, const char *text, size_t n, id_list *ids, pt_error *e);
unsigned chat_flags(const chat_call *call); /* for its renderings */
int chat_render(const chat_call *call, const json_t *variables, chat_rendering *out);
/* Renders the first n messages, with or without the generation prompt. */
int chat_render_first(const chat_call *call, size_t n, bool prompt, chat_rendering *out);

bool chat_is_reply(const chat_call *call, size_t i); /* is message i the assistant's? */
bool chat_is_special(const tokenizer *tok, uint32_t id);
size_t chat_common(const text_buffer *x, const text_buffer *y); /* length of the common beginning */

/* Sets the spans of call->out->rendering to the replies; with CHAT_LAST only to the last. Refused: a reply cannot be found. */
int chat_find_replies(const chat_call *call);

/* ---- calls.c ----
 *
 * Replaces arguments of tool calls that are JSON in a string by their values; an empty string by {}. *decoded: there were such. */
int chat_decode_arguments(json_t *variables, const char *where, bool *decoded, pt_error *e);

/* ---- plain.c ----
 *
 * With chat_wish.plain, marks stand before the special tokens in all strings of messages and tools. */
void chat_mark_messages(const tokenizer *tok, json_t *variables);
void chat_mark_tools(const tokenizer *tok, json_t *variables);
int chat_drop_marks(chat_rendering *r, pt_error *e); /* from the text and its spans */

/* ---- frames.c ----
 *
 * A frame is what a template writes between the contents of two messages, before the first, and after the last. One rendering with marks in
 * place of the contents shows all frames. They hold if the whole rendering is frame, content, frame, content ... to its last byte. A reply
 * between the same frames as one that was found has the same position in them; so a conversation of many turns takes a few renderings, not
 * a few per reply. A reply with tool calls and empty content has no mark and lies within a frame. */

typedef struct chat_frames {
    size_t marks;                 /* number of contents with a mark; 0: frames are unknown, or do not hold */
    size_t *message;              /* for each mark */
    size_t *begin, *end;          /* of each content in the whole rendering */
} chat_frames;

int chat_frames_find(const chat_call *call, chat_frames *f);
void chat_frames_free(chat_frames *f);

/* A reply that was found. `ended_n`: length of the special token that ends it; 0: none does. */
typedef struct chat_reply { size_t message; chat_span span; size_t ended_n; } chat_reply;

/* Does message i have the same frames as `found`? Then *span is its position. */
bool chat_frames_same(const chat_call *call, const chat_frames *f, const chat_reply *found, size_t i, chat_span *span);

bool chat_has_calls(const chat_call *call, size_t i);

#endif
