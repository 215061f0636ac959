/* wellposed.h - what is wrong with a problem, and with a trained network. */
#ifndef PT_RITZ_WELLPOSED_H
#define PT_RITZ_WELLPOSED_H

#include "ritz/solver.h"

/* Before the first step. Notices of what is doubtful; refuses a problem whose energy has no minimum. */
int ritz_check_problem(pt_ritz *ritz, pt_error *e);
/* After the last step: notices of a network that is no solution. */
void ritz_judge(const pt_ritz *ritz, const pt_ritz_energy *s);

#endif
