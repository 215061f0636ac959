/* added_tokens.h - the `added_tokens` section: tokens that are found in the text before anything else.
 *
 * Those with normalized = false are searched for in the raw text, then the others, normalized
 * themselves, in what the normalizer makes of the pieces between. At each place the longest token wins.
 * The contents are kept sorted, so that the tokens that agree with the text so far are one range, which
 * narrows with each byte; most places are passed by a look at the first byte. */
#ifndef PT_ADDED_TOKENS_H
#define PT_ADDED_TOKENS_H

#include "text/normalizer.h"
#include "text/string_table.h"

typedef struct added_token {
    uint32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
    text_buffer content; /* as in the file */
    text_buffer search;  /* what is searched for: the content, normalized if `normalized` */
} added_token;

typedef struct token_text {
    const text_buffer *text;
    const added_token *token;
} token_text;

typedef struct token_set { /* tokens to search for */
    token_text *sorted;    /* by text */
    size_t n, longest;     /* bytes */
    bool starts[256];      /* some text starts with this byte */
} token_set;

typedef struct added_tokens {
    added_token *tokens;
    size_t n;
    string_table names; /* contents by id */
    token_set raw, normalized; /* the two searches */
    token_set contents;        /* all of them, as in the file */
} added_tokens;

/* `vocab`: the model's own tokens. `normalizer` is applied to contents. */
int added_tokens_open(added_tokens *a, const json_t *section, const string_table *vocab, const normalizer *normalizer,
                      pt_error *e);
void added_tokens_close(added_tokens *a);

typedef struct token_search { /* zero-initialise for each text */
    size_t at;      /* bytes done */
    size_t next;    /* where to look on */
    size_t start;   /* of the token found; what lies between the old `at` and it goes before */
} token_search;

/* The next token in text: its place is search->start .. search->at. NULL: no more. `plain`: pass over
 * special ones. */
const added_token *token_set_next(const token_set *set, const char *text, size_t n, bool plain, token_search *search);

/* Whether a token touches or crosses the place p of the text. */
bool token_set_touches(const token_set *set, const char *text, size_t n, size_t p);

#endif
