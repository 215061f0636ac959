/* comm.h - the seam between a rank of a run and the others: bytes from memory to memory, and nothing else.
 *
 * A transport only moves bytes. Sums of what several ranks have are the caller's, in an order of its own, so that every transport gives
 * the same bits. All ranks call the same functions in the same order; a call ends when the caller's part of it is done. One thread of a
 * rank calls at a time.
 *
 *     comm.h   all_gather, broadcast, barrier, from exchange
 *     shm.h    between processes (or threads) of one machine, through memory that they share
 *     tcp.h    between processes wherever they are
 *     mpi.h    the same by MPI
 *     staged.h memory of a GPU, through host memory, by any of them
 *     join.h   which of them it is, and how the ranks find each other
 *
 * What can go wrong: a rank that fails says so by comm_abort, and a rank that is killed has somebody who notices (shm.h, tcp.h). Then the
 * calls of all others fail, now and later, with that rank's sentence.
 */
#ifndef PT_COMM_H
#define PT_COMM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COMM_RANKS_MOST = 64 };

typedef struct comm comm;

/* What goes to a peer, and what comes from it; either may be nothing. What one rank sends to another arrives there in the order of the
 * moves, whatever pieces either of them cuts it into. The peer may be the rank itself. */
typedef struct comm_move {
    int peer;
    const void *send;
    size_t send_bytes;
    void *receive;
    size_t receive_bytes;
    bool send_on_device, receive_on_device; /* memory that the host may have no address of: staged.h looks, others are given none such */
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

/* All moves at once: none waits for another, but those of the same peer for the ones before them. */
static inline int comm_exchange(comm *c, const comm_move *moves, int n, pt_error *e) { return c->table->exchange(c, moves, n, e); }
/* all: (ranks, bytes), in order of rank; own may be its place in it. */
int comm_all_gather(comm *c, const void *own, size_t bytes, void *all, pt_error *e);
int comm_broadcast(comm *c, int from, void *data, size_t bytes, pt_error *e);
int comm_barrier(comm *c, pt_error *e);
/* Where any rank has failed all fail, with the sentence of the first one, and each knows that the others know. `failed`: this rank's own,
 * of which *e tells. */
int comm_agree(comm *c, int failed, pt_error *e);
/* This rank has failed: it exchanges nothing any more. The first to say so is believed. */
static inline void comm_abort(comm *c, const pt_error *why) { c->table->abort(c, why); }
/* Whether a rank has, or is gone; any thread may ask, while another exchanges too. */
static inline bool comm_over(comm *c, pt_error *why) { return c->table->over(c, why); }
static inline void comm_close(comm *c)
{
    if (c)
        c->table->close(c);
}

#endif
