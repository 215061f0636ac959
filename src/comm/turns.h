/* turns.h - an exchange over channels that take some bytes at a time. A rank turns from peer to peer until all its moves are done. */
#ifndef PT_TURNS_H
#define PT_TURNS_H

#include "comm/comm.h"

enum { TURN_SENDS = 1, TURN_RECEIVES = 2 };

/* A channel to each peer, in both directions. put and take move as much as is possible without waiting: *moved bytes. */
typedef struct turn_channels {
    int (*put)(comm *c, int peer, const void *from, size_t bytes, size_t *moved, pt_error *e);
    int (*take)(comm *c, int peer, void *to, size_t bytes, size_t *moved, pt_error *e);
    /* Called if nothing has moved, for the `idle`th time in a row: waits a moment, or fails. wants[peer]: TURN_ flags of the moves left. */
    int (*wait)(comm *c, const unsigned char *wants, int idle, pt_error *e);
} turn_channels;

/* The place in the moves of a peer, in one direction. */
typedef struct turn_cursor { int move; size_t at; } turn_cursor;
static inline size_t turn_bytes(const comm_move *m, bool send) { return send ? m->send_bytes : m->receive_bytes; }
/* Skips moves of other peers and finished ones; false: none is left. */
bool turn_cursor_ready(turn_cursor *k, const comm_move *moves, int n, int peer, bool send);

int turns_exchange(const turn_channels *t, comm *c, const comm_move *moves, int n, pt_error *e);
/* Copies the bytes that a rank sends to itself. */
void turns_move_own(const comm_move *moves, int n, int rank);
/* A pause for channels that wake nobody: spins briefly, then sleeps, because ranks may share a processor. */
void turns_pause(int idle);

#endif
