/* points.h - where an integral is sampled: random points of the unit cube, or point sets that cover it more evenly.
 *
 *     mc        Philox, as all random numbers here
 *     sobol     base 2, direction numbers new-joe-kuo-6; point i is that of the Gray code of i, as SciPy and most others count.
 *               The first 2^m points, and every aligned block of 2^m, are a (t,m,s)-net. Point 0 is one of them, and is kept.
 *     halton    digits in the first s prime numbers
 *     lattice   i z / n, rank 1; n points that belong together
 *
 * Randomized, every point is uniform in the cube, so that the mean over all drawings is the integral, and the set stays what it is:
 *
 *     shift     sobol: an exclusive or with one random point (a digital shift); lattice, halton: a sum with it, modulo 1
 *     lms       sobol: a random lower triangular matrix of bits for each dimension, then the shift
 *     owen      sobol: nested uniform scrambling (A. B. Owen, 1995): each bit is flipped by a coin that belongs to the bits before it.
 *               halton: a random permutation for each digit of each dimension
 *
 * Counter-based: a point is a function of (seed, draw, part, index), so that any thread, rank or resumed run has the same one. `draw` is
 * the number of the drawing, `part` tells apart sets that are drawn at the same time (interior, faces). What is not randomized goes on
 * with the next n points at each draw, but a lattice, which has only n.
 */
#ifndef PT_POINTS_H
#define PT_POINTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum points_kind { POINTS_MC, POINTS_SOBOL, POINTS_HALTON, POINTS_LATTICE, POINTS_KINDS } points_kind;
typedef enum points_randomize {
    RANDOMIZE_DEFAULT, /* owen; a lattice: shift */
    RANDOMIZE_NONE, RANDOMIZE_SHIFT, RANDOMIZE_LMS, RANDOMIZE_OWEN
} points_randomize;
extern const char *const points_names[POINTS_KINDS];
extern const char *const randomize_names[];

typedef struct points points;

/* n points a drawing, dim coordinates each. PT_USAGE: more dimensions or points than the kind has, a randomization that it has not. */
int points_open(points_kind kind, points_randomize how, int64_t dim, int64_t n, uint64_t seed, points **out, pt_error *e);
void points_close(points *p);
int points_most_dimensions(points_kind kind);
/* A number of points with which nothing of the set's evenness is lost. */
bool points_whole(points_kind kind, int64_t n);

/* Which drawing the next calls of points_get are about. */
void points_draw(points *p, uint64_t draw, uint32_t part);
/* out[(i - first) dim + j] = coordinate j of point i of the drawing, in [0, 1), for i = first .. first + count - 1. Many threads at
 * once. */
void points_get(const points *p, int64_t first, int64_t count, double *out);

#endif
