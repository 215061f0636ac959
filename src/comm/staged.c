#include "comm/staged.h"

#include "comm/turns.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64, HALVES = 2 };

/* Moves of the transport, and the copies to the device that follow them. */
typedef struct staged_round {
    comm_move *moves;
    op_copy *copies;
    int moves_n, copies_n;
    uint64_t filled, emptied; /* timeline values of the queues */
} staged_round;

typedef struct staged_comm {
    comm base; /* first */
    comm *inner;
    device *device;
    queue *from, *to;     /* of the device */
    char *slots;          /* (2, HALVES, peers, slot_bytes): for sending, for receiving */
    size_t bytes, slot_bytes;
    staged_round round[HALVES];
    int room;             /* for moves and copies of a round */
} staged_comm;

/* One call of exchange. */
typedef struct staged_call {
    staged_comm *c;
    const comm_move *moves;
    int n;
    turn_cursor out[COMM_RANKS_MOST], in[COMM_RANKS_MOST];
} staged_call;

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static char *slot_of(const staged_comm *c, bool comes, int half, int peer)
{
    const int place = peer - (peer > c->base.rank), peers = c->base.ranks - 1;
    return c->slots + (size_t)((comes * HALVES + half) * peers + place) * c->slot_bytes;
}

/* ---- a round ---- */

/* Extends the last move if the new bytes follow it in memory. */
static void add_send(staged_round *r, int peer, const char *from, size_t bytes)
{
    comm_move *last = r->moves_n ? &r->moves[r->moves_n - 1] : NULL;
    if (last && last->peer == peer && last->send_bytes && (const char *)last->send + last->send_bytes == from)
        last->send_bytes += bytes;
    else
        r->moves[r->moves_n++] = (comm_move){.peer = peer, .send = from, .send_bytes = bytes};
}

static void add_receive(staged_round *r, int peer, char *to, size_t bytes)
{
    comm_move *last = r->moves_n ? &r->moves[r->moves_n - 1] : NULL;
    if (last && last->peer == peer && last->receive_bytes && (char *)last->receive + last->receive_bytes == to)
        last->receive_bytes += bytes;
    else
        r->moves[r->moves_n++] = (comm_move){.peer = peer, .receive = to, .receive_bytes = bytes};
}

static void list_sends(staged_call *x, int half, int peer)
{
    staged_comm *c = x->c;
    turn_cursor *k = &x->out[peer];
    char *slot = slot_of(c, false, half, peer);
    for (size_t used = 0; used < c->slot_bytes && turn_cursor_ready(k, x->moves, x->n, peer, true);) {
        const comm_move *m = &x->moves[k->move];
        const char *from = (const char *)m->send + k->at;
        const size_t bytes = least(m->send_bytes - k->at, c->slot_bytes - used);
        if (m->send_on_device)
            queue_submit(c->from, &(op){OP_COPY, .copy = {slot + used, from, bytes}});
        add_send(&c->round[half], peer, m->send_on_device ? slot + used : from, bytes);
        k->at += bytes;
        used += bytes;
    }
}

static void list_receives(staged_call *x, int half, int peer)
{
    staged_comm *c = x->c;
    staged_round *r = &c->round[half];
    turn_cursor *k = &x->in[peer];
    char *slot = slot_of(c, true, half, peer);
    for (size_t used = 0; used < c->slot_bytes && turn_cursor_ready(k, x->moves, x->n, peer, false);) {
        const comm_move *m = &x->moves[k->move];
        char *to = (char *)m->receive + k->at;
        const size_t bytes = least(m->receive_bytes - k->at, c->slot_bytes - used);
        if (m->receive_on_device)
            r->copies[r->copies_n++] = (op_copy){to, slot + used, bytes};
        add_receive(r, peer, m->receive_on_device ? slot + used : to, bytes);
        k->at += bytes;
        used += bytes;
    }
}

/* Lists the next round and begins to fill its slots; false: nothing is left. */
static bool list_round(staged_call *x, int half)
{
    staged_comm *c = x->c;
    staged_round *r = &c->round[half];
    r->moves_n = r->copies_n = 0;
    for (int i = 1; i < c->base.ranks; i++) {
        const int peer = (c->base.rank + i) % c->base.ranks;
        list_sends(x, half, peer);
        list_receives(x, half, peer);
    }
    r->filled = queue_signal(c->from);
    return r->moves_n > 0;
}

static int move_round(staged_comm *c, int half, pt_error *e)
{
    staged_round *r = &c->round[half];
    int failed = queue_sync(c->from, r->filled, e);
    if (!failed)
        failed = queue_sync(c->to, r->emptied, e); /* of this half's previous round */
    if (!failed)
        failed = comm_exchange(c->inner, r->moves, r->moves_n, e);
    for (int i = 0; i < r->copies_n && !failed; i++)
        queue_submit(c->to, &(op){OP_COPY, .copy = r->copies[i]});
    r->emptied = queue_signal(c->to);
    return failed;
}

/* ---- an exchange ---- */

static void move_own(const staged_call *x)
{
    const int rank = x->c->base.rank;
    turn_cursor out = {0}, in = {0};
    while (turn_cursor_ready(&out, x->moves, x->n, rank, true) && turn_cursor_ready(&in, x->moves, x->n, rank, false)) {
        const comm_move *a = &x->moves[out.move], *b = &x->moves[in.move];
        const size_t bytes = least(a->send_bytes - out.at, b->receive_bytes - in.at);
        queue_submit(x->c->to, &(op){OP_COPY, .copy = {(char *)b->receive + in.at, (const char *)a->send + out.at, bytes}});
        out.at += bytes;
        in.at += bytes;
    }
}

/* A round has at most all moves, and one more for each peer and direction, of which it takes a part. */
static int make_room(staged_comm *c, int n, pt_error *e)
{
    const int wanted = 2 * (n + c->base.ranks);
    if (wanted <= c->room)
        return 0;
    for (int i = 0; i < HALVES; i++) {
        comm_move *moves = realloc(c->round[i].moves, (size_t)wanted * sizeof *moves);
        c->round[i].moves = moves ? moves : c->round[i].moves;
        op_copy *copies = realloc(c->round[i].copies, (size_t)wanted * sizeof *copies);
        c->round[i].copies = copies ? copies : c->round[i].copies;
        if (!moves || !copies)
            return pt_fail(e, PT_FAILED, "out of memory");
    }
    c->room = wanted;
    return 0;
}

static int staged_exchange(comm *base, const comm_move *moves, int n, pt_error *e)
{
    staged_comm *c = (staged_comm *)base;
    staged_call x = {.c = c, .moves = moves, .n = n};
    int failed = make_room(c, n, e);
    if (failed)
        return failed;
    move_own(&x);
    bool more = list_round(&x, 0);
    for (int half = 0; more && !failed; half = !half) {
        more = list_round(&x, !half);
        failed = move_round(c, half, e);
    }
    const int left[2] = {queue_sync(c->from, queue_signal(c->from), failed ? NULL : e),
                         queue_sync(c->to, queue_signal(c->to), failed ? NULL : e)};
    return failed ? failed : left[0] ? left[0] : left[1];
}

/* ---- life ---- */

static void staged_abort(comm *base, const pt_error *why) { comm_abort(((staged_comm *)base)->inner, why); }

static void staged_close(comm *base)
{
    staged_comm *c = (staged_comm *)base;
    const device_table *d = c->device->table;
    d->queue_close(c->from);
    d->queue_close(c->to);
    d->memory_close(c->device, MEMORY_HOST, c->slots, c->bytes);
    for (int i = 0; i < HALVES; i++) {
        free(c->round[i].moves);
        free(c->round[i].copies);
    }
    free(c);
}

static bool staged_over(comm *base, pt_error *why) { return comm_over(((staged_comm *)base)->inner, why); }

static const comm_table staged_table = {staged_exchange, staged_abort, staged_over, staged_close};

int comm_staged_open(comm *inner, device *d, size_t bytes, comm **out, pt_error *e)
{
    staged_comm *c = calloc(1, sizeof *c);
    void *slots = NULL;
    if (!c)
        return pt_fail(e, PT_FAILED, "out of memory");
    const size_t parts = (size_t)(2 * HALVES * (inner->ranks - 1)), slot = bytes / (parts ? parts : 1) / LINE * LINE;
    c->base = (comm){&staged_table, inner->rank, inner->ranks, inner->machine};
    c->inner = inner;
    c->device = d;
    c->slot_bytes = slot > LINE ? slot : (size_t)LINE;
    c->bytes = parts * c->slot_bytes;
    int failed = d->table->memory_open(d, MEMORY_HOST, c->bytes, &slots, e);
    c->slots = slots;
    if (!failed)
        failed = d->table->queue_open(d, "from device to ranks", 1, &c->from, e);
    if (!failed)
        failed = d->table->queue_open(d, "from ranks to device", 1, &c->to, e);
    if (failed) {
        staged_close(&c->base);
        return failed;
    }
    *out = &c->base;
    return 0;
}
