/* error.h - errors as values.
 *
 * A function that can fail returns 0 or a negative code below and leaves one sentence in the
 * record that its caller passed in: what went wrong, where (file and place), and what to do.
 * The library never prints and never calls exit().
 */
#ifndef PT_ERROR_H
#define PT_ERROR_H

#include "protrain.h" /* pt_error, its codes, pt_fail */

#include <stdarg.h>

/* Number of bytes of the control character at the beginning of `text`: 0, 1, or 2 for U+0080 to U+009F. Control characters move a
 * terminal's cursor or change its colours. */
size_t control_character(const char *text);

/* As vsnprintf; but if the text does not fit, the longest words (paths) lose their middle, and the end stays. room: more than 128. */
void text_format(char *out, size_t room, const char *fmt, va_list ap);

/* PT_USAGE: the caller passed NULL for a required pointer of the public function. */
int pt_fail_null(pt_error *e, const char *function, const char *what);

#endif
