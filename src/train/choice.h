/* choice.h - which tensors to train within a memory budget: those with the largest sum of contributions of which a plan fits.
 *
 *   all candidates, if a plan fits; else
 *   for each block from the head down, as the first with trained tensors: backward ends there, and blocks before it save nothing
 *       take tensors from that block on, by contribution per byte of states and gradients, as long as a plan fits
 *   of the blocks whose sums are largest, also take what fits behind the first tensor that did not; the largest sum is chosen
 *
 * Whether a set fits is asked of the search that plans runs, so saved activations, buffers and workspace count as they are.
 */
#ifndef PT_CHOICE_H
#define PT_CHOICE_H

#include "train/planning.h"

typedef struct choice {
    const double *contribution; /* [param]; what is 0 or less is not chosen, unless all fit */
    bool *candidate;            /* [param] */
    bool *chosen;               /* [param]: the result */
    double sum, all;            /* of what is chosen, of all candidates */
} choice;

/* Bytes of states and of the gradient that exist for a parameter only if it is trained. */
uint64_t choice_bytes(const planning *planning, const param *q);
/* planning: after planning_prepare, with budgets of the run. m: its model, whose trainable flags are those of the choice afterwards. */
int choice_make(planning *planning, model *m, choice *c, pt_error *e);

#endif
