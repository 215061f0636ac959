/* processors.h - ranks of one machine share its processors. */
#ifndef PT_PROCESSORS_H
#define PT_PROCESSORS_H

#include "comm/comm.h"

/* The calling thread, and those that it starts, keep to this rank's part of the processors: neighbours; where there are fewer than ranks,
 * they take turns. Nothing happens where a launcher has given the machine's ranks different ones. *here: how many ranks there are on it. */
int processors_share(comm *c, int *here, pt_error *e);

#endif
