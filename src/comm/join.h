/* join.h - how a process finds the other ranks of its run: by what the launcher (cli/ranks.c) leaves in the environment. */
#ifndef PT_JOIN_H
#define PT_JOIN_H

#include "comm/comm.h"

#define JOIN_RANK "PROTRAIN_RANK"     /* this process's */
#define JOIN_MEMORY "PROTRAIN_MEMORY" /* number of the file that the ranks share (shm.h) */

int join_rank(void); /* -1: the process is not one of several ranks */
/* *out NULL where `ranks` is 1. PT_USAGE where others are asked for and the process was not started with them. */
int join_open(int ranks, comm **out, pt_error *e);

#endif
