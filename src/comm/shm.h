/* shm.h - the transport between ranks of one machine, through shared memory.
 *
 *     segment   [ header: abort flag and sentence, a beat of each rank ][ ring 0 -> 1 ][ ring 0 -> 2 ] ... [ ring N-1 -> N-2 ]
 *
 * Each pair of ranks has a ring of bytes for each direction. The sender copies in what fits and raises `head`; the receiver copies out and
 * raises `tail`. A rank turns from peer to peer until all its moves are done, and sleeps for some microseconds if no move can continue.
 *
 * The process that made the segment watches the ranks (processes.c): the beat of a stopped process stops, and if a rank ends without a
 * report of its own, shm_segment_abort tells the others. So no rank waits for one that is gone.
 */
#ifndef PT_SHM_H
#define PT_SHM_H

#include "comm/comm.h"

#include <stdbool.h>

typedef struct shm_segment shm_segment;

/* Makes anonymous memory, which children share, and processes that inherit `fd` (may be NULL). The nonce identifies the run. */
int shm_segment_make(int ranks, uint64_t nonce, shm_segment **out, int *fd, pt_error *e);
/* Maps the memory in a process that inherited the descriptor. */
int shm_segment_map(int fd, shm_segment **out, pt_error *e);
void shm_segment_unmap(shm_segment *s);
int shm_segment_ranks(const shm_segment *s);
uint64_t shm_segment_nonce(const shm_segment *s);

/* Ends the run for all ranks. rank -1: `why` names the rank. The first reason is kept. */
void shm_segment_abort(shm_segment *s, int rank, int code, const char *why);
bool shm_segment_aborted(const shm_segment *s, pt_error *why);
/* Grows several times a second while the rank's process runs; 0: the rank has not joined yet. */
uint64_t shm_segment_beat(const shm_segment *s, int rank);

/* A rank that neither puts nor takes any more, and whether one has said so. Bytes that it put before may still be taken. */
void shm_segment_leave(shm_segment *s, int rank);
bool shm_segment_left(const shm_segment *s, int rank);

/* Copies into or out of the ring of a pair, as much as is possible up to the ring's end; returns the bytes copied. */
size_t shm_put(shm_segment *s, int from, int to, const void *data, size_t bytes);
size_t shm_take(shm_segment *s, int from, int to, void *data, size_t bytes);

/* The segment stays the caller's and must outlive the comm. */
int comm_shm_open(shm_segment *s, int rank, comm **out, pt_error *e);

#endif
