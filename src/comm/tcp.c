#include "comm/tcp.h"

#include "base/clock.h"
#include "comm/net.h"
#include "comm/shm.h"
#include "comm/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BEAT_MS = 1000, STILL_S = 10, LAST_WORDS_S = 2, WAIT_MS = 100 };

/* A control connection. */
typedef struct watched {
    int fd;           /* -1: none */
    note_reader reader;
    double heard_s;
    atomic_bool left, ended; /* a goodbye has come; the connection has ended */
} watched;

typedef struct tcp_comm {
    comm base; /* first */
    meeting_result net;
    watched to[COMM_RANKS_MOST];
    ending *end;
    shm_segment *shared; /* NULL: no memory is shared */
    int seat[COMM_RANKS_MOST]; /* place of each rank in it; -1: none */
    pthread_mutex_t sending;
    pthread_t watcher;
    bool watches, sockets_only;
    int wake;         /* eventfd: tells the watcher to end */
    int here;         /* number of ranks on this machine */
} tcp_comm;

static const char *host_of(const tcp_comm *c, int rank) { return c->net.place[rank].host; }
/* With the host, unless all ranks are on one machine. */
static void name_rank(const tcp_comm *c, int rank, char *out, size_t room)
{
    if (c->here == c->base.ranks)
        snprintf(out, room, "rank %d", rank);
    else
        snprintf(out, room, "rank %d on %s", rank, host_of(c, rank));
}

/* ---- notes ---- */

static bool send_note(tcp_comm *c, watched *w, note_kind kind, int code, const char *text)
{
    char bytes[sizeof(note_head) + NOTE_TEXT_BYTES];
    const size_t n = note_make(bytes, kind, code, text);
    pthread_mutex_lock(&c->sending);
    const bool sent = w->fd >= 0 && net_send_all(w->fd, bytes, n, clock_s()); /* a peer that cannot take so little hangs, or is gone */
    pthread_mutex_unlock(&c->sending);
    return sent;
}

static void send_all_notes(tcp_comm *c, note_kind kind, int code, const char *text)
{
    for (int r = 0; r < c->base.ranks; r++)
        if (c->to[r].fd >= 0 && !c->to[r].ended)
            send_note(c, &c->to[r], kind, code, text);
}

/* The reason of a rank's own (between ": ") or about a rank (" "). Rank 0 tells all: one that was stopped may continue. */
static void say_end(tcp_comm *c, int rank, const char *between, int code, const char *why)
{
    char who[100], text[NOTE_TEXT_BYTES];
    name_rank(c, rank, who, sizeof who);
    snprintf(text, sizeof text, "%s%s%.300s", who, between, why);
    if (ending_say(c->end, -1, code, text) && !c->base.rank)
        send_all_notes(c, NOTE_FAILED, code, text);
}

/* ---- the watcher ---- */

static int code_of(const note *n) { return n->code <= PT_FAILED && n->code >= PT_DOES_NOT_FIT ? n->code : PT_FAILED; }

static void hear_note(tcp_comm *c, int rank, const note *n)
{
    watched *w = &c->to[rank];
    if (n->kind == NOTE_GOODBYE) {
        w->left = true;
        shutdown(w->fd, SHUT_WR);
    } else if (n->kind == NOTE_FAILED && !c->base.rank) {
        say_end(c, rank, ": ", code_of(n), n->text);
    } else if (n->kind == NOTE_FAILED) {
        atomic_store(&c->end->heard, true);
        ending_say(c->end, -1, code_of(n), n->text);
    }
}

static void lose(tcp_comm *c, int rank)
{
    watched *w = &c->to[rank];
    w->ended = true;
    if (!w->left)
        say_end(c, rank, " ", PT_FAILED, "was killed, or is not connected any more");
}

static void hear(tcp_comm *c, int rank)
{
    watched *w = &c->to[rank];
    char bytes[512];
    size_t used;
    note n;
    const ssize_t got = recv(w->fd, bytes, sizeof bytes, 0);
    if (!got || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        lose(c, rank);
        return;
    }
    if (got > 0)
        w->heard_s = clock_s();
    for (size_t at = 0; got > 0 && at < (size_t)got; at += used) {
        const int there = note_take(&w->reader, bytes + at, (size_t)got - at, &used, &n);
        if (there < 0)
            lose(c, rank);
        if (there <= 0)
            return;
        hear_note(c, rank, &n);
    }
}

static void note_silence(tcp_comm *c, double now)
{
    char why[80];
    snprintf(why, sizeof why, "has not been heard of for %d s", STILL_S);
    for (int r = 0; r < c->base.ranks; r++)
        if (c->to[r].fd >= 0 && !c->to[r].ended && !c->to[r].left && now - c->to[r].heard_s > STILL_S)
            say_end(c, r, " ", PT_FAILED, why);
}

/* Returns whether the comm is still open. */
static bool watch_once(tcp_comm *c, int timeout_ms)
{
    struct pollfd p[COMM_RANKS_MOST + 1];
    int rank[COMM_RANKS_MOST + 1], n = 0;
    for (int r = 0; r < c->base.ranks; r++)
        if (c->to[r].fd >= 0 && !c->to[r].ended) {
            rank[n] = r;
            p[n++] = (struct pollfd){c->to[r].fd, POLLIN, 0};
        }
    p[n] = (struct pollfd){c->wake, POLLIN, 0};
    poll(p, (nfds_t)n + 1, timeout_ms);
    for (int i = 0; i < n; i++)
        if (p[i].revents)
            hear(c, rank[i]);
    return !p[n].revents;
}

static void *watch(void *arg)
{
    tcp_comm *c = arg;
    double last = clock_s(), beat = 0;
    while (watch_once(c, BEAT_MS / 2)) {
        const double now = clock_s();
        if (now - last > STILL_S / 4.0) /* this process itself was stopped */
            for (int r = 0; r < c->base.ranks; r++)
                c->to[r].heard_s = now;
        last = now;
        if (now - beat >= BEAT_MS * 1e-3) {
            send_all_notes(c, NOTE_BEAT, 0, "");
            beat = now;
        }
        note_silence(c, now);
    }
    return NULL;
}

/* ---- exchange ---- */

static int fail_ended(const tcp_comm *c, pt_error *e)
{
    pt_error why = {0};
    ending_ask(c->end, &why);
    return pt_fail(e, why.code, "%s", why.text);
}

/* Waits for the reason, which the watcher receives. If rank 0 has left, nobody sends one, and the ranks end one after another. */
static int fail_lost(tcp_comm *c, int peer, pt_error *e)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    for (const double until_s = clock_s() + LAST_WORDS_S; clock_s() < until_s && !ending_ask(c->end, NULL);)
        nanosleep(&moment, NULL);
    if (ending_ask(c->end, NULL))
        return fail_ended(c, e);
    char who[100];
    name_rank(c, c->to[0].left ? 0 : peer, who, sizeof who);
    return pt_fail(e, PT_FAILED, "%s has ended, or is not connected any more", who);
}

static bool is_lost(ssize_t n) { return n < 0 && errno != EAGAIN && errno != EINTR; }

/* A ring has no end of its own to notice. left: whether the peer had left before the ring was looked at. */
static int in_ring(tcp_comm *c, int peer, bool left, size_t moved, pt_error *e) { return left && !moved ? fail_lost(c, peer, e) : 0; }

static bool has_left(const tcp_comm *c, int peer) { return shm_segment_left(c->shared, c->seat[peer]); }

static int put(comm *base, int peer, const void *from, size_t bytes, size_t *moved, pt_error *e)
{
    tcp_comm *c = (tcp_comm *)base;
    if (c->seat[peer] >= 0) {
        const bool left = has_left(c, peer);
        *moved = shm_put(c->shared, c->seat[base->rank], c->seat[peer], from, bytes);
        return in_ring(c, peer, left, *moved, e);
    }
    const ssize_t n = send(c->net.data[peer], from, bytes, MSG_NOSIGNAL);
    if (is_lost(n))
        return fail_lost(c, peer, e);
    *moved = n > 0 ? (size_t)n : 0;
    return 0;
}

static int take(comm *base, int peer, void *to, size_t bytes, size_t *moved, pt_error *e)
{
    tcp_comm *c = (tcp_comm *)base;
    if (c->seat[peer] >= 0) {
        const bool left = has_left(c, peer);
        *moved = shm_take(c->shared, c->seat[peer], c->seat[base->rank], to, bytes);
        return in_ring(c, peer, left, *moved, e);
    }
    const ssize_t n = recv(c->net.data[peer], to, bytes, 0);
    if (!n || is_lost(n))
        return fail_lost(c, peer, e);
    *moved = n > 0 ? (size_t)n : 0;
    return 0;
}

static int await(comm *base, const unsigned char *wants, int idle, pt_error *e)
{
    tcp_comm *c = (tcp_comm *)base;
    struct pollfd p[COMM_RANKS_MOST];
    int n = 0;
    bool rings = false;
    if (ending_ask(c->end, NULL))
        return fail_ended(c, e);
    for (int r = 0; r < base->ranks; r++) {
        rings = rings || (wants[r] && c->seat[r] >= 0);
        const int events = (wants[r] & TURN_SENDS ? POLLOUT : 0) | (wants[r] & TURN_RECEIVES ? POLLIN : 0);
        if (events && c->seat[r] < 0)
            p[n++] = (struct pollfd){c->net.data[r], (short)events, 0};
    }
    if (rings)
        turns_pause(idle);
    else
        poll(p, (nfds_t)n, WAIT_MS);
    return 0;
}

static int tcp_exchange(comm *c, const comm_move *moves, int n, pt_error *e)
{
    static const turn_channels channels = {put, take, await};
    return turns_exchange(&channels, c, moves, n, e);
}

/* ---- shared memory on one machine ---- */

typedef struct offer { int pid, fd, there, unused; uint64_t nonce; } offer;

static int first_here(const tcp_comm *c)
{
    int r = 0;
    while (c->net.place[r].machine != c->net.place[c->base.rank].machine)
        r++;
    return r;
}

/* Maps the segment of the machine's first rank, by its descriptor in /proc. */
static bool map_offer(tcp_comm *c, const offer *o)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", o->pid, o->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const bool mapped = fd >= 0 && !shm_segment_map(fd, &c->shared, NULL) && shm_segment_ranks(c->shared) == c->here &&
                        shm_segment_nonce(c->shared) == c->net.nonce;
    if (fd >= 0)
        close(fd);
    return mapped;
}

static void take_seats(tcp_comm *c)
{
    for (int r = 0, seat = 0; r < c->base.ranks; r++)
        if (c->net.place[r].machine == c->net.place[c->base.rank].machine)
            c->seat[r] = seat++;
}

/* If one rank of the machine cannot map it, none uses it. */
static int share_memory(tcp_comm *c, pt_error *e)
{
    const int first = first_here(c);
    offer own = {.pid = getpid(), .fd = -1, .nonce = c->net.nonce}, all[COMM_RANKS_MOST];
    const bool wanted = c->here > 1 && !c->sockets_only;
    if (wanted && first == c->base.rank)
        own.there = !shm_segment_make(c->here, c->net.nonce, &c->shared, &own.fd, NULL);
    int failed = comm_all_gather(&c->base, &own, sizeof own, all, e);
    if (!failed && wanted && first != c->base.rank)
        own.there = all[first].there && map_offer(c, &all[first]);
    if (!failed)
        failed = comm_all_gather(&c->base, &own, sizeof own, all, e);
    if (own.fd >= 0)
        close(own.fd);
    bool every = wanted;
    for (int r = 0; r < c->base.ranks && !failed; r++)
        every = every && (c->net.place[r].machine != c->net.place[first].machine || all[r].there);
    if (!failed && every)
        take_seats(c);
    return failed;
}

/* ---- life ---- */

static void tcp_abort(comm *base, const pt_error *why)
{
    tcp_comm *c = (tcp_comm *)base;
    if (!base->rank)
        say_end(c, 0, ": ", why->code, why->text);
    else if (ending_say(c->end, base->rank, why->code, why->text))
        atomic_store(&c->end->heard, send_note(c, &c->to[0], NOTE_FAILED, why->code, why->text));
}

/* Closing a socket too early would discard bytes on their way: both sides say that nothing more comes, then wait for the other. */
static void say_goodbye(tcp_comm *c)
{
    send_all_notes(c, NOTE_GOODBYE, 0, "");
    for (int r = 0; r < c->base.ranks; r++)
        if (c->to[r].fd >= 0 && !c->to[r].ended)
            shutdown(c->to[r].fd, SHUT_WR);
    const double until_s = clock_s() + LAST_WORDS_S;
    for (int r = 0; r < c->base.ranks; r++) {
        char bytes[512];
        while (c->to[r].fd >= 0 && !c->to[r].ended && net_wait(c->to[r].fd, POLLIN, until_s))
            if (recv(c->to[r].fd, bytes, sizeof bytes, 0) <= 0)
                break;
    }
}

static void tcp_close(comm *base)
{
    tcp_comm *c = (tcp_comm *)base;
    const uint64_t one = 1;
    if (c->watches) {
        (void)!write(c->wake, &one, sizeof one);
        pthread_join(c->watcher, NULL);
    }
    if (c->seat[base->rank] >= 0)
        shm_segment_leave(c->shared, c->seat[base->rank]);
    say_goodbye(c);
    meet_close(&c->net);
    shm_segment_unmap(c->shared);
    close(c->wake);
    pthread_mutex_destroy(&c->sending);
    free(c);
}

static bool tcp_over(comm *base, pt_error *why) { return ending_ask(((tcp_comm *)base)->end, why); }

static const comm_table tcp_table = {tcp_exchange, tcp_abort, tcp_over, tcp_close};

static void find_others(tcp_comm *c, const meeting *m)
{
    c->base = (comm){&tcp_table, m->rank, m->ranks, c->net.place[m->rank].machine};
    for (int r = 0; r < COMM_RANKS_MOST; r++) {
        c->seat[r] = -1;
        c->to[r] = (watched){.fd = c->net.control[r], .heard_s = clock_s()};
    }
    for (int r = 0; r < m->ranks; r++)
        c->here += c->net.place[r].machine == c->net.place[m->rank].machine;
}

int comm_tcp_open(const meeting *m, ending *end, comm **out, pt_error *e)
{
    tcp_comm *c = calloc(1, sizeof *c);
    if (!c)
        return pt_fail(e, PT_FAILED, "out of memory");
    int failed = meet(m, &c->net, e);
    if (failed) {
        free(c);
        return failed;
    }
    find_others(c, m);
    c->end = end;
    c->sockets_only = m->sockets_only;
    pthread_mutex_init(&c->sending, NULL);
    c->wake = eventfd(0, EFD_CLOEXEC);
    c->watches = c->wake >= 0 && !pthread_create(&c->watcher, NULL, watch, c);
    if (!c->watches)
        failed = pt_fail(e, PT_FAILED, "no thread that watches the other ranks");
    if (!failed)
        failed = meet_rest(m, &c->net, e);
    if (!failed)
        failed = share_memory(c, e);
    if (failed) {
        comm_abort(&c->base, e);
        comm_close(&c->base);
        return failed;
    }
    *out = &c->base;
    return 0;
}
