/* placements.h - what placements.c and arrange.c share: a plan whose chunks are sent elsewhere. An int is 0 or negative (an error, in w->e)
 * unless it says more. */
#ifndef PT_PLACEMENTS_H
#define PT_PLACEMENTS_H

#include "search/walk.h"

typedef struct turning {
    walk *w;
    priced_plan *c;
    uint64_t *written;
    double ns; /* of the plan that was looked at last, as far as it was priced; 0: it does not fit */
} turning;

/* 1: the plan as it is now is faster than before, by so much that it is no rounding. */
int placements_are_faster(turning *t);
/* Where a chunk may live and be updated here; their number. */
enum { PLACES = 10 };
int placements_places(const space *s, plan_chunk out[PLACES]);
/* Whether a layer's saved set leaves the device. */
bool placements_swap(const plan *p);

/* arrange.c: the fastest arrangement of the plan's chunks, with its slots. */
int placements_turn_all(turning *t);
/* The same with every few slots. 1: one is faster, and the plan now. */
int placements_arrange(turning *t);

#endif
