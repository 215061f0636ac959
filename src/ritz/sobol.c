/* sobol.c - Sobol points in base 2, and their scrambling. */
#include "ritz/points_parts.h"
#include "ritz/sobol_table.h"

#include <stdlib.h>
#include <string.h>

/* ---- direction numbers ---- */

typedef struct reader { uint64_t at; } reader; /* in bits */

static uint32_t sextet(char c)
{
    return c >= 'a' ? (uint32_t)(c - 'a') + 26 : c >= 'A' ? (uint32_t)(c - 'A') : c >= '0' ? (uint32_t)(c - '0') + 52 : c == '+' ? 62 : 63;
}

static uint32_t take(reader *r, int bits)
{
    uint32_t value = 0;
    for (int i = 0; i < bits; i++, r->at++)
        value = value << 1 | (sextet(sobol_bits[r->at / 6]) >> (5 - r->at % 6) & 1);
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

int sobol_open(points *p, pt_error *e)
{
    const size_t bytes = (size_t)p->dim * SOBOL_COLUMNS * sizeof *p->columns;
    p->columns = malloc(bytes);
    p->scrambled = malloc(bytes);
    if (!p->columns || !p->scrambled)
        return pt_fail(e, PT_FAILED, "out of memory");
    read_dimensions(p->dim, p->columns);
    while (p->depth < SOBOL_COLUMNS && INT64_C(1) << p->depth < p->n)
        p->depth++;
    return 0;
}

/* ---- scrambling ---- */

/* Digit i of the result is the sum (mod 2) of digit i and of a random choice of the digits before it. */
static void scramble_matrix(const points *p, int64_t j)
{
    uint64_t column[POINT_BITS]; /* what digit i adds: itself, and random digits below it */
    for (int i = 0; i < POINT_BITS; i++) {
        const uint64_t unit = UINT64_C(1) << (POINT_BITS - 1 - i);
        column[i] = unit | (draw_bits(p, DRAW_MATRIX, (uint32_t)j, (uint64_t)i) & (unit - 1));
    }
    for (int k = 0; k < SOBOL_COLUMNS; k++) {
        uint64_t sum = 0, v = p->columns[j * SOBOL_COLUMNS + k];
        for (int i = 0; i < POINT_BITS; i++)
            if (v >> (POINT_BITS - 1 - i) & 1)
                sum ^= column[i];
        p->scrambled[j * SOBOL_COLUMNS + k] = sum;
    }
}

void sobol_draw(points *p)
{
    if (p->how == RANDOMIZE_LMS) {
        for (int64_t j = 0; j < p->dim; j++)
            scramble_matrix(p, j);
        return;
    }
    memcpy(p->scrambled, p->columns, (size_t)p->dim * SOBOL_COLUMNS * sizeof *p->columns);
}

/* A coin flips each bit, and belongs to the bits above it: to a node of the tree of prefixes. One counter value, 127 of its bits, has the
 * coins of seven levels below a node: its own first, then those of its two children, ... Below `depth` levels a prefix belongs to one point
 * alone, whose coins need no tree. */
enum { LEVELS_A_DRAW = 7, NODES = 1 << LEVELS_A_DRAW, BLOCK = 1024 };

/* first: coins of the first six levels; last: of the seventh. */
typedef struct node { uint64_t above, first, last; } node;

/* Points of one dimension, in the making. Many points share the nodes of the upper levels. */
typedef struct block {
    int64_t n;
    uint64_t bits[BLOCK], flips[BLOCK], index[BLOCK];
    uint32_t w[4][BLOCK];
    node nodes[NODES]; /* a cache: a node's place is its prefix modulo NODES */
} block;

static node node_of(uint64_t above, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3)
{
    const uint64_t low = (uint64_t)w1 << 32 | w0, high = (uint64_t)w3 << 32 | w2;
    return (node){above, low, high << 1 | low >> 63};
}

/* All nodes with `level` bits above them where a block's points share them; else each when a point asks for it. */
static void make_nodes(const points *p, int64_t j, int level, block *b)
{
    const int n = 1 << level;
    for (int k = 0; k < NODES; k++)
        b->nodes[k].above = UINT64_MAX;
    if (level > LEVELS_A_DRAW || n > b->n)
        return;
    rng_words_run(p->key, DRAW_FLIPS + ((uint32_t)level << 8), (uint32_t)j, 0, n, b->w[0], b->w[1], b->w[2], b->w[3]);
    for (int k = 0; k < n; k++)
        b->nodes[k % NODES] = node_of((uint64_t)k, b->w[0][k], b->w[1][k], b->w[2][k], b->w[3][k]);
}

static void make_node(const points *p, int64_t j, int level, uint64_t above, node *out)
{
    uint32_t w[4];
    rng_words(p->key, DRAW_FLIPS + ((uint32_t)level << 8), (uint32_t)j, above, w);
    *out = node_of(above, w[0], w[1], w[2], w[3]);
}

/* A node's coins for the next `levels` bits; coin l belongs to the l bits before it. */
static inline __attribute__((always_inline)) uint64_t flips_of(const node *n, uint64_t bits, int levels)
{
    uint64_t flips = 0;
    for (int l = 0; l < levels; l++) {
        const uint64_t before = bits >> (levels - l);
        flips = flips << 1 | ((l < 6 ? n->first >> ((1 << l) - 1 + before) : n->last >> before) & 1);
    }
    return flips;
}

/* Inlined with `levels` a constant. */
static inline __attribute__((always_inline)) void flip_points(const points *p, int64_t j, int level, int levels, block *b)
{
    const int above_at = POINT_BITS - level, at = above_at - levels;
    for (int64_t i = 0; i < b->n; i++) {
        const uint64_t above = b->bits[i] >> above_at;
        node *n = &b->nodes[above % NODES];
        if (n->above != above)
            make_node(p, j, level, above, n);
        b->flips[i] |= flips_of(n, b->bits[i] >> at & ((UINT64_C(1) << levels) - 1), levels) << at;
    }
}

static void flip_levels(const points *p, int64_t j, int level, block *b)
{
    make_nodes(p, j, level, b);
    switch (p->depth - level) {
    case 1: flip_points(p, j, level, 1, b); break;
    case 2: flip_points(p, j, level, 2, b); break;
    case 3: flip_points(p, j, level, 3, b); break;
    case 4: flip_points(p, j, level, 4, b); break;
    case 5: flip_points(p, j, level, 5, b); break;
    case 6: flip_points(p, j, level, 6, b); break;
    default: flip_points(p, j, level, LEVELS_A_DRAW, b); break;
    }
}

static void scramble_nested(const points *p, int64_t j, block *b)
{
    const uint64_t below = (UINT64_C(1) << (POINT_BITS - p->depth)) - 1;
    memset(b->flips, 0, (size_t)b->n * sizeof *b->flips);
    for (int level = 0; level < p->depth; level += LEVELS_A_DRAW)
        flip_levels(p, j, level, b);
    for (int64_t i = 0; i < b->n; i++)
        b->index[i] = b->bits[i] >> (POINT_BITS - p->depth);
    rng_words_at(p->key, DRAW_REST, (uint32_t)j, b->index, (int)b->n, b->w[0], b->w[1], b->w[2], b->w[3]);
    for (int64_t i = 0; i < b->n; i++)
        b->bits[i] ^= b->flips[i] | (((uint64_t)(b->w[0][i] >> 5) << 26 | b->w[1][i] >> 6) & below);
}

static uint64_t sobol_point(const uint64_t *columns, uint32_t gray)
{
    uint64_t x = 0;
    for (; gray; gray &= gray - 1)
        x ^= columns[__builtin_ctz(gray)];
    return x;
}

/* Neighbouring points differ by one direction number. */
static void count_up(const uint64_t *columns, uint32_t index, block *b)
{
    uint64_t x = sobol_point(columns, index ^ index >> 1);
    for (int64_t i = 0; i < b->n; i++) {
        b->bits[i] = x;
        x ^= ++index ? columns[__builtin_ctz(index)] : 0;
    }
}

void sobol_get(const points *p, int64_t first, int64_t count, double *out)
{
    block b;
    for (int64_t begin = 0; begin < count; begin += b.n) {
        b.n = count - begin < BLOCK ? count - begin : BLOCK;
        for (int64_t j = 0; j < p->dim; j++) {
            count_up(p->scrambled + j * SOBOL_COLUMNS, (uint32_t)(p->begin + (uint64_t)(first + begin)), &b);
            if (p->how == RANDOMIZE_OWEN)
                scramble_nested(p, j, &b);
            for (int64_t i = 0; i < b.n; i++)
                out[(begin + i) * p->dim + j] = to_unit(p->how == RANDOMIZE_OWEN ? b.bits[i] : b.bits[i] ^ p->shift[j]);
        }
    }
}
