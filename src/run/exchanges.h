/* exchanges.h - what the tasks of a schedule send to other ranks and receive from them.
 *
 * The addresses of a schedule do not change, so most exchanges are listed once, when the executor is opened. Those of the embedding's sums
 * depend on the tokens of a step (touched.h, listed_rows.h), and are listed before each step.
 */
#ifndef PT_EXCHANGES_H
#define PT_EXCHANGES_H

#include "run/tasks.h"

/* The tasks exchange by `c`. by_host: all memory that they exchange has host addresses. */
int exchanges_open(task_runner *runner, struct comm *c, bool by_host, pt_error *e);
/* Lists the exchanges of a schedule; does nothing if there is one rank. */
int exchanges_list(task_runner *runner, const schedule *sched, pt_error *e);
/* Before a step: lists anew what depends on its tokens, `ids` (n) of this rank, which all ranks tell each other by `c`. */
int exchanges_of_step(task_runner *runner, const schedule *sched, struct comm *c, const int32_t *ids, int64_t n, pt_error *e);
void exchanges_close(task_runner *runner);

/* The sums of a rank where they arrive: those of the task's block, or the head's of a tied table. NULL: the task has none. */
float *task_partial(const task_runner *runner, const schedule *sched, const task *t, bool tied, int rank);
/* Does the head have sums of the piece, too? */
bool piece_is_tied(const model *m, const piece *piece);

#endif
