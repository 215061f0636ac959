/* misfit.h - what to say where no plan, or a given one, does not fit: PT_DOES_NOT_FIT with a sentence that names the ways out. They are in
 * p->change and p->other_changes then, and p->result.least has the budgets that would do. */
#ifndef PT_MISFIT_H
#define PT_MISFIT_H

#include "train/planning.h"

int misfit_explain(planning *p, pt_error *e);
int misfit_of_plan(planning *p, const uint64_t needs[TIERS], pt_error *e);

#endif
