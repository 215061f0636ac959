/* comm.h - the seam between a rank and the other ranks of its run. A transport moves bytes from memory to memory, and does nothing else.
 *
 * The caller adds up what several ranks have, in an order of its own, so that every transport gives the same bits. All ranks call the same
 * functions in the same order. A call returns when the caller's own moves are done. One thread of a rank calls at a time.
 *
 *     comm.h    exchange; all_gather, broadcast and barrier, which are built on it
 *     shm.h     transport between processes (or threads) of one machine, through shared memory
 *     tcp.h     transport between processes on any machines
 *     mpi.h     the same by MPI
 *     staged.h  exchanges of GPU memory, through host memory and any transport
 *     linked.h  exchanges between GPUs by NCCL
 *     join.h    chooses the transport; finds the other ranks
 *
 * Failure: a rank that fails reports it with comm_abort. The transports notice a rank that was killed or hangs (shm.h, tcp.h). From then on
 * all calls of all other ranks fail with the sentence of the first rank that failed.
 */
#ifndef PT_COMM_H
#define PT_COMM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COMM_RANKS_MOST = 64 };

typedef struct comm comm;

/* Bytes to send to a peer, and bytes to receive from it; either may be 0. Between two ranks, bytes arrive in the order of the moves, and
 * the two sides may cut them into different pieces. The peer may be the rank itself. */
typedef struct comm_move {
    int peer;
    const void *send;
    size_t send_bytes;
    void *receive;
    size_t receive_bytes;
    bool send_on_device, receive_on_device; /* addresses that the host may be unable to use: only for staged.h and linked.h */
} comm_move;

typedef struct comm_table {
    int (*exchange)(comm *c, const comm_move *moves, int n, pt_error *e);
    void (*abort)(comm *c, const pt_error *why);
    bool (*over)(comm *c, pt_error *why);
    void (*close)(comm *c);
} comm_table;

struct comm {
    const comm_table *table;
    int rank, ranks;
    uint64_t machine; /* the same number on the ranks of one machine */
};

static inline comm_move comm_send(int peer, const void *from, size_t bytes)
{
    return (comm_move){.peer = peer, .send = from, .send_bytes = bytes};
}
static inline comm_move comm_receive(int peer, void *to, size_t bytes)
{
    return (comm_move){.peer = peer, .receive = to, .receive_bytes = bytes};
}

/* Runs all moves concurrently; the moves of one peer and direction run in order. */
static inline int comm_exchange(comm *c, const comm_move *moves, int n, pt_error *e) { return c->table->exchange(c, moves, n, e); }
/* all: (ranks, bytes), in order of rank; `own` may point to its place in `all`. */
int comm_all_gather(comm *c, const void *own, size_t bytes, void *all, pt_error *e);
int comm_broadcast(comm *c, int from, void *data, size_t bytes, pt_error *e);
int comm_barrier(comm *c, pt_error *e);
/* If any rank has failed, fails on all ranks with the sentence of the first one, so that all ranks know. `failed`: this rank's own result,
 * explained in *e. */
int comm_agree(comm *c, int failed, pt_error *e);
/* Reports that this rank has failed and exchanges nothing any more. The first report of a run counts. */
static inline void comm_abort(comm *c, const pt_error *why) { c->table->abort(c, why); }
/* Has a rank failed or gone? Any thread may ask, also during an exchange. */
static inline bool comm_over(comm *c, pt_error *why) { return c->table->over(c, why); }
static inline void comm_close(comm *c)
{
    if (c)
        c->table->close(c);
}

#endif
