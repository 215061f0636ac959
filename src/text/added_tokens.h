/* added_tokens.h - the `added_tokens` section: tokens that are matched before the text is split into words.
 *
 * Tokens with normalized = false are searched for in the raw text; the others, normalized themselves, in the normalized pieces in between.
 * At each position the longest token wins. The texts are sorted, so that those that match so far are one range, which narrows with each
 * byte. At most positions the first byte already rules out a match. */
#ifndef PT_ADDED_TOKENS_H
#define PT_ADDED_TOKENS_H

#include "text/normalizer.h"
#include "text/string_table.h"

typedef struct added_token {
    uint32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
    text_buffer content; /* as in the file */
    text_buffer search;  /* the text to search for: the content, normalized if `normalized` */
} added_token;

typedef struct token_text {
    const text_buffer *text;
    const added_token *token;
} token_text;

typedef struct token_set { /* tokens to search for */
    token_text *sorted;    /* by text */
    size_t n, longest;     /* bytes */
    bool starts[256];      /* whether a token starts with this byte */
} token_set;

typedef struct added_tokens {
    added_token *tokens;
    size_t n;
    string_table names; /* contents by id */
    token_set raw, normalized; /* to search in raw and in normalized text */
    token_set contents;        /* all of them, as in the file */
} added_tokens;

/* `vocab`: the model's own tokens. `normalizer` is applied to the contents of normalized tokens. */
int added_tokens_open(added_tokens *a, const json_t *section, const string_table *vocab, const normalizer *normalizer,
                      pt_error *e);
void added_tokens_close(added_tokens *a);

typedef struct token_search { /* zero-initialise for each text */
    size_t at;      /* bytes searched */
    size_t next;    /* where to continue the search */
    size_t start;   /* of the token found; the text from the previous `at` to here precedes it */
} token_search;

/* Which special tokens are text: none, all, or those behind a mark (plain_mark.h). */
typedef enum plain_tokens { PLAIN_NONE, PLAIN_ALL, PLAIN_MARKED } plain_tokens;

/* The next token in text, at search->start .. search->at. NULL: no more. */
const added_token *token_set_next(const token_set *set, const char *text, size_t n, plain_tokens plain, token_search *search);

/* Whether a special token starts at text[0], also a shorter one than the longest there. */
bool token_set_special_at(const token_set *set, const char *text, size_t n);

/* Whether a token touches or crosses position p of the text. */
bool token_set_touches(const token_set *set, const char *text, size_t n, size_t p);

#endif
