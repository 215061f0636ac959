/* pattern_translate.h - translates Oniguruma's regular expression syntax (Ruby's) to PCRE2's. */
#ifndef PT_PATTERN_TRANSLATE_H
#define PT_PATTERN_TRANSLATE_H

#include "text/tokenizer.h"

/* Appends the translation to `out`. PT_FAILED, naming the construct, if PCRE2 could match it differently. */
int pattern_translate(const char *regex, size_t n, const char *where, text_buffer *out, pt_error *e);

#endif
