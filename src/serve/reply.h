/* reply.h - what the server writes, in OpenAI's form: JSON, and the events of a stream. */
#ifndef PT_SERVE_REPLY_H
#define PT_SERVE_REPLY_H

#include "text/buffer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct serve_reply {
    bool chat;
    uint64_t number;         /* of the request, in its id */
    int64_t created;         /* seconds since 1970 */
    const char *model;
    int64_t prompt_tokens, tokens;
    bool cut;                /* the reply ended at its limit, not by itself */
} serve_reply;

/* Each appends to `out`. */
int serve_put_whole(text_buffer *out, const serve_reply *r, const char *text, size_t n);
int serve_put_first(text_buffer *out, const serve_reply *r);  /* of a stream: the role */
int serve_put_piece(text_buffer *out, const serve_reply *r, const char *text, size_t n);
int serve_put_last(text_buffer *out, const serve_reply *r, bool usage);
int serve_put_error(text_buffer *out, const char *sentence, bool of_server, bool as_event);
int serve_put_models(text_buffer *out, const char *model, int64_t created, bool list);

#endif
