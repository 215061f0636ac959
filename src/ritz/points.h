/* points.h - the points at which an integral over the unit cube is sampled: random ones, or point sets that cover the cube evenly.
 *
 *     mc        random numbers (base/rng.h)
 *     sobol     base 2, direction numbers new-joe-kuo-6; point i is that of the Gray code of i, as SciPy and most others count.
 *               The first 2^m points, and every aligned block of 2^m, are a (t,m,s)-net. Point 0 is one of them, and is kept.
 *     halton    digits in the first s prime numbers
 *     lattice   i z / n, rank 1; n points that belong together. The vector z was searched component by component for 2^5 .. 2^18 points
 *               (tools/make_lattice_table.py)
 *
 * Randomization makes each point uniform in the cube, so that the mean over all draws is the integral, and keeps the set even:
 *
 *     shift     sobol: an exclusive or with one random point (a digital shift); lattice, halton: a sum with it, modulo 1
 *     lms       sobol: a random lower triangular matrix of bits for each dimension, then the shift
 *     owen      sobol: nested uniform scrambling (A. B. Owen, 1995): each bit is flipped by a coin that belongs to the bits above it.
 *               halton: nested, too: digit k becomes (a k + c) mod base, where a > 0 and c belong to the digits before it. Any two digits
 *               become any two others with the same probability, as by all permutations, on which the variance depends
 *     digits    halton: a random permutation for each digit of each dimension, whatever the digits before it
 *     tent      lattice: the shift, then the tent x -> 1 - |2 x - 1|, which makes every integrand periodic
 *
 * A point is a function of (seed, draw, part, index), so it is the same in any thread, rank or resumed run. `draw` counts the draws; `part`
 * distinguishes sets of the same draw (interior, faces). Sequences that are not randomized continue with the next n points at each draw.
 * So does a lattice, as the sequence of the points r(i) z, where r(i) has the bits of i mirrored at the point: 2^m of them, from a multiple
 * of 2^m on, are the lattice of 2^m points, moved.
 */
#ifndef PT_POINTS_H
#define PT_POINTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum points_kind { POINTS_MC, POINTS_SOBOL, POINTS_HALTON, POINTS_LATTICE, POINTS_KINDS } points_kind;
typedef enum points_randomize {
    RANDOMIZE_DEFAULT, /* sobol: owen; halton: digits; lattice: shift */
    RANDOMIZE_NONE, RANDOMIZE_SHIFT, RANDOMIZE_LMS, RANDOMIZE_OWEN, RANDOMIZE_DIGITS, RANDOMIZE_TENT
} points_randomize;
extern const char *const points_names[POINTS_KINDS];
extern const char *const randomize_names[];

typedef struct points points;

/* n points per draw, dim coordinates each. PT_USAGE: the kind has not so many dimensions or points, or not this randomization. */
int points_open(points_kind kind, points_randomize how, int64_t dim, int64_t n, uint64_t seed, points **out, pt_error *e);
void points_close(points *points);
/* Bytes of its tables, which are there until it is closed; NULL: 0. */
uint64_t points_bytes(const points *points);
int points_most_dimensions(points_kind kind);
/* Whether a set of n points is fully even. */
bool points_whole(points_kind kind, int64_t n);

/* Sets the draw and part of the next calls of points_get. */
void points_draw(points *points, uint64_t draw, uint32_t part);
/* out[(i - first) dim + j] = coordinate j of point i of the draw, in [0, 1), for i = first .. first + count - 1. Several threads may call
 * it at once. */
void points_get(const points *points, int64_t first, int64_t count, double *out);

#endif
