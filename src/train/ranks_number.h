/* ranks_number.h - how many ranks a run has where nobody says it. */
#ifndef PT_RANKS_NUMBER_H
#define PT_RANKS_NUMBER_H

#include "protrain.h"

/* *ranks, where it is 0 (else it stays): as many as `device` numbers GPUs; with more than one usable GPU and none numbered, as many of
 * them as the lanes can share, of the checkpoint that the run goes on from where there is one. 0: one rank. A run with a plan that was
 * given has one. */
int ranks_number(const pt_train_options *o, int *ranks, pt_error *e);

#endif
