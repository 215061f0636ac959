/* join.h - how a process finds the other ranks of its run: `protrain train --ranks N` started all of them on this machine and gave them
 * memory (cli/ranks.c), or a launcher started them wherever it likes (launcher.h) and they meet by TCP (meet.h).
 *
 *     PROTRAIN_JOIN_SECONDS   how long they wait for each other; default 120
 *     PROTRAIN_TRANSPORT      tcp: no memory is shared, on one machine neither; mpi: by MPI (mpi.h), which is used without being asked for
 *                             where mpirun has started ranks on several machines and does not say otherwise where rank 0 is
 */
#ifndef PT_JOIN_H
#define PT_JOIN_H

#include "comm/comm.h"

#include <stdbool.h>

#define JOIN_RANK "PROTRAIN_RANK"     /* this process's */
#define JOIN_MEMORY "PROTRAIN_MEMORY" /* number of the file that the ranks share (shm.h) */

/* This process's, -1: it is alone. *ranks is what was asked for, 0: nothing, and becomes what the launcher says, where there is one. 1 was
 * asked for: alone, whatever started it. PT_USAGE where they differ. */
int join_find(int *ranks, int *rank, pt_error *e);
/* *out NULL where `ranks` is 1. PT_USAGE where others are asked for and the process was not started with them. */
int join_open(int ranks, comm **out, pt_error *e);

/* Of ranks that met by TCP. Whether the run is over because one of them cannot go on, and since when (clock_s). */
bool join_ended(pt_error *why, double *since_s);
/* Whether rank 0 knows, which then says it. */
bool join_is_heard(void);

#endif
