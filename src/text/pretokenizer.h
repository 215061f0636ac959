/* pretokenizer.h - the `pre_tokenizer` section: cutting a normalized text into words.
 *
 * Whatever the file says becomes a list of steps of three kinds. Each takes one span of text and hands
 * one or more to the next step; the last hands words to the caller. Nothing is collected in between:
 *
 *   "Ab 12"  --split \p{N}-->  "Ab "  --split gpt2-->  "Ab" -> word, " " -> word
 *                              "1"    ...
 *
 * Where a span starts matters to the steps that put a space in front of it (enum span_start). */
#ifndef PT_PRETOKENIZER_H
#define PT_PRETOKENIZER_H

#include "text/pattern.h"

typedef enum span_start {
    START_OF_TEXT,
    START_INSIDE,  /* of a span after a cut or after an added token */
    START_CONTINUES /* the text before it was handed over earlier: nothing is put in front */
} span_start;

typedef enum split_behavior {
    SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT, SPLIT_CONTIGUOUS
} split_behavior;

typedef enum pre_kind { PRE_SPLIT, PRE_METASPACE, PRE_PREFIX_SPACE } pre_kind;
typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

/* Where a split surely cuts, whatever stands around (see cut.c). */
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
    bool byte_level; /* words go to the BPE as bytes */
} pretokenizer;

typedef int (*word_function)(void *context, const char *word, size_t n, pt_error *e);

/* One call's surroundings: scratch of this thread, and who takes the words. */
typedef struct pre_run {
    const pretokenizer *pre;
    pattern_scratch *patterns;
    text_buffer *buffers; /* one a step */
    word_function word;
    void *context;
} pre_run;

int pretokenizer_open(pretokenizer *p, const json_t *section, pt_error *e); /* NULL or JSON null: no steps */
void pretokenizer_close(pretokenizer *p);
int pretokenizer_run(const pre_run *run, const char *text, size_t n, span_start start, pt_error *e);

#endif
