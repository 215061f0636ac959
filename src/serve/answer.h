/* answer.h - makes the answer to a request: the text of the model, up to a stop text, as JSON or as events. */
#ifndef PT_SERVE_ANSWER_H
#define PT_SERVE_ANSWER_H

#include "protrain.h"
#include "serve/reply.h"
#include "serve/request.h"

typedef struct answer_sink {
    /* Takes bytes of the answer; of a whole one all at once. Nonzero: nobody wants the rest. */
    int (*take)(void *arg, const char *bytes, size_t n);
    bool (*is_over)(void *arg); /* nobody wants the rest, or its time is over: asked before each token */
    void *arg;
} answer_sink;

/* PT_FAILED with a sentence if nothing has been taken: the request cannot be answered. Later failures are events of the stream. */
int serve_answer(pt_generator *g, const serve_request *q, serve_reply *r, int64_t most_tokens, const answer_sink *sink, pt_error *e);

#endif
