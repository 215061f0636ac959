#include "comm/meet.h"

#include "base/clock.h"
#include "comm/guests.h"
#include "comm/net.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRY_S = 3, GONE_S = 5 }; /* for answers that a running rank gives at once; for one that was there and may come back */

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

/* ---- addresses ---- */

/* The next address of a list; false: there are no more. */
static bool next_address(const char **list, char *out, size_t room)
{
    const size_t n = strcspn(*list, ",");
    if (!n)
        return false;
    snprintf(out, room, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    if (!strcasecmp(out, "localhost"))
        snprintf(out, room, "127.0.0.1"); /* all ranks mean the same one */
    return true;
}

/* Listens at this machine's own address alone if the ranks reach each other there, else at all. */
static int listen_for(const meeting *m, int port)
{
    char first[256], address[256];
    const char *list = m->address;
    bool here = list && next_address(&list, first, sizeof first) && net_is_loopback(first);
    while (here && next_address(&list, address, sizeof address))
        here = net_is_loopback(address);
    return net_listen(here ? first : NULL, port);
}

/* ---- rank 0 ---- */

enum { SAID_BYTES = 2 * HELLO_WHY_BYTES };

typedef struct host {
    const meeting *m;
    meeting_result *r;
    guests guests;
    double half_s[COMM_RANKS_MOST]; /* until when a rank that has come with its first connection has to come with its second */
    char remark[COMM_RANKS_MOST][HELLO_WHY_BYTES]; /* what was wrong with the last one that said to be this rank; "": nothing */
} host;

static int listen_at(const meeting *m, pt_error *e)
{
    for (int i = 0; i < m->ports; i++) {
        const int fd = listen_for(m, m->port + i);
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

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Until it comes again. */
static void give_up(host *x, int rank)
{
    close_one(&x->r->control[rank]);
    close_one(&x->r->data[rank]);
}

/* Gives up ranks that have ended, or asked again because this process was stopped, and those that have not come with both connections. */
static void notice_losses(host *x)
{
    for (int r = 1; r < x->m->ranks; r++) {
        const int control = x->r->control[r], data = x->r->data[r];
        if (control < 0)
            continue;
        const bool lost = net_is_closed(control) || (data >= 0 && net_is_closed(data));
        if (lost)
            snprintf(x->remark[r], sizeof x->remark[r], "rank %d on %s ended while the ranks gathered", r, x->r->place[r].host);
        if (lost || (data < 0 && clock_s() > x->half_s[r]))
            give_up(x, r);
    }
}

/* Does the process belong to this run, but with other settings than rank 0? */
static bool disagrees(host *x, const hello *h)
{
    char *why = x->remark[h->rank];
    const size_t room = sizeof x->remark[h->rank];
    if (strcmp(h->version, PT_VERSION))
        snprintf(why, room, "rank %d on %s is protrain %s, and rank 0 %s: install the same on all machines", h->rank, h->host, h->version,
                 PT_VERSION);
    else if (h->ranks != x->m->ranks)
        snprintf(why, room, "rank %d on %s expects %d ranks, and rank 0 expects %d: start all ranks with the same number", h->rank,
                 h->host, h->ranks, x->m->ranks);
    else if (!h->rank)
        snprintf(why, room, "two processes have rank 0, on %s and on %s: give each process its own rank", x->r->place[0].host, h->host);
    else
        return false;
    return true;
}

/* Is it the process that has this rank's first connection? */
static bool is_same(const hello_place *p, const hello *h) { return p->machine == h->machine && p->port == h->port; }

/* Has this rank no connection of the kind, and its first one before its second? */
static bool is_next(host *x, const hello *h)
{
    const hello_place *p = &x->r->place[h->rank];
    notice_losses(x);
    if (h->kind == HELLO_DATA)
        return x->r->control[h->rank] >= 0 && x->r->data[h->rank] < 0 && is_same(p, h);
    const bool free = x->r->control[h->rank] < 0;
    if (!free)
        snprintf(x->remark[h->rank], sizeof x->remark[h->rank],
                 "two processes have rank %d, on %s and on %s: give each process its own rank", h->rank, p->host, h->host);
    return free;
}

static void note_place(host *x, const guest *g)
{
    hello_place *p = &x->r->place[g->h.rank];
    snprintf(p->address, sizeof p->address, "%s", g->address);
    snprintf(p->host, sizeof p->host, "%s", g->h.host);
    p->port = g->h.port;
    p->machine = g->h.machine;
    x->half_s[g->h.rank] = clock_s() + GUEST_S;
}

static void let_in(host *x, const guest *g)
{
    const hello *h = &g->h;
    const hello_answer taken = hello_answer_make(HELLO_TAKEN, "");
    if (net_is_closed(g->fd)) { /* its rank has waited for too long, and asks again */
        close(g->fd);
    } else if (h->key != x->m->key) {
        if (!x->remark[h->rank][0])
            snprintf(x->remark[h->rank], sizeof x->remark[h->rank], "rank %d on %s is of another run, or has another PROTRAIN_RUN_KEY",
                     h->rank, h->host);
        turn_away(g->fd, HELLO_OTHER_RUN, "");
    } else if (disagrees(x, h)) {
        turn_away(g->fd, HELLO_REFUSED, x->remark[h->rank]);
    } else if (!is_next(x, h)) {
        turn_away(g->fd, HELLO_LATER, x->remark[h->rank]);
    } else if (!net_send_all(g->fd, &taken, sizeof taken, clock_s())) {
        close(g->fd);
    } else {
        (h->kind == HELLO_CONTROL ? x->r->control : x->r->data)[h->rank] = g->fd;
        if (h->kind == HELLO_CONTROL)
            note_place(x, g);
    }
}

static bool is_missing(const host *x, int rank) { return x->r->control[rank] < 0 || x->r->data[rank] < 0; }

static int missing(const host *x)
{
    int n = 0;
    for (int r = 1; r < x->m->ranks; r++)
        n += is_missing(x, r);
    return n;
}

/* Of one that is missing; otherwise of a number that no other process should have. "": none. */
static const char *find_remark(const host *x)
{
    for (int r = 1; r < x->m->ranks; r++)
        if (is_missing(x, r) && x->remark[r][0])
            return x->remark[r];
    for (int r = 0; r < COMM_RANKS_MOST; r++)
        if ((!r || r >= x->m->ranks) && x->remark[r][0])
            return x->remark[r];
    return "";
}

/* "ranks 2, 3 and 7 of 8" */
static int fail_missing(host *x, pt_error *e)
{
    char list[160] = "", why[SAID_BYTES];
    const char *remark = find_remark(x);
    const int n = missing(x);
    size_t used = 0;
    for (int r = 1, i = 0; r < x->m->ranks; r++)
        if (is_missing(x, r) && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", !i++ ? "" : i == n ? " and " : ", ", r);
    snprintf(why, sizeof why, "rank%s %s of %d did not join within %.0f s: %s%s", n == 1 ? "" : "s", list, x->m->ranks, x->m->seconds,
             remark[0] ? remark : "look at the output of ", remark[0] ? "" : n == 1 ? "that rank" : "these ranks");
    return refuse(x, why, e);
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

static int gather(host *x, pt_error *e)
{
    const double until_s = clock_s() + x->m->seconds;
    guest g;
    while (missing(x)) {
        const bool late = clock_s() > until_s; /* what came while this process was stopped is heard once more */
        guests_wait(&x->guests, until_s);
        while (guests_next(&x->guests, &g))
            let_in(x, &g);
        notice_losses(x);
        if (late && missing(x))
            return fail_missing(x, e);
    }
    return tell_places(x, e);
}

static int be_host(const meeting *m, meeting_result *r, pt_error *e)
{
    host *x = calloc(1, sizeof *x);
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    x->m = m;
    x->r = r;
    const hello own = hello_make(HELLO_CONTROL, m->key, 0, m->ranks, 0, this_machine());
    r->place[0].machine = own.machine;
    memcpy(r->place[0].host, own.host, sizeof own.host);
    x->guests.listener = r->listener = listen_at(m, e);
    int failed = r->listener < 0 ? PT_FAILED : 0;
    if (!failed && getrandom(&r->nonce, sizeof r->nonce, 0) != sizeof r->nonce)
        failed = pt_fail_errno(e, PT_FAILED, "no random number");
    if (!failed)
        failed = gather(x, e);
    guests_close(&x->guests);
    free(x);
    return failed;
}

/* ---- the others ---- */

typedef struct search {
    const meeting *m;
    meeting_result *r;
    int port;                   /* at which rank 0 was found */
    const char *unreachable;    /* what is wrong with the last connection, NULL: nothing */
    char said[HELLO_WHY_BYTES]; /* why rank 0 does not take this rank now, "": it has not said so */
} search;

/* 1: rank 0 has accepted the connection. 0: it is not there, or not now. */
static int ask(search *s, const hello *h, int port, int *out, pt_error *e)
{
    hello_answer a;
    int fd;
    if ((s->unreachable = net_connect(s->r->reached, port, clock_s() + TRY_S, &fd)))
        return 0;
    const double until_s = clock_s() + TRY_S;
    const bool answered = net_send_all(fd, h, sizeof *h, until_s) && net_receive_all(fd, &a, sizeof a, until_s) &&
                          hello_answer_is_whole(&a);
    if (answered && a.verdict == HELLO_TAKEN) {
        *out = fd;
        s->port = port;
        return 1;
    }
    close(fd);
    if (answered && a.verdict == HELLO_REFUSED)
        return pt_fail(e, PT_FAILED, "%s", a.why);
    if (answered && a.verdict == HELLO_LATER)
        snprintf(s->said, sizeof s->said, "%s", a.why);
    else if (answered && s->m->ports == 1)
        snprintf(s->said, sizeof s->said, "another run answers there, or one with another PROTRAIN_RUN_KEY");
    return 0;
}

static int fail_absent(const search *s, pt_error *e)
{
    const meeting *m = s->m;
    const char *why = s->unreachable;
    char ports[40];
    if (m->ports > 1)
        snprintf(ports, sizeof ports, "ports %d to %d", m->port, m->port + m->ports - 1);
    else
        snprintf(ports, sizeof ports, "port %d", m->port);
    if (s->said[0])
        return pt_fail(e, PT_FAILED, "rank 0 at %.200s, %s, did not let this rank in within %.0f s: %.200s", m->address, ports, m->seconds,
                       s->said);
    return pt_fail(e, PT_FAILED, "rank 0 did not answer at %.200s, %s, within %.0f s%s%.80s%s: it was not started, has ended, or cannot be "
                   "reached from here", m->address, ports, m->seconds, why ? " (" : "", why ? why : "", why ? ")" : "");
}

static void pause_moment(void)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    nanosleep(&moment, NULL);
}

static int find_host(search *s, const hello *h, double until_s, pt_error *e)
{
    const meeting *m = s->m;
    for (;;) {
        for (const char *list = m->address; next_address(&list, s->r->reached, sizeof s->r->reached);)
            for (int i = 0; i < m->ports; i++) {
                const int found = ask(s, h, m->port + i, &s->r->control[0], e);
                if (found)
                    return found;
            }
        if (clock_s() > until_s)
            return fail_absent(s, e);
        pause_moment();
    }
}

/* Where it was found before: it was stopped for a while, or has given this rank up. It is gone if nobody listens there for some time. */
static int find_again(search *s, const hello *h, double until_s, pt_error *e)
{
    for (double gone_s = clock_s() + GONE_S; clock_s() < fmin(until_s, gone_s); pause_moment()) {
        const int found = ask(s, h, s->port, &s->r->control[0], e);
        if (found)
            return found;
        if (!s->unreachable)
            gone_s = clock_s() + GONE_S;
    }
    return pt_fail(e, PT_FAILED, "rank 0 ended or stopped responding while the ranks joined");
}

/* 1: they have come. 0: the connection is lost. */
static int hear_places(const search *s, pt_error *e)
{
    meeting_result *r = s->r;
    const double until_s = clock_s() + s->m->seconds + TRY_S; /* rank 0 says who is missing; it may have started later than this rank */
    const size_t places = sizeof(hello_place) * (size_t)s->m->ranks;
    hello_answer a;
    const bool heard = net_receive_all(r->control[0], &a, sizeof a, until_s) && hello_answer_is_whole(&a);
    if (heard && a.verdict == HELLO_REFUSED)
        return pt_fail(e, PT_FAILED, "%s", a.why);
    return heard && net_receive_all(r->control[0], &r->nonce, sizeof r->nonce, until_s) &&
           net_receive_all(r->control[0], r->place, places, until_s) && hello_places_are_whole(r->place, s->m->ranks);
}

/* The second connection, and what rank 0 says when all have come. 1: done; 0: from the beginning. */
static int stay(search *s, hello h, pt_error *e)
{
    h.kind = HELLO_DATA;
    int done = ask(s, &h, s->port, &s->r->data[0], e);
    if (done > 0)
        done = hear_places(s, e);
    if (!done) {
        close_one(&s->r->control[0]);
        close_one(&s->r->data[0]);
    }
    return done;
}

static int be_guest(const meeting *m, meeting_result *r, pt_error *e)
{
    const double until_s = clock_s() + m->seconds;
    search s = {.m = m, .r = r};
    r->listener = listen_for(m, 0);
    if (r->listener < 0)
        return pt_fail_errno(e, PT_FAILED, "rank %d cannot listen at any port", m->rank);
    const hello h = hello_make(HELLO_CONTROL, m->key, m->rank, m->ranks, net_port(r->listener), this_machine());
    int done = find_host(&s, &h, until_s, e);
    while (done > 0 && !(done = stay(&s, h, e)))
        done = find_again(&s, &h, until_s, e);
    return done < 0 ? done : 0;
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

static bool is_awaited(const meeting *m, const meeting_result *r, const hello *h)
{
    return h->key == r->nonce && h->rank > m->rank && h->rank < m->ranks && r->data[h->rank] < 0;
}

static int await_rest(const meeting *m, meeting_result *r, double until_s, pt_error *e)
{
    int left = m->ranks - 1 - m->rank, failed = 0;
    guests *g = calloc(1, sizeof *g);
    guest x;
    if (!g)
        return pt_fail(e, PT_FAILED, "out of memory");
    g->listener = r->listener;
    while (left && !failed) {
        const bool late = clock_s() > until_s;
        guests_wait(g, until_s);
        while (guests_next(g, &x)) {
            const bool awaited = is_awaited(m, r, &x.h);
            left -= awaited;
            if (awaited)
                r->data[x.h.rank] = x.fd;
            else
                close(x.fd);
        }
        if (left && late)
            failed = pt_fail(e, PT_FAILED, "%d of the later ranks could not connect to it within %.0f s: machines of a run need "
                             "open ports between them", left, m->seconds);
    }
    guests_close(g);
    free(g);
    return failed;
}

int meet_rest(const meeting *m, meeting_result *r, pt_error *e)
{
    const double until_s = clock_s() + m->seconds;
    int failed = 0;
    for (int peer = 1; peer < m->rank && !failed; peer++)
        failed = reach(m, r, peer, until_s, e);
    if (!failed && m->rank)
        failed = await_rest(m, r, until_s, e);
    close_one(&r->listener);
    return failed;
}

void meet_close(meeting_result *r)
{
    for (int i = 0; i < COMM_RANKS_MOST; i++) {
        close_one(&r->data[i]);
        close_one(&r->control[i]);
    }
    close_one(&r->listener);
}
