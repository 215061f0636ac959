/* unicode.h - normalization forms and character properties (by utf8proc). Texts are well-formed UTF-8. */
#ifndef PT_UNICODE_H
#define PT_UNICODE_H

#include "text/tokenizer.h"

typedef enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } unicode_form;

/* True only if the text is in NFC; may be false for some texts that are. */
bool unicode_surely_nfc(const char *text, size_t n);
int unicode_normalize(unicode_form form, const char *text, size_t n, text_buffer *out, pt_error *e); /* appends */
int unicode_lowercase(const char *text, size_t n, text_buffer *out, pt_error *e);                    /* appends */

bool unicode_is_space(uint32_t c);     /* White_Space */
bool unicode_is_word(uint32_t c);      /* a letter, mark, decimal digit or connector */
bool unicode_is_letter(uint32_t c);    /* category L */
bool unicode_is_number(uint32_t c);    /* category N */
bool unicode_is_visible(uint32_t c);   /* category L, N, P or S */
size_t unicode_spaces_at_start(const char *text, size_t n); /* in bytes */
size_t unicode_spaces_at_end(const char *text, size_t n);
uint32_t unicode_last(const char *text, size_t n, unsigned *length); /* last character of n > 0 bytes */

/* The characters that Unicode 15.0 to 16.0 added, with their general categories. */
typedef struct unicode_range {
    uint32_t first, last;
    char category[3];
} unicode_range;
const unicode_range *unicode_new_ranges(size_t *n);

#endif
