/* misfit.h - what to say where no plan, or a given one, does not fit: PT_DOES_NOT_FIT with a sentence that names the ways out. They are in
 * p->change and p->other_changes then, and p->result.least has the budgets that would do. */
#ifndef PT_MISFIT_H
#define PT_MISFIT_H

#include "train/planning.h"

int misfit_explain(planning *p, pt_error *e);
int misfit_of_plan(planning *p, const uint64_t needs[TIERS], pt_error *e);

/* ---- in words, for others that plan ---- */

enum { MISFIT_CHANGE_BYTES = CHANGE_BYTES };
/* "--host-memory 86GiB (25.25GiB more RAM than the machine has)"; whose: "the machine has", "is free here". */
void misfit_say_change(const search_input *in, const search_room *room, const uint64_t budget[TIERS], const char *whose,
                       char out[MISFIT_CHANGE_BYTES]);
/* "23.50 GiB of device memory and 60.80 GiB of host memory" */
void misfit_say_budgets(const search_input *in, char *out, size_t n);

#endif
