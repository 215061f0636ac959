#include "protrain_ritz.h"
#include "ritz/points_parts.h"
#include "ritz/lattice_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const points_names[POINTS_KINDS] = {"mc", "sobol", "halton", "lattice"};
const char *pt_ritz_points_name(pt_ritz_points kind) { return (unsigned)kind < POINTS_KINDS ? points_names[kind] : NULL; }
const char *const randomize_names[] = {"default", "none", "shift", "lms", "owen", "digits", "tent"};
enum { RANDOMIZATIONS = sizeof randomize_names / sizeof *randomize_names };

const char *pt_ritz_set_name(pt_ritz_points points, pt_ritz_randomize randomize, char *out)
{
    const bool named = randomize != PT_RITZ_RANDOMIZE_DEFAULT && (unsigned)randomize < RANDOMIZATIONS;
    const char *kind = pt_ritz_points_name(points);
    snprintf(out, PT_RITZ_SET_BYTES, "%s%s%s", kind ? kind : "?", named ? ":" : "", named ? randomize_names[randomize] : "");
    return out;
}

int pt_ritz_find_set(const char *name, size_t length, pt_ritz_points *points, pt_ritz_randomize *randomize, pt_error *e)
{
    for (int k = 0; k < PT_RITZ_KINDS; k++)
        for (int i = 0; i < RANDOMIZATIONS; i++) {
            char known[PT_RITZ_SET_BYTES];
            pt_ritz_set_name((pt_ritz_points)k, (pt_ritz_randomize)i, known);
            if (strlen(known) == length && !strncmp(known, name, length)) {
                *points = (pt_ritz_points)k;
                *randomize = (pt_ritz_randomize)i;
                return 0;
            }
        }
    return pt_fail(e, PT_USAGE, "unknown points \"%.*s\": give mc, sobol, halton or lattice, or one with its randomization, such as "
                                "lattice:tent", (int)(length < 40 ? length : 40), name);
}

enum { SOBOL_DIMENSIONS = 21201 };

int points_most_dimensions(points_kind kind)
{
    static const int most[POINTS_KINDS] = {MC_DIMENSIONS, SOBOL_DIMENSIONS, HALTON_DIMENSIONS, LATTICE_DIMENSIONS};
    return most[kind];
}

bool points_whole(points_kind kind, int64_t n) { return (kind != POINTS_SOBOL && kind != POINTS_LATTICE) || (n & (n - 1)) == 0; }

static bool has_randomization(points_kind kind, points_randomize how)
{
    switch (kind) {
    case POINTS_MC: return how == RANDOMIZE_NONE || how == RANDOMIZE_DEFAULT;
    case POINTS_SOBOL: return how <= RANDOMIZE_OWEN;
    case POINTS_HALTON: return how != RANDOMIZE_LMS && how != RANDOMIZE_TENT;
    default: return how == RANDOMIZE_NONE || how == RANDOMIZE_SHIFT || how == RANDOMIZE_TENT;
    }
}

static int check(points_kind kind, points_randomize how, int64_t dim, int64_t n, pt_error *e)
{
    static const char *const kinds[] = {"none, they are random already", "none, shift, lms or owen", "none, shift, owen or digits",
                                        "none, shift or tent"};
    if (dim < 1 || dim > points_most_dimensions(kind))
        return pt_fail(e, PT_USAGE, "%s points have 1 to %d dimensions, but %lld are needed%s%s", points_names[kind],
                       points_most_dimensions(kind), (long long)dim, kind == POINTS_MC || dim < 1 ? "" : "; mc points have any number",
                       dim > SOBOL_DIMENSIONS || dim < 1 ? "" : ", sobol points up to 21201");
    if (n < 1 || n > INT64_C(1) << SOBOL_COLUMNS)
        return pt_fail(e, PT_USAGE, "a set has 1 to 2^32 points, but %lld were asked for", (long long)n);
    if (!has_randomization(kind, how))
        return pt_fail(e, PT_USAGE, "%s points have no randomization %s: give %s", points_names[kind], randomize_names[how], kinds[kind]);
    return 0;
}

void *points_take(points *points, uint64_t bytes, int *failed, pt_error *e)
{
    void *memory = *failed ? NULL : calloc(1, bytes);
    if (!memory && !*failed)
        *failed = pt_fail(e, PT_FAILED, "out of memory");
    points->bytes += bytes;
    return memory;
}

uint64_t points_bytes(const points *points) { return points ? points->bytes : 0; }

int points_open(points_kind kind, points_randomize how, int64_t dim, int64_t n, uint64_t seed, points **out, pt_error *e)
{
    if (how == RANDOMIZE_DEFAULT && kind != POINTS_MC)
        how = kind == POINTS_LATTICE ? RANDOMIZE_SHIFT : kind == POINTS_HALTON ? RANDOMIZE_DIGITS : RANDOMIZE_OWEN;
    *out = NULL;
    int failed = check(kind, how, dim, n, e);
    if (failed)
        return failed;
    points *p = calloc(1, sizeof *p);
    if (!p)
        return pt_fail(e, PT_FAILED, "out of memory");
    *p = (points){.kind = kind, .how = how, .dim = dim, .n = n, .seed = seed};
    p->shift = points_take(p, (uint64_t)dim * sizeof *p->shift, &failed, e);
    if (!failed && kind == POINTS_SOBOL)
        failed = sobol_open(p, e);
    else if (!failed && kind == POINTS_HALTON)
        failed = halton_open(p, e);
    if (failed)
        points_close(p);
    else
        points_draw(*out = p, 0, 0);
    return failed;
}

void points_close(points *points)
{
    if (!points)
        return;
    free(points->columns);
    free(points->scrambled);
    free(points->nodes);
    free(points->shift);
    free(points->bases);
    free(points->permutations);
    free(points);
}

void points_draw(points *points, uint64_t draw, uint32_t part)
{
    uint32_t w[4];
    rng_words(points->seed, RNG_POINTS, part, draw, w);
    points->key = (uint64_t)w[0] << 32 | w[1];
    points->begin = points->how == RANDOMIZE_NONE && points->kind != POINTS_MC ? draw * (uint64_t)points->n : 0;
    for (int64_t j = 0; j < points->dim && points->kind != POINTS_MC; j++)
        points->shift[j] = points->how == RANDOMIZE_NONE ? 0 : draw_bits(points, DRAW_SHIFT, (uint32_t)j, 0);
    if (points->kind == POINTS_SOBOL)
        sobol_draw(points);
    else if (points->kind == POINTS_HALTON)
        halton_draw(points);
}

/* Coordinate j of n points from two words each. */
static void put_uniform(const uint32_t *high, const uint32_t *low, int n, int64_t dim, double *out)
{
    for (int i = 0; i < n; i++)
        out[i * dim] = to_unit((uint64_t)(high[i] >> 5) << 26 | low[i] >> 6);
}

/* A counter value gives two coordinates. */
static void mc_get(const points *points, int64_t first, int64_t count, double *out)
{
    enum { RUN = 128 };
    uint32_t w[4][RUN];
    for (int64_t begin = 0; begin < count; begin += RUN, out += RUN * points->dim) {
        const int n = count - begin < RUN ? (int)(count - begin) : RUN;
        for (int64_t j = 0; j < points->dim; j += 2) {
            rng_words_run(points->key, DRAW_VALUE, (uint32_t)(j / 2), (uint64_t)(first + begin), n, w[0], w[1], w[2], w[3]);
            put_uniform(w[0], w[1], n, points->dim, out + j);
            if (j + 1 < points->dim)
                put_uniform(w[2], w[3], n, points->dim, out + j + 1);
        }
    }
}

static const uint64_t point_mask = (UINT64_C(1) << POINT_BITS) - 1;

/* The tent of 53 bits; its top, which is 1, becomes the number below 1. */
static uint64_t tent(uint64_t bits)
{
    const uint64_t up = 2 * (bits >> (POINT_BITS - 1) ? (UINT64_C(1) << POINT_BITS) - bits : bits);
    return up > point_mask ? point_mask : up;
}

/* Bit 0 becomes bit 52, and so on. */
static uint64_t mirrored_bits(uint64_t i)
{
    uint64_t out = 0;
    for (int b = 0; b < POINT_BITS && i; b++, i >>= 1)
        out |= (i & 1) << (POINT_BITS - 1 - b);
    return out;
}

/* i z / n plus the shift, in 53 bits; exact if n is a power of two. Not randomized: point i of the sequence. */
void lattice_get(const points *points, int64_t first, int64_t count, double *out)
{
    const bool sequence = points->how == RANDOMIZE_NONE;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t index = points->begin + (uint64_t)(first + i), mirrored = sequence ? mirrored_bits(index) : 0;
        for (int64_t j = 0; j < points->dim; j++) {
            const uint64_t k = sequence ? 0 : index * lattice_vector[j] % (uint64_t)points->n;
            uint64_t bits =
                sequence ? mirrored * lattice_vector[j] : (uint64_t)(((unsigned __int128)k << POINT_BITS) / (uint64_t)points->n);
            bits = (bits + points->shift[j]) & point_mask;
            out[i * points->dim + j] = to_unit(points->how == RANDOMIZE_TENT ? tent(bits) : bits);
        }
    }
}

void points_get(const points *points, int64_t first, int64_t count, double *out)
{
    switch (points->kind) {
    case POINTS_MC: mc_get(points, first, count, out); break;
    case POINTS_SOBOL: sobol_get(points, first, count, out); break;
    case POINTS_HALTON: halton_get(points, first, count, out); break;
    default: lattice_get(points, first, count, out); break;
    }
}
