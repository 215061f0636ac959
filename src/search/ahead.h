/* ahead.h - other cores price the candidates that a walk will ask for next.
 *
 * A walk prices the neighbours of a candidate one after another, in a known order, until one is faster. The price of one does not depend on
 * the others, so while the walk prices one, helpers price those after it and put the results into the memory, where the walk finds them:
 *
 *     walk     1 2 4 7 |                    1 to 6 were too slow, 7 is faster: a new list is posted
 *     helpers    3 5 6 | 8 9                8 and 9 were wasted, unless they are asked for later
 *
 * The walk takes the same way as alone, only faster. Only the walk's own thread may call these functions. They accept NULL: no helpers.
 */
#ifndef PT_AHEAD_H
#define PT_AHEAD_H

#include "search/space.h"

typedef struct ranked { candidate candidate; double ns; int number; } ranked; /* number: order among equals */

typedef struct ahead ahead;
/* NULL if there is only one core or no thread can be created. The space must outlive it. */
ahead *ahead_open(space *space);
void ahead_close(ahead *a);

/* The candidates that will be asked for, in that order, with the limits of candidate_price. The list may change once another is posted. */
void ahead_post(ahead *a, const ranked *list, int n, double limit, double prove_below);
/* The walk asks for entry i of the list: on return, no helper is pricing it. */
void ahead_reach(ahead *a, int i);

/* No helper prices anything until another list is posted: before the space's budgets change, for a price holds for those that it began
 * with. */
void ahead_settle(ahead *a);

/* Calls work(arg, i) for each i below n, on all threads, and returns when all are done. Nothing may be posted meanwhile. */
void ahead_all(ahead *a, int n, void (*work)(void *arg, int i), void *arg);

#endif
