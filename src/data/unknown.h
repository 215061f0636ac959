/* unknown.h - text that the tokenizer has no tokens for: its ids say "unknown" and nothing else, so that what the text says is lost.
 * Usual where a chat template and a tokenizer do not belong together. Counted while texts become ids. */
#ifndef PT_DATA_UNKNOWN_H
#define PT_DATA_UNKNOWN_H

#include "data/token_file.h"
#include "text/tokenizer.h"

typedef struct unknown_search {
    const tokenizer *tokenizer;
    encoder *encoder;
    unsigned flags;      /* of encoder_run, with which the text was encoded */
    const char *text;
    size_t bytes;
    uint32_t file;
    uint64_t line;       /* of the record; 0: a text */
} unknown_search;

/* Adds the n ids of a text to the tally. `look`: the first unknown token of the tally also gets its text, which takes as long as encoding
 * what stands before it a few times. */
void unknown_count(const unknown_search *s, const uint32_t *ids, size_t n, bool look, unknown_tally *tally);
void unknown_add(unknown_tally *all, const unknown_tally *more);
/* Whether so many are worth a notice: one of a thousand. */
bool unknown_matters(const unknown_tally *tally);

#endif
