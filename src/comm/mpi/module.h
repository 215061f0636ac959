/* module.h - the interface of an MPI module, a library of its own for each implementation of MPI (libprotrain_openmpi.so,
 * libprotrain_mpich.so). Functions return 0 on success; else `why` has MPI's message. */
#ifndef PT_MPI_MODULE_H
#define PT_MPI_MODULE_H

#include "comm/comm.h"

#include <stdbool.h>

enum { MPI_WHY_BYTES = 400 };

typedef struct mpi_functions {
    char version[24]; /* of the program to which the module belongs */
    int (*begin)(int *rank, int *ranks, char why[MPI_WHY_BYTES]);
    /* Sends rank 0's data to all ranks. */
    int (*broadcast)(void *data, int bytes, char why[MPI_WHY_BYTES]);
    /* Runs the moves with other ranks. While nothing moves it calls `stop`; if that is true it returns 1, and no exchange can follow. */
    int (*exchange)(const comm_move *moves, int n, int rank, int ranks, bool (*stop)(void *arg), void *arg, char why[MPI_WHY_BYTES]);
    void (*end)(void);
} mpi_functions;

#define MPI_MODULE_OPEN "protrain_mpi_functions"
typedef const mpi_functions *mpi_module_open_fn(void);

#endif
