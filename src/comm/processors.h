/* processors.h - divides the processors of a machine among its ranks. */
#ifndef PT_PROCESSORS_H
#define PT_PROCESSORS_H

#include "comm/comm.h"

/* Binds the calling thread, and the threads that it starts, to this rank's part of the processors: neighbouring ones. If there are fewer
 * processors than ranks, several ranks share one. Does nothing if a launcher has given the ranks different processors. *here: number of
 * ranks on this machine. */
int processors_share(comm *c, int *here, pt_error *e);

#endif
