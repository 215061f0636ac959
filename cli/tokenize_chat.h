/* tokenize_chat.h - `protrain tokenize --chat`: one conversation, and what of it is learned. */
#ifndef CLI_TOKENIZE_CHAT_H
#define CLI_TOKENIZE_CHAT_H

#include "protrain.h"

typedef struct chat_request {
    const char *model, *template_file; /* NULL: the model's own template */
    pt_train_on train_on;
    bool json;
} chat_request;

/* `input` is a record of training data in JSON, or a list of messages. Prints ids, with `json` an object; on a terminal ids are the text
 * with what is learned in colour. */
int tokenize_chat(const chat_request *r, const char *input, size_t bytes, pt_error *e);

#endif
