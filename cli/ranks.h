/* ranks.h - a run of several processes of this machine: they are started, watched, and end together. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "base/error.h"

/* Runs `protrain ARGUMENTS` once for each rank, with what argv[0..argc) says and, where out is not NULL, --out. Each has its share of the
 * processors. Where one fails, hangs or is killed, all end, and it is said which and why. Returns rank 0's exit status. */
int ranks_run(int ranks, int argc, char **argv, const char *out);

#endif
