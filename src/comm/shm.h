/* shm.h - ranks of one machine, through memory that they share.
 *
 *     segment   [ header: abort flag and sentence, a beat of each rank ][ ring 0 -> 1 ][ ring 0 -> 2 ] ... [ ring N-1 -> N-2 ]
 *
 * Each pair of ranks has a ring of bytes for each direction: the sender copies in what fits and raises `head`, the receiver copies out
 * and raises `tail`. A rank turns from peer to peer until all its moves are done, and sleeps for some microseconds where none goes on.
 *
 * Who made the segment watches the ranks (cli/ranks.c): a rank's beat stands still where the process does, and where one ended in
 * another way than by its own word, shm_segment_abort says it to the rest. Nobody waits for a rank that is gone.
 */
#ifndef PT_SHM_H
#define PT_SHM_H

#include "comm/comm.h"

#include <stdbool.h>

typedef struct shm_segment shm_segment;

/* Anonymous memory that children share, and processes to which `fd` is handed down. fd may be NULL. The nonce tells it from others. */
int shm_segment_make(int ranks, uint64_t nonce, shm_segment **out, int *fd, pt_error *e);
/* In a process that was given the file. */
int shm_segment_map(int fd, shm_segment **out, pt_error *e);
void shm_segment_unmap(shm_segment *s);
int shm_segment_ranks(const shm_segment *s);
uint64_t shm_segment_nonce(const shm_segment *s);

/* rank -1: of all. The first reason stays. */
void shm_segment_abort(shm_segment *s, int rank, int code, const char *why);
bool shm_segment_aborted(const shm_segment *s, pt_error *why);
/* Grows several times a second while the rank's process runs; 0: it has not come yet. */
uint64_t shm_segment_beat(const shm_segment *s, int rank);

/* Into and out of the ring of a pair, as much as goes on without a turn of it; 0: nothing. */
size_t shm_put(shm_segment *s, int from, int to, const void *data, size_t bytes);
size_t shm_take(shm_segment *s, int from, int to, void *data, size_t bytes);

/* The segment stays the caller's, and outlives the comm. */
int comm_shm_open(shm_segment *s, int rank, comm **out, pt_error *e);

#endif
