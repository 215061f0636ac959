/* pattern.h - a literal string or a regular expression that normalizers and pre-tokenizers search for.
 *
 * Expressions in tokenizer.json have Oniguruma's syntax; PCRE2 runs them. The two agree on nearly everything that pre-tokenizers use.
 * pattern_translate.c rewrites what PCRE2 understands differently (\s, \w, \h, \u), and refuses what it cannot rewrite (nested classes, &&
 * ...), so that no expression silently changes its meaning. */
#ifndef PT_PATTERN_H
#define PT_PATTERN_H

#include "text/tokenizer.h"

#include <jansson.h>

typedef struct pattern {
    struct pcre2_real_code_8 *code; /* NULL: search for `literal` */
    bool compiled;                  /* by the JIT */
    text_buffer literal;
} pattern;

typedef struct pattern_scratch { /* per thread, for any pattern */
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
    size_t previous_end;     /* of the previous match; an empty match there is skipped */
    size_t match, match_end; /* the match found */
} pattern_search;

/* 1: found, 0: no more, negative: failed. The text must be well-formed UTF-8. */
int pattern_next(const pattern *p, pattern_scratch *s, const char *text, size_t n, pattern_search *search,
                 pt_error *e);

#endif
