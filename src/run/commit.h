/* commit.h - commits a run's state to its slots. */
#ifndef PT_COMMIT_H
#define PT_COMMIT_H

#include "run/executor.h"
#include "run/slots.h"

/* Commits the weights and states of all trained chunks: those on the disk are in the slots of the executor already, the others are written
 * there. Its queues are idle; the gradient of a later step may wait. step, text, n: slots_commit. */
int commit_states(executor *exec, slots *s, int64_t step, const char *text, size_t n, pt_error *e);

#endif
