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

int halton_open(points *p, pt_error *e)
{
    uint64_t room = 0;
    int failed = 0;
    p->bases = points_take(p, (uint64_t)p->dim * sizeof *p->bases, &failed, e);
    if (failed)
        return failed;
    uint32_t prime = 2;
    for (int64_t j = 0; j < p->dim; j++, prime++) {
        while (!is_prime(prime))
            prime++;
        p->bases[j] = (halton_base){prime, (int)ceil(POINT_BITS / log2(prime)), 0, room};
        for (uint64_t distinct = 1; distinct < (uint64_t)p->n; distinct *= prime)
            p->bases[j].depth++;
        room += (uint64_t)p->bases[j].digits * prime;
    }
    if (p->how == RANDOMIZE_DIGITS)
        p->permutations = points_take(p, room * sizeof *p->permutations, &failed, e);
    return failed;
}

/* The shuffle of Fisher and Yates, with a counter value per swap. */
static void shuffle(const points *p, uint32_t j, int digit, uint16_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = (uint16_t)i;
    for (uint32_t i = n - 1; i > 0; i--) {
        const uint64_t r = draw_bits(p, DRAW_DIGITS, j, (uint64_t)digit << 32 | i) % (i + 1);
        const uint16_t swapped = order[i];
        order[i] = order[r];
        order[r] = swapped;
    }
}

void halton_draw(points *p)
{
    for (int64_t j = 0; j < p->dim && p->how == RANDOMIZE_DIGITS; j++)
        for (int digit = 0; digit < p->bases[j].digits; digit++)
            shuffle(p, (uint32_t)j, digit, p->permutations + p->bases[j].at + (uint64_t)digit * p->bases[j].base, p->bases[j].base);
}

/* Behind the digits that distinguish points, each has a random number of its own. */
static double nested(const points *p, uint32_t j, uint64_t i)
{
    const halton_base *b = &p->bases[j];
    const double inverse = 1.0 / b->base;
    double x = 0, weight = 1;
    uint64_t before = 0, power = 1, left = i;
    for (int level = 0; level < b->depth; level++, left /= b->base, power *= b->base) {
        uint32_t w[4];
        const uint64_t digit = left % b->base;
        rng_words(p->key, DRAW_DIGITS + ((uint32_t)level << 8), j, before, w);
        const uint64_t factor = b->base == 2 ? 1 : 1 + bits53(w) % (b->base - 1), add = bits53(w + 2) % b->base;
        weight *= inverse;
        x += weight * (double)((factor * digit + add) % b->base);
        before += digit * power;
    }
    return x + weight * to_unit(draw_bits(p, DRAW_REST, j, i));
}

static double mirrored(const points *p, const halton_base *b, uint64_t i)
{
    const bool permuted = p->how == RANDOMIZE_DIGITS;
    const double inverse = 1.0 / b->base;
    double x = 0, weight = inverse;
    uint64_t order = b->at;
    for (int digit = 0; digit < b->digits && (permuted || i); digit++, i /= b->base, order += b->base, weight *= inverse)
        x += weight * (double)(permuted ? p->permutations[order + i % b->base] : i % b->base);
    return x;
}

void halton_get(const points *p, int64_t first, int64_t count, double *out)
{
    const double below_one = 1 - 0x1p-53;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < p->dim; j++) {
            const uint64_t index = p->begin + (uint64_t)(first + i);
            double x = p->how == RANDOMIZE_OWEN ? nested(p, (uint32_t)j, index) : mirrored(p, &p->bases[j], index);
            if (p->how == RANDOMIZE_SHIFT) {
                x += to_unit(p->shift[j]);
                x -= floor(x);
            }
            out[i * p->dim + j] = fmin(x, below_one);
        }
}
