/* check.h - proves that a schedule is correct, independently of the code that builds it.
 *
 * The checker does not trust the builder's order, the layout's addresses or the linker's waits. It relies only on the model, the
 * shape, the packing and the plan, which define a step. It proves:
 *
 *   order      every wait points backwards in the list, so nothing can deadlock; and any two accesses to the same
 *              byte, of which one writes, are ordered by the queues and the waits
 *   memory     every buffer lies inside its tier's arena, and the arena fits the budget; placements overlap nothing (except the
 *              gradients' while they are empty); no buffer is overwritten while a task will still read it
 *   contents   a walk in list order gives the contents of each buffer a version number. Each task reads the newest version of
 *              what it needs; each micro-batch passes each block once; each gradient is complete before it is used; each
 *              chunk is updated exactly once if the kind of schedule has updates; at the end the placements hold the newest
 *              version of everything
 *   operands   each task has exactly the buffers that it needs, of the right size, on tiers that its queue can reach
 *
 * Conflicting accesses happen in list order, so the result of the walk holds for every run.
 */
#ifndef PT_CHECK_H
#define PT_CHECK_H

#include "schedule/schedule.h"

/* Returns 0, PT_FAILED with the task, the buffer and the fault, or PT_DOES_NOT_FIT if the only fault is that a tier needs more than its
 * budget. `budget` NULL: no limits. Takes time about proportional to the number of operands. */
int schedule_check(const schedule_input *in, const schedule *sched, const uint64_t budget[TIERS], pt_error *e);
/* Proves what holds for any network with so many blocks and chunks: order and memory as above; and for contents that each read of an object
 * sees the last write of it, through any copies, and that the placements hold the last writes at the end. */
int schedule_check_moves(const schedule *sched, int blocks_n, int chunks_n, const uint64_t budget[TIERS], pt_error *e);

#endif
