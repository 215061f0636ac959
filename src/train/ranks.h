/* ranks.h - what the ranks of a run agree on. One rank decides, or all say what they know; with one rank nothing happens.
 *
 * Rank 0 owns the output folder: it alone claims it, measures, plans and writes. The others read model and data for themselves, take its
 * plan, and are asked for their part of the state where it is saved (state_lead).
 */
#ifndef PT_RANKS_H
#define PT_RANKS_H

#include "train/trainer.h"

/* Whether this rank has to do with files that are written. */
static inline bool ranks_lead(const trainer *t) { return !t->comm || !t->comm->rank; }
/* Joins the others, and silences those that do not lead. */
int ranks_open(trainer *t, pt_error *e);
/* Which GPU is this rank's, or that all compute on the CPU: job.o.device. Without ranks, that it is one. (ranks_device.c) */
int ranks_choose_device(trainer *t, pt_error *e);
/* Behind planning_open_device: how ranks on GPUs exchange what lies there. */
int ranks_reach_devices(trainer *t, pt_error *e);
/* Whether all have the same model, data and options: else the one that has not fails. */
int ranks_agree(trainer *t, pt_error *e);
/* This rank's part of the step, when its lanes are known. */
int ranks_cut(trainer *t, pt_error *e);
/* What exchanges between them take; nothing for one rank. (ranks_time.c) */
int ranks_time(const trainer *t, exchange_cost *out, pt_error *e);
/* The same of ranks that would run on this machine with so many threads each. */
int ranks_time_here(int ranks, int threads, exchange_cost *out, pt_error *e);
/* The plan is made for what the rank that has least may use. */
int ranks_limit(trainer *t, pt_error *e);
/* The plan of rank 0, what it was made from, and its budgets, to all. */
int ranks_take_plan(trainer *t, pt_error *e);
/* What rank 0 has, to all. */
int ranks_share(const trainer *t, void *data, size_t bytes, pt_error *e);
int ranks_wait(const trainer *t, pt_error *e);
/* The sum of what the ranks have; whether any of them says so. */
int ranks_add(const trainer *t, int64_t *n, pt_error *e);
/* The tree of lanes (model/lanes.h) over one sum of each rank. */
int ranks_tree(const trainer *t, double *sum, pt_error *e);
int ranks_any(const trainer *t, bool *yes, pt_error *e);
/* Memory and speed of every rank, into t->accounts. */
int ranks_collect_accounts(trainer *t, pt_error *e);
/* One that cannot go on tells the others. Returns `failed`. */
int ranks_fail(const trainer *t, int failed, const pt_error *e);

#endif
