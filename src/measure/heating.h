/* heating.h - when a GPU has computed for long enough to be timed.
 *
 * A GPU that has rested is faster than its power lets it be in the middle of a step: its clock falls for a second or more. So it computes,
 * forward and backward in turn, until the rounds of a window take no longer than those of the window before, twice in a row:
 *
 *     time of a round    9.0   9.4   9.6   9.65   9.66   9.66          each of a window of WINDOW_S
 *                            +     +     +      steady steady          the end; after HEATING_MOST_S in any case
 */
#ifndef PT_HEATING_H
#define PT_HEATING_H

#include <stdbool.h>

#define HEATING_WINDOW_S 0.25
#define HEATING_MOST_S 2.5
#define HEATING_STEADY 1.0025

typedef struct heating { double begin, before /* a round of the last window, 0: none */; long rounds; double window; int steady; } heating;

static inline heating heating_begin(double now) { return (heating){.begin = now, .window = now}; }

/* After `rounds` more rounds, at `now` seconds; false: it is warm. */
static inline bool heating_goes_on(heating *h, double now, long rounds)
{
    h->rounds += rounds;
    if (now - h->begin >= HEATING_MOST_S)
        return false;
    if (now - h->window < HEATING_WINDOW_S)
        return true;
    const double round_s = (now - h->window) / (double)h->rounds;
    h->steady = h->before > 0 && round_s <= h->before * HEATING_STEADY ? h->steady + 1 : 0;
    h->before = round_s;
    h->window = now;
    h->rounds = 0;
    return h->steady < 2;
}

#endif
