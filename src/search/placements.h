/* placements.h - shared by placements.c and arrange.c: a plan whose chunks move. An int is 0 or negative (an error, in w->e) unless
 * stated. */
#ifndef PT_PLACEMENTS_H
#define PT_PLACEMENTS_H

#include "search/walk.h"

typedef struct turning {
    walk *w;
    priced_plan *c;
    uint64_t *written;
    double ns; /* of the plan priced last, as far as it was priced; 0: it does not fit */
} turning;

/* 1: the current plan is faster than the one before by more than rounding. */
int placements_are_faster(turning *t);
/* The tiers where a chunk may live and be updated; returns their number. */
enum { PLACES = 10 };
int placements_places(const space *space, plan_chunk out[PLACES]);

/* arrange.c: tries every arrangement of the plan's chunks with every small number of buffers. 1: one is faster, and is the current plan. */
int placements_arrange(turning *t);

#endif
