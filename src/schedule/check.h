/* check.h - a proof that a schedule does what it should, by an algorithm of its own.
 *
 * Nothing that builds a schedule is believed: not the builder's order, not the layout's addresses, not the
 * linker's waits. Only the model, the shape, the packing and the plan are, and they say what a step is. Proved:
 *
 *   order      every wait points backwards in the list, so nothing can deadlock; and any two accesses to the same
 *              byte, of which one writes, are ordered by the queues and the waits
 *   memory     every buffer lies inside its tier's arena, and that inside the budget; placements overlap nothing, but for
 *              gradients; and no buffer is overwritten while somebody will still read it
 *   contents   walked in list order with a version number for the contents of each buffer: what a task reads is the
 *              newest version of what it needs; each micro-batch passes each block once, each gradient is complete
 *              before it is used, each chunk is updated exactly once where the kind of schedule says so; and
 *              when the schedule ends, the placements hold the newest of everything
 *   operands   each task has exactly the buffers that it needs, of the right size, where its queue can reach them
 *
 * Since conflicting accesses are ordered as the list orders them, what holds for the walk holds for every run.
 */
#ifndef PT_CHECK_H
#define PT_CHECK_H

#include "schedule/schedule.h"

/* 0, or PT_FAILED with the task, the buffer and what is wrong; PT_DOES_NOT_FIT where the only fault is that a tier
 * needs more than its budget. `budget` NULL: no limits. Time: about proportional to the operands. */
int schedule_check(const schedule_input *in, const schedule *s, const uint64_t budget[TIERS], pt_error *e);
/* What can be proved of a schedule of any network, with so many blocks and chunks: order and memory as above; of contents, that whoever
 * reads an object reads what was written of it last, wherever its copies went meanwhile, and that placements hold that in the end. */
int schedule_check_moves(const schedule *s, int blocks_n, int chunks_n, const uint64_t budget[TIERS], pt_error *e);

#endif
