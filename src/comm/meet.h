/* meet.h - connects the ranks of a run that were started separately. Rank 0 listens, the others connect to it, and it tells all of them
 * where each rank is (hello.h). Afterwards each rank has a connection to every other rank for data, and rank 0 another one to each for
 * control.
 *
 * Ranks that do not come in time are named. Several runs may use the same ports: a rank that asks rank 0 of another run is turned away
 * because of its key and tries the next port, and other programs that listen there do no harm. Nor do processes that connect: rank 0 ends
 * the run only if a rank is missing at the end. A rank keeps asking: rank 0 may be stopped for a while, or hold a connection of another
 * process with the same number, which it gives up if that does not come with its second connection.
 *
 * If the address of rank 0 is a loopback address, all listen on loopback only. */
#ifndef PT_MEET_H
#define PT_MEET_H

#include "comm/hello.h"

typedef struct meeting {
    int rank, ranks;
    const char *address;     /* of rank 0's machine, or several, separated by commas; rank 0 itself needs none */
    int port, ports;         /* rank 0 listens at the first free one of these */
    uint64_t key;            /* the same on all ranks of the run, different for other runs */
    double seconds;          /* within which all ranks have to come */
    bool sockets_only;       /* use no shared memory, not even on one machine */
} meeting;

typedef struct meeting_result {
    int data[COMM_RANKS_MOST], control[COMM_RANKS_MOST]; /* -1: none; control: between rank 0 and each other rank */
    int listener;
    uint64_t nonce; /* random, from rank 0 */
    char reached[256]; /* the address at which rank 0 was reached */
    hello_place place[COMM_RANKS_MOST];
} meeting_result;

/* Makes the connections between rank 0 and the others. */
int meet(const meeting *m, meeting_result *out, pt_error *e);
/* Makes the connections of the other ranks to each other. */
int meet_rest(const meeting *m, meeting_result *r, pt_error *e);
void meet_close(meeting_result *r);

#endif
