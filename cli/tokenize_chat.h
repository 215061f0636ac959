/* tokenize_chat.h - `protrain tokenize --chat`: one conversation, and what of it is learned. */
#ifndef CLI_TOKENIZE_CHAT_H
#define CLI_TOKENIZE_CHAT_H

#include "protrain.h"

/* `input` is the conversation's JSON, template_file NULL for the model's own template. Prints ids, with `json` an object; on a terminal
 * ids are the text with what is learned in colour. */
int tokenize_chat(const char *model, const char *template_file, bool json, const char *input, size_t bytes, pt_error *e);

#endif
