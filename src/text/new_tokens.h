/* new_tokens.h - tokens that a file adds to a tokenizer, one a line.
 *
 * Their ids are those that Transformers' add_tokens gives: they follow the tokenizer's highest id. */
#ifndef PT_NEW_TOKENS_H
#define PT_NEW_TOKENS_H

#include "text/tokenizer.h"

typedef struct new_tokens { /* zero-initialise */
    uint32_t first;      /* the id of the first one; the others follow */
    size_t n;
    id_list pieces;      /* into which the tokenizer without them splits them, one token after the other */
    size_t *end;         /* of each one's pieces */
    char *json;          /* tokenizer.json with them */
    size_t bytes;
} new_tokens;

/* Reads `file` for the tokenizer of model_dir. Refused: a file without tokens, lines that are empty, not UTF-8, in the tokenizer already,
 * or there twice, and a tokenizer whose ids have gaps, where Transformers would give some that are taken. */
int new_tokens_open(new_tokens *x, const char *model_dir, const char *file, pt_error *e);
void new_tokens_close(new_tokens *x);

#endif
