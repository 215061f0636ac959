/* pattern_translate.h - from Oniguruma's regular expression syntax (Ruby's) to PCRE2's. */
#ifndef PT_PATTERN_TRANSLATE_H
#define PT_PATTERN_TRANSLATE_H

#include "text/tokenizer.h"

/* Appends to `out`. Whatever might match differently afterwards is an error that names it. */
int pattern_translate(const char *regex, size_t n, const char *where, text_buffer *out, pt_error *e);

#endif
