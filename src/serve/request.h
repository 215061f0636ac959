/* request.h - the body of a request for a completion, in OpenAI's form. */
#ifndef PT_SERVE_REQUEST_H
#define PT_SERVE_REQUEST_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SERVE_STOPS_MOST = 4 };

typedef struct serve_request {
    bool chat, stream, usage;      /* usage: a stream ends with the numbers of tokens */
    json_t *json, *messages;       /* the body, which owns all texts; of a chat: contents are strings */
    const char *prompt;            /* of a completion */
    size_t prompt_n;
    int64_t most_tokens, top_k;    /* -1: not said */
    double temperature, top_p;     /* the same */
    int64_t seed;                  /* the same */
    const char *stops[SERVE_STOPS_MOST];
    int stops_n;
} serve_request;

/* PT_FAILED names the key that is missing, of another type, out of its range, or asks for what the server does not do. */
int serve_request_parse(const char *text, size_t n, bool chat, serve_request *out, pt_error *e);
void serve_request_free(serve_request *r);

#endif
