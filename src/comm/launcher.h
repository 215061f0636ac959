/* launcher.h - who started this process as one of several ranks, by what launchers leave in the environment.
 *
 *     torchrun, or by hand     RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *     mpirun of Open MPI       OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
 *     mpirun of MPICH          PMI_RANK, PMI_SIZE beside MPI_LOCALNRANKS; PMI_FD, at which it says more (pmi.h)
 *     srun                     SLURM_PROCID, SLURM_STEP_NUM_TASKS: of a step, and not of the batch script
 *
 * The first of them that is there counts: launchers start each other, the last one innermost. MASTER_ADDR and MASTER_PORT say where rank 0
 * is under all of them. */
#ifndef PT_LAUNCHER_H
#define PT_LAUNCHER_H

#include "base/error.h"

#include <stdint.h>

typedef struct launcher {
    const char *by;    /* NULL: nobody, the process is alone */
    int rank, ranks;
    char address[256]; /* of rank 0; "": not known */
    int port, ports;   /* at which it listens: the first that is free */
    uint64_t key;      /* the same on all ranks of a run */
    const char *mpi;   /* "openmpi", "mpich", NULL: whose mpirun it was */
    int here;          /* ranks on this machine, 0: not known */
    int pmi;           /* a descriptor, -1: none */
} launcher;

int launcher_find(launcher *out, pt_error *e);
/* Where rank 0 is and what the job is called, where the launcher says it only when asked. Once in a process, on all ranks. */
int launcher_ask(launcher *l, pt_error *e);
/* The first of a list of Slurm's, "node[07-12,20],login1": node07. */
void launcher_first_host(const char *list, char *out, size_t room);

#endif
