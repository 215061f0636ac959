/* Exchanges of memory that the host has no address of (a shielded device, test_device.h): every byte arrives, from either kind of memory
 * into either, in as many rounds as the slots want, by any transport; a rank that fails ends all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "random_plan.h"
#include "sanitized.h"
#include "test_device.h"

#include "comm/staged.h"
#include "comm/together.h"

#include <pthread.h>
#include <string.h>

enum { RANKS_MOST = 5, ROUNDS = 12, RUNS = SANITIZED ? 2 : 6, PEER_BYTES = 40000, MOVES_MOST = 4, ROOM = 2 * RANKS_MOST * PEER_BYTES };

typedef struct worker { together *t; uint64_t seed; size_t slots; int rank, failed, fails_at; pt_error e; } worker;

/* A rank's two memories, each with what goes in its first half and what comes in the second, PEER_BYTES for each peer; the image of the
 * device's is the host's. */
typedef struct memories {
    device *d, *host;
    queue *q;
    char *on_device, *on_host, *image;
    comm_move moves[2 * RANKS_MOST * MOVES_MOST];
    int n;
} memories;

static char byte_of(int round, int from, int to, size_t at) { return (char)(round * 31 + from * 7 + to * 13 + (int)(at % 251)); }

/* Bytes from one rank to another in a round; both know. */
static size_t bytes_of(uint64_t seed, int round, int from, int to)
{
    random_source r = {.seed = seed};
    r = random_fork(&r, (uint64_t)(round * 10000 + from * 100 + to));
    return random_one_in(&r, 3) ? 0 : (size_t)random_below(&r, random_one_in(&r, 2) ? PEER_BYTES : 200);
}

static int copy(memories *m, void *to, const void *from, size_t bytes, pt_error *e)
{
    queue_submit(m->q, &(op){OP_COPY, .copy = {to, from, bytes}});
    return queue_sync(m->q, queue_signal(m->q), e);
}

static size_t place_of(int peer, bool comes) { return (size_t)((comes ? RANKS_MOST : 0) + peer) * PEER_BYTES; }

/* Each side cuts as it likes, and takes each piece from either memory. */
static void cut(memories *m, random_source *r, int peer, size_t bytes, bool comes, bool of_device[MOVES_MOST],
                size_t cut_at[MOVES_MOST + 1])
{
    size_t at = 0;
    for (int i = 0; i < MOVES_MOST; i++) {
        const size_t n = i == MOVES_MOST - 1 ? bytes - at : (size_t)random_below(r, (int)(bytes - at) + 1);
        of_device[i] = random_one_in(r, 2);
        char *p = (of_device[i] ? m->on_device : m->on_host) + place_of(peer, comes) + at;
        m->moves[m->n++] = comes ? (comm_move){.peer = peer, .receive = p, .receive_bytes = n, .receive_on_device = of_device[i]}
                                 : (comm_move){.peer = peer, .send = p, .send_bytes = n, .send_on_device = of_device[i]};
        cut_at[i] = at;
        at += n;
    }
    cut_at[MOVES_MOST] = bytes;
}

static int check(worker *w, const memories *m, int round, int from, const bool of_device[MOVES_MOST], const size_t cut_at[MOVES_MOST + 1])
{
    for (int i = 0; i < MOVES_MOST; i++)
        for (size_t at = cut_at[i]; at < cut_at[i + 1]; at++)
            if ((of_device[i] ? m->image : m->on_host)[place_of(from, true) + at] != byte_of(round, from, w->rank, at))
                return pt_fail(&w->e, PT_FAILED, "round %d: byte %zu from rank %d to %d is another", round, at, from, w->rank);
    return 0;
}

static int exchange_once(worker *w, comm *c, memories *m, random_source *r, int round)
{
    bool of_device[RANKS_MOST][MOVES_MOST], unused[MOVES_MOST];
    size_t cut_at[RANKS_MOST][MOVES_MOST + 1], sent_at[MOVES_MOST + 1];
    m->n = 0;
    memset(m->image, 0, ROOM);
    for (int p = 0; p < c->ranks; p++)
        for (size_t i = 0; i < bytes_of(w->seed, round, c->rank, p); i++)
            m->image[place_of(p, false) + i] = byte_of(round, c->rank, p, i);
    memcpy(m->on_host, m->image, ROOM);
    int failed = copy(m, m->on_device, m->image, ROOM, &w->e);
    for (int p = 0; p < c->ranks; p++) {
        cut(m, r, p, bytes_of(w->seed, round, c->rank, p), false, unused, sent_at);
        cut(m, r, p, bytes_of(w->seed, round, p, c->rank), true, of_device[p], cut_at[p]);
    }
    if (!failed)
        failed = comm_exchange(c, m->moves, m->n, &w->e);
    if (!failed)
        failed = copy(m, m->image, m->on_device, ROOM, &w->e);
    for (int p = 0; p < c->ranks && !failed; p++)
        failed = check(w, m, round, p, of_device[p], cut_at[p]);
    return failed;
}

static int open_memories(memories *m, pt_error *e)
{
    void *p;
    int failed = test_device_named("shielded", 1, &m->d, &m->host, e);
    if (!failed && !(failed = m->d->table->memory_open(m->d, MEMORY_DEVICE, ROOM, &p, e)))
        m->on_device = p;
    if (!failed)
        failed = m->d->table->queue_open(m->d, "test", 1, &m->q, e);
    m->on_host = calloc(1, ROOM);
    m->image = calloc(1, ROOM);
    return failed;
}

static void close_memories(memories *m)
{
    m->d->table->queue_close(m->q);
    m->d->table->memory_close(m->d, MEMORY_DEVICE, m->on_device, ROOM);
    device_close(m->d, m->host);
    free(m->on_host);
    free(m->image);
}

static int work(worker *w, comm *c, memories *m)
{
    random_source r = {.seed = w->seed + (uint64_t)w->rank};
    int failed = 0;
    for (int round = 0; round < ROUNDS && !failed; round++)
        failed = round == w->fails_at ? pt_fail(&w->e, PT_FAILED, "a test fails") : exchange_once(w, c, m, &r, round);
    return failed ? failed : comm_barrier(c, &w->e);
}

static void *run(void *arg)
{
    worker *w = arg;
    comm *inner = NULL, *c = NULL;
    memories m = {0};
    w->failed = open_memories(&m, &w->e);
    if (!w->failed)
        w->failed = together_open(w->t, w->rank, &inner, &w->e);
    if (!w->failed)
        w->failed = comm_staged_open(inner, m.d, w->slots, &c, &w->e);
    if (!w->failed)
        w->failed = work(w, c, &m);
    if (w->failed && c)
        comm_abort(c, &w->e);
    comm_close(c);
    comm_close(inner);
    close_memories(&m);
    return NULL;
}

/* fails: a rank, -1: none. */
static void run_all(random_source *r, transport by, int fails)
{
    worker w[RANKS_MOST];
    together t;
    pthread_t thread[RANKS_MOST];
    const int ranks = fails < 0 ? random_from(r, 2, RANKS_MOST) : RANKS_MOST;
    const size_t slots = (size_t)random_below(r, random_one_in(r, 2) ? 20000 : 2000000);
    const uint64_t seed = (uint64_t)random_below(r, 1 << 30);
    together_make(&t, by, ranks);
    for (int k = 0; k < ranks; k++) {
        w[k] = (worker){.t = &t, .seed = seed, .slots = slots, .rank = k, .fails_at = k == fails ? ROUNDS / 2 : -1};
        assert_int_equal(pthread_create(&thread[k], NULL, run, &w[k]), 0);
    }
    for (int k = 0; k < ranks; k++)
        pthread_join(thread[k], NULL);
    together_free(&t);
    for (int k = 0; k < ranks; k++)
        if (fails < 0 ? w[k].failed != 0 : !strstr(w[k].e.text, "a test fails"))
            fail_msg("%s, slots of %zu bytes, rank %d of %d: %s", transport_names[by], slots, k, ranks, w[k].e.text);
}

static void every_byte_arrives(void **unused)
{
    (void)unused;
    random_source r = random_open();
    for (int i = 0; i < RUNS; i++)
        for (transport by = 0; by < TRANSPORTS; by++)
            run_all(&r, by, -1);
}

static void one_that_fails_ends_all(void **unused)
{
    (void)unused;
    random_source r = random_open();
    for (transport by = 0; by < TRANSPORTS; by++)
        run_all(&r, by, random_below(&r, RANKS_MOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_byte_arrives), cmocka_unit_test(one_that_fails_ends_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
