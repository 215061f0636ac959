#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

int comm_all_gather(comm *c, const void *own, size_t bytes, void *all, pt_error *e)
{
    comm_move moves[COMM_RANKS_MOST];
    int n = 0;
    char *to = all;
    memmove(to + (size_t)c->rank * bytes, own, bytes);
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank)
            moves[n++] = (comm_move){.peer = r, .send = to + (size_t)c->rank * bytes, .send_bytes = bytes,
                                     .receive = to + (size_t)r * bytes, .receive_bytes = bytes};
    return comm_exchange(c, moves, n, e);
}

int comm_broadcast(comm *c, int from, void *data, size_t bytes, pt_error *e)
{
    comm_move moves[COMM_RANKS_MOST];
    int n = 0;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank && (c->rank == from || r == from))
            moves[n++] = c->rank == from ? comm_send(r, data, bytes) : comm_receive(r, data, bytes);
    return comm_exchange(c, moves, n, e);
}

int comm_barrier(comm *c, pt_error *e)
{
    char own = 0, all[COMM_RANKS_MOST];
    return comm_all_gather(c, &own, 1, all, e);
}

typedef struct verdict { int32_t code; char text[600]; } verdict;

int comm_agree(comm *c, int failed, pt_error *e)
{
    verdict own = {.code = failed}, all[COMM_RANKS_MOST];
    pt_error why;
    if (failed)
        snprintf(own.text, sizeof own.text, "%.590s", e && e->code ? e->text : "failed");
    int lost = comm_all_gather(c, &own, sizeof own, all, &why);
    if (lost) {
        if (e)
            *e = why;
        return lost;
    }
    for (int r = 0; r < c->ranks; r++) {
        all[r].text[sizeof all[r].text - 1] = 0;
        if (!all[r].code)
            continue;
        if (r == c->rank)
            return failed;
        return r ? pt_fail(e, all[r].code, "rank %d: %s", r, all[r].text) : pt_fail(e, all[r].code, "%s", all[r].text);
    }
    return 0;
}
