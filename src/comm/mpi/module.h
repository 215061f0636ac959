/* module.h - what an MPI module has: a library of its own for each implementation of MPI (libprotrain_openmpi.so, libprotrain_mpich.so).
 * Its functions return 0, or leave in `why` what MPI says. */
#ifndef PT_MPI_MODULE_H
#define PT_MPI_MODULE_H

#include "comm/comm.h"

#include <stdbool.h>

enum { MPI_WHY_BYTES = 400 };

typedef struct mpi_functions {
    char version[24]; /* of the program that it belongs to */
    int (*begin)(int *rank, int *ranks, char why[MPI_WHY_BYTES]);
    /* From rank 0 to all. */
    int (*broadcast)(void *data, int bytes, char why[MPI_WHY_BYTES]);
    /* Those with other ranks. While nothing moves it asks `stop`, and where that says so it leaves, 1: nothing more can be exchanged. */
    int (*exchange)(const comm_move *moves, int n, int rank, int ranks, bool (*stop)(void *arg), void *arg, char why[MPI_WHY_BYTES]);
    void (*end)(void);
} mpi_functions;

#define MPI_MODULE_OPEN "protrain_mpi_functions"
typedef const mpi_functions *mpi_module_open_fn(void);

#endif
