#include "comm/turns.h"

#include "base/pause.h"

#include <string.h>
#include <time.h>

bool turn_cursor_ready(turn_cursor *k, const comm_move *moves, int n, int peer, bool send)
{
    while (k->move < n && (moves[k->move].peer != peer || k->at == turn_bytes(&moves[k->move], send))) {
        k->move++;
        k->at = 0;
    }
    return k->move < n;
}

typedef struct exchange {
    const turn_channels *t;
    comm *c;
    const comm_move *moves;
    int n;
    turn_cursor out[COMM_RANKS_MOST], in[COMM_RANKS_MOST];
    unsigned char wants[COMM_RANKS_MOST];
} exchange;

/* Moves what is possible to and from one peer. */
static int turn(exchange *x, int peer, bool *any, pt_error *e)
{
    turn_cursor *out = &x->out[peer], *in = &x->in[peer];
    size_t moved = 0;
    int failed = 0;
    if (turn_cursor_ready(out, x->moves, x->n, peer, true)) {
        const comm_move *m = &x->moves[out->move];
        failed = x->t->put(x->c, peer, (const char *)m->send + out->at, m->send_bytes - out->at, &moved, e);
        out->at += moved;
        *any = *any || moved;
    }
    moved = 0;
    if (!failed && turn_cursor_ready(in, x->moves, x->n, peer, false)) {
        const comm_move *m = &x->moves[in->move];
        failed = x->t->take(x->c, peer, (char *)m->receive + in->at, m->receive_bytes - in->at, &moved, e);
        in->at += moved;
        *any = *any || moved;
    }
    x->wants[peer] = (unsigned char)((turn_cursor_ready(out, x->moves, x->n, peer, true) ? TURN_SENDS : 0) |
                                     (turn_cursor_ready(in, x->moves, x->n, peer, false) ? TURN_RECEIVES : 0));
    return failed;
}

void turns_move_own(const comm_move *moves, int n, int rank)
{
    turn_cursor out = {0}, in = {0};
    while (turn_cursor_ready(&out, moves, n, rank, true) && turn_cursor_ready(&in, moves, n, rank, false)) {
        const comm_move *a = &moves[out.move], *b = &moves[in.move];
        const size_t left = a->send_bytes - out.at, room = b->receive_bytes - in.at, bytes = left < room ? left : room;
        memmove((char *)b->receive + in.at, (const char *)a->send + out.at, bytes);
        out.at += bytes;
        in.at += bytes;
    }
}

int turns_exchange(const turn_channels *t, comm *c, const comm_move *moves, int n, pt_error *e)
{
    exchange x = {.t = t, .c = c, .moves = moves, .n = n};
    turns_move_own(moves, n, c->rank);
    for (int idle = 0;;) {
        bool any = false;
        int left = 0;
        for (int i = 1; i < c->ranks; i++) {
            const int peer = (c->rank + i) % c->ranks;
            int failed = turn(&x, peer, &any, e);
            if (failed)
                return failed;
            left |= x.wants[peer];
        }
        if (!left)
            return 0;
        idle = any ? 0 : idle + 1;
        int failed = any ? 0 : t->wait(c, x.wants, idle, e);
        if (failed)
            return failed;
    }
}

void turns_pause(int idle)
{
    enum { LOOKS = 200, SHORT_NS = 20000, LONG_NS = 200000 };
    if (idle < LOOKS) {
        cpu_pause();
        return;
    }
    const struct timespec t = {.tv_nsec = idle < 2 * LOOKS ? SHORT_NS : LONG_NS};
    nanosleep(&t, NULL);
}
