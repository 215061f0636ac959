/* halton.c - Halton points: coordinate j of point i is the number i in base of the j-th prime, with its digits mirrored at the point.
 * Scrambling permutes each digit at random, also the zeros after the last one, down to 2^-53 (points.h). */
#include "ritz/points_parts.h"

#include <math.h>
#include <stdlib.h>

static bool is_prime(uint32_t n)
{
    for (uint32_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            return false;
    return n > 1;
}

int halton_open(points *points, pt_error *e)
{
    uint64_t room = 0;
    int failed = 0;
    points->bases = points_take(points, (uint64_t)points->dim * sizeof *points->bases, &failed, e);
    if (failed)
        return failed;
    uint32_t prime = 2;
    for (int64_t j = 0; j < points->dim; j++, prime++) {
        while (!is_prime(prime))
            prime++;
        points->bases[j] = (halton_base){prime, (int)ceil(POINT_BITS / log2(prime)), 0, room};
        for (uint64_t distinct = 1; distinct < (uint64_t)points->n; distinct *= prime)
            points->bases[j].depth++;
        room += (uint64_t)points->bases[j].digits * prime;
    }
    if (points->how == RANDOMIZE_DIGITS)
        points->permutations = points_take(points, room * sizeof *points->permutations, &failed, e);
    return failed;
}

/* The shuffle of Fisher and Yates, with a counter value per swap. */
static void shuffle(const points *points, uint32_t j, int digit, uint16_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = (uint16_t)i;
    for (uint32_t i = n - 1; i > 0; i--) {
        const uint64_t r = draw_bits(points, DRAW_DIGITS, j, (uint64_t)digit << 32 | i) % (i + 1);
        const uint16_t swapped = order[i];
        order[i] = order[r];
        order[r] = swapped;
    }
}

void halton_draw(points *points)
{
    for (int64_t j = 0; j < points->dim && points->how == RANDOMIZE_DIGITS; j++)
        for (int digit = 0; digit < points->bases[j].digits; digit++)
            shuffle(points, (uint32_t)j, digit, points->permutations + points->bases[j].at + (uint64_t)digit * points->bases[j].base,
                    points->bases[j].base);
}

/* Behind the digits that distinguish points, each has a random number of its own. */
static double nested(const points *points, uint32_t j, uint64_t i)
{
    const halton_base *b = &points->bases[j];
    const double inverse = 1.0 / b->base;
    double x = 0, weight = 1;
    uint64_t before = 0, power = 1, left = i;
    for (int level = 0; level < b->depth; level++, left /= b->base, power *= b->base) {
        uint32_t w[4];
        const uint64_t digit = left % b->base;
        rng_words(points->key, DRAW_DIGITS + ((uint32_t)level << 8), j, before, w);
        const uint64_t factor = b->base == 2 ? 1 : 1 + bits53(w) % (b->base - 1), add = bits53(w + 2) % b->base;
        weight *= inverse;
        x += weight * (double)((factor * digit + add) % b->base);
        before += digit * power;
    }
    return x + weight * to_unit(draw_bits(points, DRAW_REST, j, i));
}

static double mirrored(const points *points, const halton_base *b, uint64_t i)
{
    const bool permuted = points->how == RANDOMIZE_DIGITS;
    const double inverse = 1.0 / b->base;
    double x = 0, weight = inverse;
    uint64_t order = b->at;
    for (int digit = 0; digit < b->digits && (permuted || i); digit++, i /= b->base, order += b->base, weight *= inverse)
        x += weight * (double)(permuted ? points->permutations[order + i % b->base] : i % b->base);
    return x;
}

void halton_get(const points *points, int64_t first, int64_t count, double *out)
{
    const double below_one = 1 - 0x1p-53;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < points->dim; j++) {
            const uint64_t index = points->begin + (uint64_t)(first + i);
            double x = points->how == RANDOMIZE_OWEN ? nested(points, (uint32_t)j, index) : mirrored(points, &points->bases[j], index);
            if (points->how == RANDOMIZE_SHIFT) {
                x += to_unit(points->shift[j]);
                x -= floor(x);
            }
            out[i * points->dim + j] = fmin(x, below_one);
        }
}
