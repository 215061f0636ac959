/* ranks.h - a run of several processes: those of this machine that the program starts itself, which it watches, and those that a launcher
 * has started (comm/launcher.h). They end together. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "base/error.h"

#include <stdbool.h>

/* Runs `protrain ARGUMENTS` once for each rank, with what argv[0..argc) says, --ranks and, where out is not NULL, --out. Each has its
 * share of the processors. Where one fails, hangs or is killed, all end, and it is said which and why. Returns rank 0's exit status. */
int ranks_run(int ranks, int argc, char **argv, const char *out);

/* This process is one that a launcher has started. Rank 0 speaks for all of them: the others are silent from here on. Once one of them
 * cannot go on, this one ends by itself within seconds, whatever it does. */
void ranks_join_in(int rank);
/* Whether this process is one of several that a launcher has started, and `command` is done by rank 0 alone, and this is another one. */
bool ranks_leave(const char *command);
/* exit_with, for any rank: what rank 0 has not heard is said by whom it happened to. */
int ranks_exit_with(int rank, const pt_error *e);

#endif
