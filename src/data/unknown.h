/* unknown.h - counts unknown tokens while text is tokenized. Text without tokens becomes the unknown token, so that its content is lost;
 * this is usual if a chat template does not belong to the tokenizer. */
#ifndef PT_DATA_UNKNOWN_H
#define PT_DATA_UNKNOWN_H

#include "data/token_file.h"
#include "text/tokenizer.h"

typedef struct unknown_search {
    const tokenizer *tokenizer;
    encoder *encoder;
    unsigned flags;      /* of encoder_run for this text */
    const char *text;
    size_t bytes;
    uint32_t file;
    uint64_t line;       /* of the record; 0: a text */
} unknown_search;

/* Adds the n ids of a text to the tally. `look`: also finds the text of the tally's first unknown token, which encodes the text before it a
 * few times. */
void unknown_count(const unknown_search *s, const uint32_t *ids, size_t n, bool look, unknown_tally *tally);
void unknown_add(unknown_tally *all, const unknown_tally *more);
/* Whether there are enough for a notice: one in a thousand. */
bool unknown_matters(const unknown_tally *tally);

#endif
