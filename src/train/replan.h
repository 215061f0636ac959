/* replan.h - another plan for a run whose steps take another time than was predicted (replan.c). */
#ifndef PT_REPLAN_H
#define PT_REPLAN_H

#include "train/trainer.h"

/* After each step. An error only where the state could not be brought back into memory; it is saved then. */
int replan_look(trainer *t, pt_error *e);
/* Takes the state over to the plan next->best, between two steps. next gets what is not used any more. *moved: whether the state
 * was put aside at all; where it could not be, the plan stays. Where `next` finds no memory, the old plan, or one for what is left. */
int replan_move(trainer *t, search_result *next, bool *moved, pt_error *e);

#endif
