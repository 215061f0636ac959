/* sobol.c - Sobol points in base 2, and their scrambling. */
#include "ritz/points_parts.h"
#include "ritz/sobol_table.h"

#include <stdlib.h>

/* ---- direction numbers ---- */

typedef struct reader { uint64_t at; } reader; /* in bits */

static uint32_t take(reader *r, int bits)
{
    uint32_t value = 0;
    for (int i = 0; i < bits; i++, r->at++)
        value = value << 1 | (sobol_bits[r->at / 8] >> (7 - r->at % 8) & 1);
    return value;
}

/* Column k is m_{k+1} / 2^{k+1}. The first s are in the table; the polynomial's recurrence gives the others. */
static void read_dimension(reader *r, int s, uint64_t *columns)
{
    const uint32_t inner = take(r, s - 1);
    uint32_t v[SOBOL_COLUMNS];
    for (int k = 0; k < s; k++)
        v[k] = (take(r, k) << 1 | 1) << (31 - k);
    for (int k = s; k < SOBOL_COLUMNS; k++) {
        v[k] = v[k - s] ^ v[k - s] >> s;
        for (int i = 1; i < s; i++)
            if (inner >> (s - 1 - i) & 1)
                v[k] ^= v[k - i];
    }
    for (int k = 0; k < SOBOL_COLUMNS; k++)
        columns[k] = (uint64_t)v[k] << (POINT_BITS - 32);
}

static void read_dimensions(int64_t dim, uint64_t *columns)
{
    reader r = {0};
    int64_t j = 1;
    for (int k = 0; k < SOBOL_COLUMNS; k++)
        columns[k] = UINT64_C(1) << (POINT_BITS - 1 - k);
    for (int s = 1; s <= SOBOL_DEGREES; s++)
        for (int i = 0; i < sobol_polynomials[s - 1] && j < dim; i++, j++)
            read_dimension(&r, s, columns + j * SOBOL_COLUMNS);
}

/* ---- scrambling ---- */

/* Digit i of the result is the sum (mod 2) of digit i and of a random choice of the digits before it. */
static void scramble_matrix(const points *points, int64_t j)
{
    uint64_t column[POINT_BITS]; /* what digit i adds: itself, and random digits below it */
    for (int i = 0; i < POINT_BITS; i++) {
        const uint64_t unit = UINT64_C(1) << (POINT_BITS - 1 - i);
        column[i] = unit | (draw_bits(points, DRAW_MATRIX, (uint32_t)j, (uint64_t)i) & (unit - 1));
    }
    for (int k = 0; k < SOBOL_COLUMNS; k++) {
        uint64_t sum = 0, v = points->columns[j * SOBOL_COLUMNS + k];
        for (int i = 0; i < POINT_BITS; i++)
            if (v >> (POINT_BITS - 1 - i) & 1)
                sum ^= column[i];
        points->scrambled[j * SOBOL_COLUMNS + k] = sum;
    }
}

/* Nested scrambling: a coin flips each digit, and belongs to the digits above it, to a node of the tree of prefixes. One counter value, 127
 * of its bits, has the coins of seven levels below a node: its own first, then those of its two children, ... All points share the first
 * node, and many share each of the NODES that begin the next seven levels, so these are made once per draw. Below `depth` levels a prefix
 * belongs to one point alone, whose coins need no tree.
 *
 * Loops over points are vectorized by the compiler. They compute integers, and conversions that are exact. */
enum { LEVELS = 7, NODES = 1 << LEVELS, RUN = 128 };

#define INLINE static inline __attribute__((always_inline))

/* A prefix of the first LEVELS digits: its flips, in place, and the coins of the next six levels and of the seventh. */
struct sobol_node { uint64_t flips, first, last; };

static uint64_t first_coins(uint32_t w0, uint32_t w1) { return (uint64_t)w1 << 32 | w0; }
static uint64_t last_coins(uint32_t w1, uint32_t w2, uint32_t w3) { return ((uint64_t)w3 << 32 | w2) << 1 | w1 >> 31; }

/* A node's flips of the `levels` digits below it; coin l belongs to the l digits before it. */
INLINE uint64_t flips_of(uint64_t first, uint64_t last, uint64_t digits, int levels)
{
    uint64_t flips = 0;
    for (int l = 0; l < levels; l++) {
        const uint64_t before = digits >> (levels - l);
        flips = flips << 1 | ((l < 6 ? first >> ((1u << l) - 1 + before) : last >> before) & 1);
    }
    return flips;
}

static uint32_t purpose_of(int level) { return DRAW_FLIPS + ((uint32_t)level << 8); }

static void make_nodes(const points *points, int64_t j, sobol_node *nodes)
{
    const int levels = points->depth < LEVELS ? points->depth : LEVELS;
    uint32_t root[4], w[4][NODES];
    rng_words(points->key, purpose_of(0), (uint32_t)j, 0, root);
    if (points->depth > LEVELS)
        rng_words_run(points->key, purpose_of(LEVELS), (uint32_t)j, 0, NODES, w[0], w[1], w[2], w[3]);
    for (int k = 0; k < NODES; k++) {
        const uint64_t digits = (uint64_t)k >> (LEVELS - levels);
        nodes[k].flips = flips_of(first_coins(root[0], root[1]), last_coins(root[1], root[2], root[3]), digits, levels)
                         << (POINT_BITS - levels);
        if (points->depth <= LEVELS)
            continue;
        nodes[k].first = first_coins(w[0][k], w[1][k]);
        nodes[k].last = last_coins(w[1][k], w[2][k], w[3][k]);
    }
}

void sobol_draw(points *points)
{
    for (int64_t j = 0; j < points->dim && points->how == RANDOMIZE_LMS; j++)
        scramble_matrix(points, j);
    for (int64_t j = 0; j < points->dim && points->how == RANDOMIZE_OWEN; j++)
        make_nodes(points, j, points->nodes + j * NODES);
}

/* Points of one dimension, in the making: their digits, flips, and coins. */
typedef struct run {
    int n;
    uint64_t bits[RUN], flips[RUN], first[RUN], last[RUN], index[RUN];
    uint32_t w[4][RUN];
    double x[RUN];
} run;

/* Inlined with `levels` a constant. */
INLINE void flip_by(run *r, int level, int levels)
{
    const int at = POINT_BITS - level - levels;
    for (int i = 0; i < r->n; i++)
        r->flips[i] |= flips_of(r->first[i], r->last[i], r->bits[i] >> at & ((UINT64_C(1) << levels) - 1), levels) << at;
}

INLINE void flip(run *r, int level, int depth)
{
    switch (depth - level) {
    case 1: flip_by(r, level, 1); break;
    case 2: flip_by(r, level, 2); break;
    case 3: flip_by(r, level, 3); break;
    case 4: flip_by(r, level, 4); break;
    case 5: flip_by(r, level, 5); break;
    case 6: flip_by(r, level, 6); break;
    default: flip_by(r, level, LEVELS); break;
    }
}

/* Random words for the digits of each point above `level`. */
INLINE void draw_words(const points *points, uint32_t purpose, int64_t j, int level, run *r)
{
    for (int i = 0; i < r->n; i++)
        r->index[i] = r->bits[i] >> (POINT_BITS - level);
    rng_words_at(points->key, purpose, (uint32_t)j, r->index, r->n, r->w[0], r->w[1], r->w[2], r->w[3]);
}

INLINE void scramble_nested(const points *points, int64_t j, run *r)
{
    const uint64_t below = (UINT64_C(1) << (POINT_BITS - points->depth)) - 1;
    const sobol_node *nodes = points->nodes + j * NODES;
    for (int i = 0; i < r->n; i++) {
        const sobol_node *node = &nodes[r->bits[i] >> (POINT_BITS - LEVELS)];
        r->flips[i] = node->flips;
        r->first[i] = node->first;
        r->last[i] = node->last;
    }
    if (points->depth > LEVELS)
        flip(r, LEVELS, points->depth);
    for (int level = 2 * LEVELS; level < points->depth; level += LEVELS) {
        draw_words(points, purpose_of(level), j, level, r);
        for (int i = 0; i < r->n; i++) {
            r->first[i] = first_coins(r->w[0][i], r->w[1][i]);
            r->last[i] = last_coins(r->w[1][i], r->w[2][i], r->w[3][i]);
        }
        flip(r, level, points->depth);
    }
    draw_words(points, DRAW_REST, j, points->depth, r);
    for (int i = 0; i < r->n; i++)
        r->bits[i] ^= r->flips[i] | (((uint64_t)(r->w[0][i] >> 5) << 26 | r->w[1][i] >> 6) & below);
}

/* ---- points ---- */

static uint64_t sobol_point(const uint64_t *columns, uint32_t gray)
{
    uint64_t x = 0;
    for (; gray; gray &= gray - 1)
        x ^= columns[__builtin_ctz(gray)];
    return x;
}

/* Aligned blocks double: if index is a multiple of 2^(k+1), the Gray code of index + i + 2^k is that of index + i, with bits k and k - 1
 * inverted, for 0 <= i < 2^k. */
INLINE void count_up(const uint64_t *columns, uint32_t index, run *r)
{
    for (int at = 0, size; at < r->n; at += size) {
        const uint32_t i = index + (uint32_t)at;
        uint64_t *x = r->bits + at;
        x[0] = sobol_point(columns, i ^ i >> 1);
        size = 1;
        for (int k = 0; at + 2 * size <= r->n && !(i & (uint32_t)(2 * size - 1)); k++, size *= 2) {
            const uint64_t more = columns[k] ^ (k ? columns[k - 1] : 0);
            for (int m = 0; m < size; m++)
                x[size + m] = x[m] ^ more;
        }
    }
}

INLINE void make_run(const points *points, int64_t j, uint32_t index, run *r)
{
    count_up((points->how == RANDOMIZE_LMS ? points->scrambled : points->columns) + j * SOBOL_COLUMNS, index, r);
    if (points->how == RANDOMIZE_OWEN)
        scramble_nested(points, j, r);
    for (int i = 0; i < r->n; i++)
        r->x[i] = to_unit(points->how == RANDOMIZE_OWEN ? r->bits[i] : r->bits[i] ^ points->shift[j]);
}

typedef void (*make_fn)(const points *p, int64_t j, uint32_t index, run *r);
static void make_any(const points *points, int64_t j, uint32_t index, run *r) { make_run(points, j, index, r); }

#if defined(__x86_64__)

__attribute__((target("avx2"))) static void make_avx2(const points *points, int64_t j, uint32_t index, run *r)
{
    make_run(points, j, index, r);
}

__attribute__((target("avx512f,avx512dq,prefer-vector-width=512"))) static void make_avx512(const points *points, int64_t j, uint32_t index,
                                                                                            run *r)
{
    make_run(points, j, index, r);
}

static make_fn make_best(void)
{
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    return wide ? make_avx512 : __builtin_cpu_supports("avx2") ? make_avx2 : make_any;
}

#else

static make_fn make_best(void) { return make_any; }

#endif

void sobol_get(const points *points, int64_t first, int64_t count, double *out)
{
    const make_fn make = make_best();
    run r;
    for (int64_t begin = 0; begin < count; begin += r.n, out += r.n * points->dim) {
        r.n = count - begin < RUN ? (int)(count - begin) : RUN;
        for (int64_t j = 0; j < points->dim; j++) {
            make(points, j, (uint32_t)(points->begin + (uint64_t)(first + begin)), &r);
            for (int i = 0; i < r.n; i++)
                out[i * points->dim + j] = r.x[i];
        }
    }
}

int sobol_open(points *points, pt_error *e)
{
    const uint64_t bytes = (uint64_t)points->dim * SOBOL_COLUMNS * sizeof *points->columns;
    int failed = 0;
    points->columns = points_take(points, bytes, &failed, e);
    if (points->how == RANDOMIZE_LMS)
        points->scrambled = points_take(points, bytes, &failed, e);
    if (points->how == RANDOMIZE_OWEN)
        points->nodes = points_take(points, (uint64_t)points->dim * NODES * sizeof *points->nodes, &failed, e);
    if (failed)
        return failed;
    read_dimensions(points->dim, points->columns);
    while (points->depth < SOBOL_COLUMNS && INT64_C(1) << points->depth < points->n)
        points->depth++;
    return 0;
}
