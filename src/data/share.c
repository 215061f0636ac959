#include "data/share.h"

#include "base/rng.h"

#include <math.h>

data_share share_of(share_part part, uint64_t seed, double fraction, uint64_t n)
{
    uint64_t held = part == SHARE_ALL ? 0 : (uint64_t)llround((double)n * fraction);
    if (part != SHARE_ALL)
        held = held < 1 ? n > 1 : held >= n ? n - (n > 0) : held;
    return (data_share){part, seed, n, held};
}

uint64_t share_count(const data_share *s) { return s->part == SHARE_HELD ? s->held : s->n - s->held; }

/* The start of group k. */
static uint64_t run_start(const data_share *s, uint64_t k) { return (uint64_t)((__uint128_t)k * s->n / s->held); }

static uint64_t held_of_run(const data_share *s, uint64_t k)
{
    uint32_t word[4];
    const uint64_t first = run_start(s, k), size = run_start(s, k + 1) - first;
    rng_words(s->seed, RNG_SHARE, 0, k, word);
    return first + (uint64_t)((__uint128_t)((uint64_t)word[0] << 32 | word[1]) * size >> 64);
}

uint64_t share_item(const data_share *s, uint64_t i)
{
    if (s->held == 0)
        return i;
    if (s->part == SHARE_HELD)
        return held_of_run(s, i);
    uint64_t low = 0, high = s->held; /* the last group before which at most i things are kept */
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (run_start(s, middle) - middle <= i)
            low = middle;
        else
            high = middle;
    }
    const uint64_t at = i + low; /* run_start(low), plus the rest of i within the group */
    return at + (at >= held_of_run(s, low));
}
