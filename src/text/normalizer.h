/* normalizer.h - the `normalizer` section: how a text is changed before it is split into words.
 *
 * A list of steps, each from one buffer to another: Unicode normalization forms, Lowercase, Strip, Prepend, Replace, and sequences of them.
 * Other types are refused by name. */
#ifndef PT_NORMALIZER_H
#define PT_NORMALIZER_H

#include "text/pattern.h"

typedef enum normalizer_kind {
    NORMALIZE_NFC, NORMALIZE_NFD, NORMALIZE_NFKC, NORMALIZE_NFKD,
    NORMALIZE_LOWERCASE, NORMALIZE_STRIP, NORMALIZE_PREPEND, NORMALIZE_REPLACE
} normalizer_kind;

typedef struct normalizer_step {
    normalizer_kind kind;
    bool left, right;    /* strip */
    pattern search;      /* replace */
    text_buffer content; /* prepend, replace */
} normalizer_step;

typedef struct normalizer {
    normalizer_step *steps;
    size_t n;
} normalizer;

int normalizer_open(normalizer *n, const json_t *section, pt_error *e); /* NULL or JSON null: no steps */
void normalizer_close(normalizer *n);
bool normalizer_prepends(const normalizer *n);

/* *out points into `text` or one of the two buffers. `prepend` false: skips Prepend steps, because the text continues an earlier part. */
int normalizer_run(const normalizer *n, pattern_scratch *s, text_buffer buffers[2], const char *text, size_t n_bytes,
                   bool prepend, const char **out, size_t *n_out, pt_error *e);

#endif
