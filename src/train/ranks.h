/* ranks.h - agreement between the ranks of a run: one rank decides, or all exchange what they know. With one rank these functions do
 * nothing.
 *
 * Rank 0 owns the output folder: it alone claims it, measures and plans. The others read model and data for themselves, take its plan, and
 * write their part of the state where it is saved, or send it to rank 0 (state.h, shared_stage.h).
 */
#ifndef PT_RANKS_H
#define PT_RANKS_H

#include "train/trainer.h"

/* Does this rank write files? */
static inline bool ranks_lead(const trainer *t) { return !t->comm || !t->comm->rank; }
/* Joins the other ranks; only the leading rank gives notices from then on. */
int ranks_open(trainer *t, pt_error *e);
/* Which GPU is this rank's, or that all compute on the CPU: job.o.device. Without ranks, that it is one. (ranks_device.c) */
int ranks_choose_device(trainer *t, pt_error *e);
/* After planning_open_device: how ranks on GPUs exchange what lies there. */
int ranks_reach_devices(trainer *t, pt_error *e);
/* Do all ranks have the same model, data and options? A rank that differs fails. */
int ranks_agree(trainer *t, pt_error *e);
/* Sets this rank's part of the step, once its lanes are known. */
int ranks_cut(trainer *t, pt_error *e);
/* Measures exchanges between ranks; nothing for one rank. (ranks_time.c) */
int ranks_time(const trainer *t, exchange_cost *out, pt_error *e);
/* The same for ranks that would run on this machine's processors, with the threads of `host` each. */
int ranks_time_here(int ranks, device *host, exchange_cost *out, pt_error *e);
/* The plan is made for the memory of the rank that has least. */
int ranks_limit(trainer *t, pt_error *e);
/* For ranks other than 0, while rank 0 makes the plan. */
void ranks_measure_too(const trainer *t);
/* Sends rank 0's plan, its inputs and its budgets to all. */
int ranks_take_plan(trainer *t, pt_error *e);
/* The same for a plan that a run moves to: rank 0's `next`. */
int ranks_take_next(trainer *t, search_result *next, pt_error *e);
/* The times of a step's work on the slowest rank, in place of this rank's. */
int ranks_slowest_work(trainer *t, pt_error *e);
/* Sends rank 0's data to all. */
int ranks_share(const trainer *t, void *data, size_t bytes, pt_error *e);
int ranks_wait(const trainer *t, pt_error *e);
/* The sum over the ranks; is it true for any of them? */
int ranks_add(const trainer *t, int64_t *n, pt_error *e);
/* Adds one sum per rank in the tree of lanes (model/lanes.h). */
int ranks_tree(const trainer *t, double *sum, pt_error *e);
int ranks_any(const trainer *t, bool *yes, pt_error *e);
/* Whether all have loaded the same from their `path`. */
int ranks_compare_loaded(const trainer *t, const state *loaded, const char *path, pt_error *e);
/* Where one has failed all fail, with its sentence: comm_agree. */
int ranks_all(const trainer *t, int failed, pt_error *e);
/* Memory and speed of every rank, into t->accounts. */
int ranks_collect_accounts(trainer *t, pt_error *e);
/* A rank that cannot continue tells the others. Returns `failed`. */
int ranks_fail(const trainer *t, int failed, const pt_error *e);

#endif
