/* mpi.h - ranks that mpirun has started, by MPI itself: it brings the bytes from rank to rank, and says where rank 0 is. That one lives,
 * and why it ends, is told by TCP as always (tcp.h), since MPI alone does not say who is missing, or hangs. Its library is loaded when it
 * is wanted. */
#ifndef PT_COMM_MPI_H
#define PT_COMM_MPI_H

#include "comm/ending.h"
#include "comm/meet.h"

/* kind: "openmpi" or "mpich", the one whose mpirun it was. m: address and key are MPI's to say. MPI begins once in a process. */
int comm_mpi_open(const char *kind, const meeting *m, ending *end, comm **out, pt_error *e);

#endif
