/* join.h - joins a process to the other ranks of its run. Either `protrain train --ranks N` started all of them on this machine and gave
 * them shared memory (processes.c), or a launcher started them anywhere (launcher.h) and they meet by TCP (meet.h).
 *
 *     PROTRAIN_JOIN_SECONDS   time that the ranks wait for each other; default 120, and 30 for those of --ranks N
 *     PROTRAIN_RUN_KEY        the key of the run, or in a file by PROTRAIN_RUN_KEY_FILE (launcher.h)
 *     PROTRAIN_TRANSPORT      tcp: sockets, also between ranks of one machine; mpi: MPI (mpi.h). Without it, MPI is used only if mpirun has
 *                             started ranks on several machines and nothing else says where rank 0 is
 */
#ifndef PT_JOIN_H
#define PT_JOIN_H

#include "comm/comm.h"

#include <stdbool.h>

#define JOIN_RANK "PROTRAIN_RANK"     /* number of this process's rank */
#define JOIN_MEMORY "PROTRAIN_MEMORY" /* descriptor of the memory that the ranks share (shm.h) */

/* *rank: of this process; -1: it is alone. *ranks: the number asked for, or 0; becomes the launcher's number if there is a launcher.
 * With 1 the process is alone, whatever started it. PT_USAGE if the two numbers differ. */
int join_find(int *ranks, int *rank, pt_error *e);
/* PROTRAIN_JOIN_SECONDS; `otherwise` if it is not set. */
int join_seconds(int otherwise);
/* *out is NULL if `ranks` is 1. PT_USAGE if more are asked for and the process was not started as one of them. */
int join_open(int ranks, comm **out, pt_error *e);

#endif
