/* mpi.h - the transport by MPI, for ranks that mpirun has started. MPI moves the bytes and says where rank 0 is. Beats and reasons of
 * failure still use TCP (tcp.h), because MPI does not tell which rank is missing or hangs. The MPI library is loaded only if it is
 * needed. */
#ifndef PT_COMM_MPI_H
#define PT_COMM_MPI_H

#include "comm/ending.h"
#include "comm/meet.h"

/* kind: "openmpi" or "mpich". m: its address and key are replaced by what MPI says. Possible once per process. */
int comm_mpi_open(const char *kind, const meeting *m, ending *end, comm **out, pt_error *e);

#endif
