/* meet.h - how the ranks of a run that were started apart find each other: rank 0 listens, the others ask it, and it tells all of them who
 * is where (hello.h). Afterwards each rank has a connection to every other one for data, and rank 0 one more to each for control.
 *
 * Whoever does not come in time is named. Ranks of another run that ask at the same port are turned away by the key, and look on at the
 * next port; what listens there and is no run does not matter either. */
#ifndef PT_MEET_H
#define PT_MEET_H

#include "comm/hello.h"

typedef struct meeting {
    int rank, ranks;
    const char *address;     /* of rank 0's machine, or several with commas between them; rank 0 itself needs none */
    int port, ports;         /* rank 0 takes the first of these that is free */
    uint64_t key;            /* the same on all ranks of the run, and not on others' */
    double seconds;          /* until all have to be there */
    bool sockets_only;       /* no memory is shared, wherever they are */
} meeting;

typedef struct meeting_result {
    int data[COMM_RANKS_MOST], control[COMM_RANKS_MOST]; /* -1: none. control of all of rank 0, [0] of the others */
    int listener;
    uint64_t nonce; /* drawn by rank 0 */
    char reached[256]; /* the address by which rank 0 was */
    hello_place place[COMM_RANKS_MOST];
} meeting_result;

/* Rank 0 has all its connections then, the others those to rank 0. */
int meet(const meeting *m, meeting_result *out, pt_error *e);
/* The other ranks' connections to each other. */
int meet_rest(const meeting *m, meeting_result *r, pt_error *e);
void meet_close(meeting_result *r);

#endif
