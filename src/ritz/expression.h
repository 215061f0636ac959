/* expression.h - functions of x1 .. xd from text, by muParser. */
#ifndef PT_EXPRESSION_H
#define PT_EXPRESSION_H

#include "base/error.h"

#include <stdint.h>

enum { EXPRESSION_BYTES = 19999 }; /* muParser takes no more */

typedef struct expression expression;

/* Variables are x1 .. xd (with up to three dimensions also x, y, z), constants pi, e and d, functions those of muParser. Assignments and
 * strings are refused. extra: name of one more variable, a constant string; NULL: there is none. Messages name `where`, `key` and, for what
 * does not parse, the column. */
int expression_open(const char *where, const char *key, const char *text, int64_t dim, const char *extra, expression **out, pt_error *e);
void expression_close(expression *x);
const char *expression_text(const expression *x);
/* So many threads can evaluate at the same time (fewer, if there are very many variables); more wait for each other. */
int expression_share(expression *x, int threads, pt_error *e);
/* As a pt_ritz_function. extra (n): values of the extra variable; NULL: it stays 0.5. Any thread may call it. */
void expression_values(expression *x, int64_t n, int64_t dim, const double *points, const double *extra, double *out);

#endif
