/* tokenize_chat.h - `protrain tokenize --chat`: renders one conversation and shows which tokens are learned. */
#ifndef CLI_TOKENIZE_CHAT_H
#define CLI_TOKENIZE_CHAT_H

#include "protrain.h"

typedef struct chat_request {
    const char *model, *template_file; /* NULL: the model's own template */
    pt_train_on train_on;
    bool plain_contents, json;
} chat_request;

/* `input` is a record of training data in JSON, or a list of messages. Prints ids, with `json` an object; on a terminal the text of the
 * ids, with learned ones in colour. */
int tokenize_chat(const chat_request *r, const char *input, size_t bytes, pt_error *e);

#endif
