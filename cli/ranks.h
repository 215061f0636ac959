/* ranks.h - runs of several processes, which this program starts on this machine (pt_ranks_run), or a launcher has started. All end
 * together. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "protrain.h"

/* Runs `protrain ARGUMENTS` once per rank, with argv[0..argc), --ranks and, if out is not NULL, --out. Returns the exit status. */
int ranks_run(int ranks, int argc, char **argv, const char *out);

/* This process was started by a launcher. Only rank 0 prints messages. If a rank cannot continue, this process ends within seconds,
 * whatever it does. */
void ranks_join_in(int rank);
/* Is this a rank other than 0 of a launcher, and `command` one that only rank 0 runs? */
bool ranks_leave(const char *command);
/* exit_with for any rank: a rank prints its error itself if rank 0 does not know it. */
int ranks_exit_with(int rank, const pt_error *e);

#endif
