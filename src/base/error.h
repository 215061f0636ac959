/* error.h - errors as values.
 *
 * A function that can fail returns 0 or a negative code, and writes one sentence to the record that its caller passed:
 * what went wrong, where (file and place), and what to do.
 * The library never prints and never calls exit().
 */
#ifndef PT_ERROR_H
#define PT_ERROR_H

#include "protrain.h" /* pt_error, its codes, pt_fail */

#include <stdarg.h>

/* The length in bytes of the control character at the start of `text`: 0 if there is none, 2 for U+0080 to U+009F, else 1. Control
 * characters could move a terminal's cursor or change its colours. */
size_t control_character(const char *text);

/* Like vsnprintf, but a text that does not fit is shortened in the middle of its longest words (paths), so that its end is kept.
 * room: more than 128. */
void text_format(char *out, size_t room, const char *fmt, va_list ap);

/* PT_USAGE: the caller passed NULL for a required pointer of the public function. */
int pt_fail_null(pt_error *e, const char *function, const char *what);
/* PT_USAGE: the list of the option `name` does not have n strings (NULL or negative, or one of them is NULL). */
int pt_check_list(const char *name, const char *const *list, int n, pt_error *e);
/* PT_USAGE: the value of the option `name` is not one of its enum, from 0 to `last`. */
int pt_check_choice(const char *name, unsigned value, unsigned last, pt_error *e);

#endif
