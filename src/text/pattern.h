/* pattern.h - what normalizers and pre-tokenizers search for: a literal string or a regular expression.
 *
 * tokenizer.json holds expressions in Oniguruma's syntax; they are run by PCRE2. Both agree on nearly
 * everything that pre-tokenizers use; pattern.c rewrites what means something else (\s, \w, \h, \u) and
 * refuses what it cannot (nested classes, && ...), so that an expression is never silently another. */
#ifndef PT_PATTERN_H
#define PT_PATTERN_H

#include "text/tokenizer.h"

#include <jansson.h>

typedef struct pattern {
    struct pcre2_real_code_8 *code; /* NULL: `literal` is searched for */
    bool compiled;                  /* to machine code */
    text_buffer literal;
} pattern;

typedef struct pattern_scratch { /* of one thread, for any pattern */
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
} pattern_scratch;

/* From {"String": s} or {"Regex": s}. `where` names the place in the file. */
int pattern_open_json(pattern *p, const json_t *value, const char *where, pt_error *e);
int pattern_open_regex(pattern *p, const char *regex, size_t n, const char *where, pt_error *e);
int pattern_open_literal(pattern *p, const char *text, size_t n, pt_error *e);
void pattern_close(pattern *p);

int pattern_scratch_init(pattern_scratch *s, pt_error *e);
void pattern_scratch_free(pattern_scratch *s);

/* A search through one text: zero-initialise, then call until it returns 0. */
typedef struct pattern_search {
    size_t at;               /* where the next search starts */
    bool started;
    size_t previous_end;     /* of the last match; an empty match right there is skipped */
    size_t match, match_end; /* the match found */
} pattern_search;

/* 1: found, 0: no more, negative: failed. The text must be well-formed UTF-8. */
int pattern_next(const pattern *p, pattern_scratch *s, const char *text, size_t n, pattern_search *search,
                 pt_error *e);

#endif
