#include "comm/meet.h"

#include "base/clock.h"
#include "comm/net.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRY_S = 3 }; /* for answers that a running rank gives at once */

/* ---- this machine ---- */

static uint64_t add_bytes(uint64_t hash, const void *p, size_t n) /* FNV-1a */
{
    for (const unsigned char *c = p; n--; c++)
        hash = (hash ^ *c) * 0x100000001b3u;
    return hash;
}

/* Identifies the running system, and the namespaces in which processes see each other. */
static uint64_t this_machine(void)
{
    char boot[64] = "";
    struct stat st[2] = {0};
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, boot, sizeof boot) < 0)
        boot[0] = 0;
    if (fd >= 0)
        close(fd);
    (void)!stat("/proc/self/ns/pid", &st[0]);
    (void)!stat("/proc/self/ns/net", &st[1]);
    const uint64_t of[] = {st[0].st_ino, st[1].st_ino};
    return add_bytes(add_bytes(0xcbf29ce484222325u, boot, sizeof boot), of, sizeof of);
}

/* ---- rank 0 ---- */

typedef struct guest { int fd; size_t n; hello h; char address[HELLO_ADDRESS_BYTES]; double until_s; } guest;
enum { GUESTS = 2 * COMM_RANKS_MOST + 32 };

typedef struct host {
    const meeting *m;
    meeting_result *r;
    guest guests[GUESTS]; /* connected, but have not said yet who they are */
    int guests_n;
} host;

static int listen_at(const meeting *m, pt_error *e)
{
    for (int i = 0; i < m->ports; i++) {
        const int fd = net_listen(m->port + i);
        if (fd >= 0)
            return fd;
    }
    if (m->ports == 1)
        return pt_fail_errno(e, PT_FAILED, "rank 0 cannot listen at port %d: another run may hold it; end that, or give another "
                             "MASTER_PORT",
                             m->port);
    return pt_fail_errno(e, PT_FAILED, "rank 0 cannot listen at any port from %d to %d: give another MASTER_PORT", m->port,
                         m->port + m->ports - 1);
}

static void turn_away(int fd, hello_verdict verdict, const char *why)
{
    const hello_answer a = hello_answer_make(verdict, why);
    net_send_all(fd, &a, sizeof a, clock_s());
    close(fd);
}

/* Tells all ranks that have come. */
static int refuse(host *x, const char *why, pt_error *e)
{
    const hello_answer a = hello_answer_make(HELLO_REFUSED, why);
    for (int r = 1; r < x->m->ranks; r++)
        if (x->r->control[r] >= 0)
            net_send_all(x->r->control[r], &a, sizeof a, clock_s());
    return pt_fail(e, PT_FAILED, "%s", why);
}

/* Does the process belong to this run, but with other settings than rank 0? */
static bool disagrees(const host *x, const hello *h, char *why, size_t room)
{
    if (strcmp(h->version, PT_VERSION))
        snprintf(why, room, "rank %d on %s is protrain %s, and rank 0 %s: install the same on all machines", h->rank, h->host, h->version,
                 PT_VERSION);
    else if (h->ranks != x->m->ranks)
        snprintf(why, room, "rank %d on %s expects %d ranks, and rank 0 expects %d: start all ranks with the same number", h->rank,
                 h->host, h->ranks, x->m->ranks);
    else if (!h->rank || (h->kind == HELLO_CONTROL ? x->r->control : x->r->data)[h->rank] >= 0)
        snprintf(why, room, "two processes have rank %d, on %s and on %s: give each process its own rank", h->rank,
                 x->r->place[h->rank].host, h->host);
    else
        return false;
    return true;
}

static void note_place(host *x, const guest *g)
{
    hello_place *p = &x->r->place[g->h.rank];
    snprintf(p->address, sizeof p->address, "%s", g->address);
    snprintf(p->host, sizeof p->host, "%s", g->h.host);
    p->port = g->h.port;
    p->machine = g->h.machine;
}

/* A guest whose hello is complete. */
static int let_in(host *x, const guest *g, pt_error *e)
{
    char why[HELLO_WHY_BYTES];
    const hello *h = &g->h;
    if (!hello_is_whole(h)) {
        close(g->fd);
        return 0;
    }
    if (h->key != x->m->key) {
        turn_away(g->fd, HELLO_OTHER_RUN, "");
        return 0;
    }
    if (disagrees(x, h, why, sizeof why)) {
        turn_away(g->fd, HELLO_REFUSED, why);
        return refuse(x, why, e);
    }
    const hello_answer taken = hello_answer_make(HELLO_TAKEN, "");
    if (!net_send_all(g->fd, &taken, sizeof taken, clock_s())) {
        close(g->fd);
        return 0;
    }
    (h->kind == HELLO_CONTROL ? x->r->control : x->r->data)[h->rank] = g->fd;
    note_place(x, g);
    return 0;
}

/* Returns whether the guest is done: let in, turned away, or silent for too long. */
static bool hear(host *x, guest *g, int *failed, pt_error *e)
{
    const ssize_t n = recv(g->fd, (char *)&g->h + g->n, sizeof g->h - g->n, 0);
    if (n > 0)
        g->n += (size_t)n;
    if (g->n == sizeof g->h) {
        *failed = let_in(x, g, e);
        return true;
    }
    const bool gone = !n || (n < 0 && errno != EAGAIN && errno != EINTR) || clock_s() > g->until_s;
    if (gone)
        close(g->fd);
    return gone;
}

static int missing(const host *x)
{
    int n = 0;
    for (int r = 1; r < x->m->ranks; r++)
        n += x->r->control[r] < 0 || x->r->data[r] < 0;
    return n;
}

/* "ranks 2, 3 and 7 of 8" */
static int fail_missing(host *x, pt_error *e)
{
    char list[160] = "", why[HELLO_WHY_BYTES];
    const int n = missing(x);
    size_t used = 0;
    for (int r = 1, i = 0; r < x->m->ranks; r++)
        if ((x->r->control[r] < 0 || x->r->data[r] < 0) && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", !i++ ? "" : i == n ? " and " : ", ", r);
    snprintf(why, sizeof why, "rank%s %s of %d did not join within %.0f s: look at the output of %s", n == 1 ? "" : "s", list, x->m->ranks,
             x->m->seconds, n == 1 ? "that rank" : "these ranks");
    return refuse(x, why, e);
}

/* Fails if a rank that had come has ended. */
static int notice_losses(host *x, pt_error *e)
{
    char byte, why[HELLO_WHY_BYTES];
    for (int r = 1; r < x->m->ranks; r++)
        if (x->r->control[r] >= 0 && !recv(x->r->control[r], &byte, 1, MSG_PEEK)) {
            snprintf(why, sizeof why, "rank %d on %s ended while the ranks gathered", r, x->r->place[r].host);
            return refuse(x, why, e);
        }
    return 0;
}

static void welcome_guests(host *x, double until_s)
{
    struct pollfd p[GUESTS + 1] = {{x->r->listener, x->guests_n < GUESTS ? POLLIN : 0, 0}};
    for (int i = 0; i < x->guests_n; i++)
        p[i + 1] = (struct pollfd){x->guests[i].fd, POLLIN, 0};
    poll(p, (nfds_t)x->guests_n + 1, (int)fmax(0, fmin(200, 1e3 * (until_s - clock_s()))));
    guest *g = &x->guests[x->guests_n];
    while (x->guests_n < GUESTS && (g->fd = net_accept(x->r->listener, g->address, sizeof g->address)) >= 0) {
        g->n = 0;
        g->until_s = clock_s() + TRY_S;
        g = &x->guests[++x->guests_n];
    }
}

static int tell_places(host *x, pt_error *e)
{
    const size_t bytes = sizeof(hello_place) * (size_t)x->m->ranks;
    const hello_answer here = hello_answer_make(HELLO_TAKEN, "");
    char why[HELLO_WHY_BYTES];
    for (int r = 1; r < x->m->ranks; r++)
        if (!net_send_all(x->r->control[r], &here, sizeof here, clock_s() + TRY_S) ||
            !net_send_all(x->r->control[r], &x->r->nonce, sizeof x->r->nonce, clock_s() + TRY_S) ||
            !net_send_all(x->r->control[r], x->r->place, bytes, clock_s() + TRY_S)) {
            snprintf(why, sizeof why, "rank %d on %s ended while the ranks gathered", r, x->r->place[r].host);
            return refuse(x, why, e);
        }
    return 0;
}

static int be_host(const meeting *m, meeting_result *r, pt_error *e)
{
    host *x = calloc(1, sizeof *x);
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    *x = (host){.m = m, .r = r};
    const hello own = hello_make(HELLO_CONTROL, m->key, 0, m->ranks, 0, this_machine());
    r->place[0].machine = own.machine;
    memcpy(r->place[0].host, own.host, sizeof own.host);
    r->listener = listen_at(m, e);
    int failed = r->listener < 0 ? PT_FAILED : 0;
    if (!failed && getrandom(&r->nonce, sizeof r->nonce, 0) != sizeof r->nonce)
        failed = pt_fail_errno(e, PT_FAILED, "no random number");
    const double until_s = clock_s() + m->seconds;
    while (!failed && missing(x)) {
        welcome_guests(x, until_s);
        for (int i = x->guests_n - 1; i >= 0 && !failed; i--)
            if (hear(x, &x->guests[i], &failed, e))
                x->guests[i] = x->guests[--x->guests_n];
        if (!failed)
            failed = notice_losses(x, e);
        if (!failed && missing(x) && clock_s() > until_s)
            failed = fail_missing(x, e);
    }
    if (!failed)
        failed = tell_places(x, e);
    for (int i = 0; i < x->guests_n; i++)
        close(x->guests[i].fd);
    free(x);
    return failed;
}

/* ---- the others ---- */

/* 1: rank 0 has accepted the connection. 0: it is not there, or not yet, and *why tells what is wrong with the connection, if anything. */
static int ask(const char *address, const hello *h, int port, int *out, const char **why, pt_error *e)
{
    hello_answer a;
    int fd;
    if ((*why = net_connect(address, port, clock_s() + TRY_S, &fd)))
        return 0;
    const double until_s = clock_s() + TRY_S;
    if (!net_send_all(fd, h, sizeof *h, until_s) || !net_receive_all(fd, &a, sizeof a, until_s) || !hello_answer_is_whole(&a) ||
        a.verdict == HELLO_OTHER_RUN) {
        close(fd);
        return 0;
    }
    if (a.verdict == HELLO_REFUSED) {
        close(fd);
        return pt_fail(e, PT_FAILED, "%s", a.why);
    }
    *out = fd;
    return 1;
}

static int fail_absent(const meeting *m, const char *why, pt_error *e)
{
    char ports[40];
    if (m->ports > 1)
        snprintf(ports, sizeof ports, "ports %d to %d", m->port, m->port + m->ports - 1);
    else
        snprintf(ports, sizeof ports, "port %d", m->port);
    return pt_fail(e, PT_FAILED, "rank 0 did not answer at %.200s, %s, within %.0f s%s%.80s%s: it was not started, has ended, or cannot be "
                   "reached from here", m->address, ports, m->seconds, why ? " (" : "", why ? why : "", why ? ")" : "");
}

/* The next address of a list; false: there are no more. */
static bool next_address(const char **list, char *out, size_t room)
{
    const size_t n = strcspn(*list, ",");
    if (!n)
        return false;
    snprintf(out, room, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

static int find_host(const meeting *m, meeting_result *r, hello *h, double until_s, int *port, pt_error *e)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    const char *why = NULL;
    for (;;) {
        for (const char *list = m->address; next_address(&list, r->reached, sizeof r->reached);)
            for (int i = 0; i < m->ports; i++) {
                const int found = ask(r->reached, h, *port = m->port + i, &r->control[0], &why, e);
                if (found)
                    return found < 0 ? found : 0;
            }
        if (clock_s() > until_s)
            return fail_absent(m, why, e);
        nanosleep(&moment, NULL);
    }
}

static int hear_places(const meeting *m, meeting_result *r, double until_s, pt_error *e)
{
    const size_t places = sizeof(hello_place) * (size_t)m->ranks;
    hello_answer a;
    const bool heard = net_receive_all(r->control[0], &a, sizeof a, until_s) && hello_answer_is_whole(&a);
    if (heard && a.verdict == HELLO_REFUSED)
        return pt_fail(e, PT_FAILED, "%s", a.why);
    if (heard && net_receive_all(r->control[0], &r->nonce, sizeof r->nonce, until_s) &&
        net_receive_all(r->control[0], r->place, places, until_s) && hello_places_are_whole(r->place, m->ranks))
        return 0;
    return pt_fail(e, PT_FAILED, "rank 0 ended or stopped responding while the ranks joined");
}

static int be_guest(const meeting *m, meeting_result *r, pt_error *e)
{
    const double until_s = clock_s() + m->seconds;
    int port = 0;
    r->listener = net_listen(0);
    if (r->listener < 0)
        return pt_fail_errno(e, PT_FAILED, "rank %d cannot listen at any port", m->rank);
    hello h = hello_make(HELLO_CONTROL, m->key, m->rank, m->ranks, net_port(r->listener), this_machine());
    int failed = find_host(m, r, &h, until_s, &port, e);
    h.kind = HELLO_DATA;
    if (!failed) {
        const char *why;
        const int found = ask(r->reached, &h, port, &r->data[0], &why, e);
        failed = found > 0 ? 0 : found < 0 ? found : pt_fail(e, PT_FAILED, "rank 0 at %.200s answered once and no more", r->reached);
    }
    /* rank 0 says who is missing; it may have started later than this rank */
    return failed ? failed : hear_places(m, r, clock_s() + m->seconds + TRY_S, e);
}

int meet(const meeting *m, meeting_result *out, pt_error *e)
{
    *out = (meeting_result){.listener = -1};
    for (int r = 0; r < COMM_RANKS_MOST; r++)
        out->data[r] = out->control[r] = -1;
    int failed = m->rank ? be_guest(m, out, e) : be_host(m, out, e);
    if (failed)
        meet_close(out);
    return failed;
}

/* ---- the rest ---- */

static int reach(const meeting *m, meeting_result *r, int peer, double until_s, pt_error *e)
{
    const hello_place *p = &r->place[peer];
    const char *address = p->address[0] ? p->address : r->reached, *why = net_connect(address, (int)p->port, until_s, &r->data[peer]);
    hello h = hello_make(HELLO_DATA, r->nonce, m->rank, m->ranks, 0, 0);
    if (!why && !net_send_all(r->data[peer], &h, sizeof h, until_s))
        why = "the connection broke";
    return !why ? 0 : pt_fail(e, PT_FAILED, "rank %d on %s cannot be reached at %s, port %u: %s; machines of a run need open ports between "
                              "them", peer, p->host, address, p->port, why);
}

static int await_rest(const meeting *m, meeting_result *r, double until_s, pt_error *e)
{
    for (int left = m->ranks - 1 - m->rank; left > 0;) {
        char address[HELLO_ADDRESS_BYTES];
        hello h;
        if (!net_wait(r->listener, POLLIN, until_s))
            return pt_fail(e, PT_FAILED, "%d of the later ranks could not connect to it within %.0f s: machines of a run need "
                           "open ports between them",
                           left, m->seconds);
        const int fd = net_accept(r->listener, address, sizeof address);
        if (fd < 0)
            continue;
        if (!net_receive_all(fd, &h, sizeof h, clock_s() + TRY_S) || !hello_is_whole(&h) || h.key != r->nonce || h.rank <= m->rank ||
            h.rank >= m->ranks || r->data[h.rank] >= 0) {
            close(fd);
            continue;
        }
        r->data[h.rank] = fd;
        left--;
    }
    return 0;
}

int meet_rest(const meeting *m, meeting_result *r, pt_error *e)
{
    const double until_s = clock_s() + m->seconds;
    int failed = 0;
    for (int peer = 1; peer < m->rank && !failed; peer++)
        failed = reach(m, r, peer, until_s, e);
    if (!failed && m->rank)
        failed = await_rest(m, r, until_s, e);
    close(r->listener);
    r->listener = -1;
    return failed;
}

static void close_one(int fd)
{
    if (fd >= 0)
        close(fd);
}

void meet_close(meeting_result *r)
{
    for (int i = 0; i < COMM_RANKS_MOST; i++) {
        close_one(r->data[i]);
        close_one(r->control[i]);
    }
    close_one(r->listener);
}
