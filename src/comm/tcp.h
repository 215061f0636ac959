/* tcp.h - the transport between ranks that were started separately, on one machine or several: TCP connections, and shared memory between
 * ranks of the same machine.
 *
 * Each rank has a thread that watches, and a control connection to rank 0, on which both sides send a beat every second. A rank that fails
 * sends the reason. If a connection ends without a goodbye, the rank was killed, or its machine or the network failed. A rank that is
 * silent for 10 seconds hangs. Rank 0 tells all ranks (ending.h), whose exchanges then fail. If rank 0 is lost, each rank notices it by
 * itself. A rank that waits for one that has left fails, too.
 *
 * Data goes directly from rank to rank: through a ring of shared memory (shm.h) if both are on one machine and can see each other's
 * files in /proc, else through a TCP connection of the pair. */
#ifndef PT_TCP_H
#define PT_TCP_H

#include "comm/ending.h"
#include "comm/meet.h"

/* `end` is the caller's and must outlive the comm. All ranks call this at about the same time. */
int comm_tcp_open(const meeting *m, ending *end, comm **out, pt_error *e);

#endif
