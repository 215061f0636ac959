/* launcher.h - finds out from the environment which launcher started this process as one of several ranks.
 *
 *     torchrun, or by hand     RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *     mpirun of Open MPI       OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
 *     mpirun of MPICH          PMI_RANK, PMI_SIZE and MPI_LOCALNRANKS; PMI_FD, a descriptor for questions (pmi.h)
 *     srun                     SLURM_PROCID, SLURM_STEP_NUM_TASKS: variables of a job step, which the batch script does not have
 *
 * Launchers start each other, the last of this list first, so that the first one whose variables are set counts. MASTER_ADDR and
 * MASTER_PORT say where rank 0 is under all of them, unless all ranks are known to be on one machine.
 *
 * The key of a run comes from what the launcher says about the job. This tells runs apart, but others can guess it. MPICH passes a random
 * one from rank 0 to the others; the user may give one:
 *
 *     PROTRAIN_RUN_KEY         any text, the same for all ranks
 *     PROTRAIN_RUN_KEY_FILE    a file with it, which all ranks see
 */
#ifndef PT_LAUNCHER_H
#define PT_LAUNCHER_H

#include "base/error.h"

#include <stdint.h>

typedef struct launcher {
    const char *by;    /* its name for messages; NULL: none, the process is alone */
    int rank, ranks;
    char address[256]; /* of rank 0; "": not known */
    int port, ports;   /* rank 0 listens at the first free one of `ports` ports */
    uint64_t key;      /* the same on all ranks of a run */
    const char *mpi;   /* the MPI whose mpirun it is, "openmpi" or "mpich", or NULL */
    int here;          /* number of ranks on this machine; 0: not known */
    int pmi;           /* descriptor; -1: none */
} launcher;

int launcher_find(launcher *out, pt_error *e);
/* Asks a launcher that tells only on request where rank 0 is and how the job is called, and adds the key that the user gives. Called once
 * per process, on all ranks. */
int launcher_ask(launcher *l, pt_error *e);
/* The first host of Slurm's list: node07 of "node[07-12,20],login1". */
void launcher_first_host(const char *list, char *out, size_t room);

#endif
