/* ahead.h - other cores price what a walk will ask for next.
 *
 * A walk looks at the neighbours of a candidate one after the other, in a known order, until one is faster. What one takes does not depend
 * on the others: while the walk prices one, helpers price those behind it. What they find goes into the memory, where the walk finds it
 * when it comes there:
 *
 *     walk     1 2 4 7 |                    1, 3 and 6 were too slow, 7 is faster: a new list is posted
 *     helpers    3 5 6 | 8 9                8 and 9 were for nothing, unless they are asked for later
 *
 * So it goes the same way as alone, only sooner. All functions are the walk's own thread's, and may be given NULL: nobody helps.
 */
#ifndef PT_AHEAD_H
#define PT_AHEAD_H

#include "search/space.h"

typedef struct ranked { candidate candidate; double ns; } ranked;

typedef struct ahead ahead;
/* NULL: there is one core only (or no thread can be had), and the walk is alone. The space outlives it. */
ahead *ahead_open(space *s);
void ahead_close(ahead *a);

/* What will be asked for, in that order, with the limits that candidate_price takes. The list may change once another is posted. */
void ahead_post(ahead *a, const ranked *list, int n, double limit, double prove_below);
/* Entry i of the list is asked for now: when it returns, no helper is at it. */
void ahead_reach(ahead *a, int i);

/* Calls job(arg, i) for each i below n, on all threads at once, and returns when all are done. Nothing may be posted meanwhile. */
void ahead_all(ahead *a, int n, void (*job)(void *arg, int i), void *arg);

#endif
