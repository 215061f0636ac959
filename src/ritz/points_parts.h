/* points_parts.h - shared by points.c and the kinds of points. */
#ifndef PT_POINTS_PARTS_H
#define PT_POINTS_PARTS_H

#include "base/rng.h"
#include "ritz/points.h"

enum {
    SOBOL_COLUMNS = 32,       /* indices below 2^32 */
    POINT_BITS = 53,          /* of a coordinate */
    HALTON_DIMENSIONS = 1024, /* primes up to 8161 */
    MC_DIMENSIONS = 1 << 24
};

typedef struct sobol_node sobol_node;
typedef struct halton_base {
    uint32_t base;
    int digits;
    int depth;   /* leading digits that distinguish the draw's points */
    uint64_t at; /* its permutations of `base` digits begin here */
} halton_base;

struct points {
    points_kind kind;
    points_randomize how;
    int64_t dim, n;
    uint64_t seed;
    uint64_t key;             /* seed of the draw's random numbers */
    uint64_t begin;           /* index of the draw's first point */
    uint64_t bytes;           /* allocated by points_take */
    int depth;                /* sobol: leading bits that distinguish the draw's points */
    uint64_t *columns;        /* sobol: (dim, SOBOL_COLUMNS) direction numbers; the first binary digit is bit 52 */
    uint64_t *scrambled;      /* lms: the same after the draw's random matrices */
    sobol_node *nodes;        /* owen: of this draw (sobol.c) */
    uint64_t *shift;          /* (dim) 53 bits each, of this draw */
    halton_base *bases;
    uint16_t *permutations;   /* digits: of this draw */
};

/* Purposes of a draw's random numbers. */
enum { DRAW_VALUE, DRAW_SHIFT, DRAW_MATRIX, DRAW_FLIPS, DRAW_REST, DRAW_DIGITS };

static inline uint64_t bits53(const uint32_t *w) { return (uint64_t)(w[0] >> 5) << 26 | w[1] >> 6; }
static inline uint64_t draw_bits(const points *points, uint32_t what, uint32_t dimension, uint64_t index)
{
    uint32_t w[4];
    rng_words(points->key, what, dimension, index, w);
    return bits53(w);
}
static inline double to_unit(uint64_t bits) { return (double)bits * 0x1p-53; }

/* Zeroed memory, which is counted. NULL: *failed becomes PT_FAILED. */
void *points_take(points *points, uint64_t bytes, int *failed, pt_error *e);
int sobol_open(points *points, pt_error *e);
void sobol_draw(points *points);
void sobol_get(const points *points, int64_t first, int64_t count, double *out);
int halton_open(points *points, pt_error *e);
void halton_draw(points *points);
void halton_get(const points *points, int64_t first, int64_t count, double *out);
void lattice_get(const points *points, int64_t first, int64_t count, double *out);

#endif
