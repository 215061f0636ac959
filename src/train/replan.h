/* replan.h - changes the plan of a run whose steps take longer or shorter than predicted (replan.c). */
#ifndef PT_REPLAN_H
#define PT_REPLAN_H

#include "train/trainer.h"

/* Call it after each step, on all ranks. Fails only if the state could not be loaded again, which is saved then, or if another rank has
 * ended. */
int replan_look(trainer *trainer, pt_error *e);
/* Moves the state to the plan next->best between two steps, on all ranks; `next` gets what is no longer used. *moved: the state was saved
 * to a checkpoint; if that failed, the plan stays. If there is no memory for `next`, the old plan is used, or one for the memory that is
 * left. */
int replan_move(trainer *trainer, search_result *next, bool *moved, pt_error *e);

#endif
