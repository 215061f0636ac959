/* expression.h - a function of x1 .. xd that somebody has written, by muParser. */
#ifndef PT_EXPRESSION_H
#define PT_EXPRESSION_H

#include "base/error.h"

#include <stdint.h>

enum { EXPRESSION_BYTES = 19999 }; /* muParser takes no more */

typedef struct expression expression;

/* Variables x1 .. xd (and x, y, z up to three of them), the constants pi, e and d; functions as muParser has them, but what it can do
 * beside computing: no assignments, no strings, no random numbers. `where` and `key` are for messages. PT_FAILED with the column. */
int expression_open(const char *where, const char *key, const char *text, int64_t dim, expression **out, pt_error *e);
void expression_close(expression *x);
/* out[i] at x[i dim ..]. A pt_ritz_function, but for its first argument. One thread at a time. */
void expression_values(expression *x, int64_t n, int64_t dim, const double *points, double *out);

#endif
