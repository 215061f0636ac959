/* tcp.h - ranks that were started apart, on one machine or several: TCP connections, and memory between those of the same machine.
 *
 * A thread of each rank watches. Each rank has a control connection to rank 0, on which both say once a second that they are there. A rank
 * that fails says why; one whose connection ends without a goodbye was killed, or its machine or the network went; one that is not heard
 * of for 10 seconds hangs. Rank 0 tells all others (ending.h), whose exchanges then fail. Where rank 0 is lost, each finds so itself.
 *
 * Data goes straight from rank to rank: by a ring of shared memory (shm.h) where both are on one machine and can see each other's files in
 * /proc, else by a connection of that pair's own. */
#ifndef PT_TCP_H
#define PT_TCP_H

#include "comm/ending.h"
#include "comm/meet.h"

/* `end` is the caller's, and outlives the comm. All ranks call it at about the same time. */
int comm_tcp_open(const meeting *m, ending *end, comm **out, pt_error *e);

#endif
