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
static inline bool ranks_lead(const trainer *trainer) { return !trainer->comm || !trainer->comm->rank; }
/* Joins the other ranks; only the leading rank gives notices from then on. */
int ranks_open(trainer *trainer, pt_error *e);
/* Sets job.o.device to the GPU of this rank, or to the CPU for all ranks. Without ranks, checks that it names one device. (ranks_device.c)
 */
int ranks_choose_device(trainer *trainer, pt_error *e);
/* Chooses how ranks on GPUs exchange device memory. Call it after planning_open_device. */
int ranks_reach_devices(trainer *trainer, pt_error *e);
/* Do all ranks have the same model, data and options? A rank that differs fails. */
int ranks_agree(trainer *trainer, pt_error *e);
/* Do all ranks on CPUs compute the same bits? A rank that does not fails. Call it after planning_open_device. */
int ranks_agree_on_arithmetic(const trainer *trainer, pt_error *e);
/* Sets this rank's part of the step, once its lanes are known. */
int ranks_cut(trainer *trainer, pt_error *e);
/* Measures exchanges between ranks; nothing for one rank. (ranks_time.c) */
int ranks_time(const trainer *trainer, exchange_cost *out, pt_error *e);
/* The same for ranks that would run on this machine's processors, with the threads of `host` each. */
int ranks_time_here(int ranks, device *host, exchange_cost *out, pt_error *e);
/* Sets the budgets to the least of all ranks. */
int ranks_limit(trainer *trainer, pt_error *e);
/* For ranks other than 0: takes part in measurements while rank 0 makes the plan. */
void ranks_measure_too(const trainer *trainer);
/* Sends rank 0's plan, its inputs and its budgets to all. */
int ranks_take_plan(trainer *trainer, pt_error *e);
/* The same for rank 0's `next`, a plan to which the run changes. */
int ranks_take_next(trainer *trainer, search_result *next, pt_error *e);
/* Replaces this rank's times of a step's work by those of the slowest rank. */
int ranks_slowest_work(trainer *trainer, pt_error *e);
/* Sends rank 0's data to all. */
int ranks_share(const trainer *trainer, void *data, size_t bytes, pt_error *e);
int ranks_wait(const trainer *trainer, pt_error *e);
/* Replaces *n by its sum over the ranks. */
int ranks_add(const trainer *trainer, int64_t *n, pt_error *e);
/* Adds one sum per rank in the tree of lanes (model/lanes.h). */
int ranks_tree(const trainer *trainer, double *sum, pt_error *e);
/* Replaces *yes by whether it is true on any rank. */
int ranks_any(const trainer *trainer, bool *yes, pt_error *e);
/* Fails if not all ranks have loaded the same state from their `path`. */
int ranks_compare_loaded(const trainer *trainer, const state *loaded, const char *path, pt_error *e);
/* Fails on all ranks, with the same sentence, if `failed` is set on one (comm_agree). */
int ranks_all(const trainer *trainer, int failed, pt_error *e);
/* Collects the memory and speed of all ranks in trainer->accounts. */
int ranks_collect_accounts(trainer *trainer, pt_error *e);
/* A rank that cannot continue tells the others. Returns `failed`. */
int ranks_fail(const trainer *trainer, int failed, const pt_error *e);

#endif
