/* cosines.h - sums of cosines, of which the built-in problems are made. */
#ifndef PT_RITZ_COSINES_H
#define PT_RITZ_COSINES_H

#include <stdint.h>

/* out[i] = cos(pi x1) + ... + cos(pi xd) of each of n points, to some 1e-16 a term; the same bits on every processor. */
void cosine_sums(int64_t n, int64_t dim, const double *x, double *out);

#endif
