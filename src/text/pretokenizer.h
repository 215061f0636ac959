/* pretokenizer.h - the `pre_tokenizer` section: splits a normalized text into words.
 *
 * The section becomes a list of steps of three kinds. Each takes one span of text and passes one or more to the next step, without
 * collecting them; the last step passes words to the caller:
 *
 *   "Ab 12"  --split \p{N}-->  "Ab "  --split gpt2-->  "Ab" -> word, " " -> word
 *                              "1"    ...
 *
 * A step that prepends a space needs to know where the span starts (span_start). */
#ifndef PT_PRETOKENIZER_H
#define PT_PRETOKENIZER_H

#include "text/pattern.h"

typedef enum span_start {
    START_OF_TEXT,
    START_INSIDE,  /* after a cut or an added token */
    START_CONTINUES /* continues an earlier call: nothing is prepended */
} span_start;

typedef enum split_behavior {
    SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT, SPLIT_CONTIGUOUS
} split_behavior;

typedef enum pre_kind { PRE_SPLIT, PRE_METASPACE, PRE_PREFIX_SPACE } pre_kind;
typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

/* Where a split always splits, whatever the context (see cut.c). */
typedef enum split_cuts { CUTS_UNKNOWN, CUTS_NUMBERS, CUTS_WORDS } split_cuts;

typedef struct pre_step {
    pre_kind kind;
    pattern search; /* split; metaspace: a space */
    split_behavior behavior;
    bool invert;
    char mark[4]; /* metaspace: what replaces a space */
    size_t n_mark;
    prepend_scheme prepend;
    split_cuts cuts;
} pre_step;

typedef struct pretokenizer {
    pre_step *steps;
    size_t n;
    bool byte_level; /* the BPE gets words as bytes */
} pretokenizer;

typedef int (*word_function)(void *context, const char *word, size_t n, pt_error *e);

/* The state of one call: the thread's scratch memory, and the callback for words. */
typedef struct pre_run {
    const pretokenizer *pre;
    pattern_scratch *patterns;
    text_buffer *buffers; /* one per step */
    word_function word;
    void *context;
} pre_run;

int pretokenizer_open(pretokenizer *p, const json_t *section, pt_error *e); /* NULL or JSON null: no steps */
void pretokenizer_close(pretokenizer *p);
int pretokenizer_run(const pre_run *run, const char *text, size_t n, span_start start, pt_error *e);

#endif
