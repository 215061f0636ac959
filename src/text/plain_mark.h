/* plain_mark.h - text in which some special tokens are plain text.
 *
 * A mark, the noncharacter U+FDD0, stands before each place where no special token may begin, and before each U+FDD0 of the text itself.
 * The encoder drops the marks (ENCODE_MARKED). So the text may go through a chat template, which moves it but does not change it. */
#ifndef PT_TEXT_PLAIN_MARK_H
#define PT_TEXT_PLAIN_MARK_H

#include "text/tokenizer.h"

#define PLAIN_MARK "\xef\xb7\x90"
enum { PLAIN_MARK_BYTES = 3 };

/* Whether a mark would be put anywhere. */
bool plain_mark_needed(const tokenizer *tok, const char *text, size_t n);
/* Appends the text with a mark before each special token. */
int plain_mark_put(const tokenizer *tok, const char *text, size_t n, text_buffer *out, pt_error *e);
/* Whether a mark stands directly before position `at`. */
bool plain_mark_before(const char *text, size_t at);
/* The bytes of the mark at text[at]; 0: there is none. */
size_t plain_mark_at(const char *text, size_t n, size_t at);
/* Appends the text without its marks. */
int plain_mark_drop(const char *text, size_t n, text_buffer *out, pt_error *e);

#endif
