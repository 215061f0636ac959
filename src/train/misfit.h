/* misfit.h - the message if no plan, or a given plan, does not fit: PT_DOES_NOT_FIT with a sentence that names what would help.
 * p->change and p->other_changes get the options, and p->result.least the least budgets. */
#ifndef PT_MISFIT_H
#define PT_MISFIT_H

#include "train/planning.h"

int misfit_explain(planning *planning, pt_error *e);
int misfit_of_plan(planning *planning, const uint64_t needs[TIERS], pt_error *e);

#endif
