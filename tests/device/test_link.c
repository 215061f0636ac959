/* GPUs that exchange by themselves (device/link.h): every byte arrives, from one rank to itself and between as many as there are GPUs; a
 * rank that waits for one that does not come gives up when it is told to. On the GPUs that PROTRAIN_TEST_DEVICE stands for; without NCCL
 * nothing is shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "device/link.h"
#include "random_plan.h"
#include "test_device.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RANKS_MOST = 4, ROUNDS = 10, MOVES = 3, BYTES = 1 << 18 };

typedef struct worker {
    unsigned char id[LINK_ID_BYTES];
    uint64_t seed;
    int rank, ranks, failed, rounds;
    atomic_bool over;
    pt_error e;
} worker;

/* What goes lies in the first half of both memories, what comes in the second; so many bytes for each move with a peer. */
typedef struct memories { device *d, *host; queue *q; unsigned char *on_device, *on_host; } memories;

static size_t place_of(bool comes, int peer, int i) { return (size_t)(((comes ? RANKS_MOST : 0) + peer) * MOVES + i) * BYTES; }

enum { ROOM = 2 * RANKS_MOST * MOVES * BYTES };

/* Of a move between two; both know. */
static size_t bytes_of(const worker *w, int round, int from, int to, int i)
{
    random_source r = {.seed = w->seed};
    r = random_fork(&r, (uint64_t)(((round * 10 + from) * 10 + to) * 10 + i));
    return random_one_in(&r, 4) ? 0 : (size_t)random_below(&r, random_one_in(&r, 2) ? BYTES : 300);
}

static unsigned char byte_of(int round, int from, int to, size_t at)
{
    return (unsigned char)(round * 31 + from * 7 + to * 13 + (int)(at % 251));
}

static int open_memories(memories *m, int rank, pt_error *e)
{
    char name[16];
    void *p = NULL;
    snprintf(name, sizeof name, "cuda:%d", rank);
    int failed = test_device_named(name, 1, &m->d, &m->host, e);
    if (!failed)
        failed = m->d->table->memory_open(m->d, MEMORY_DEVICE, ROOM, &p, e);
    m->on_device = p;
    if (!failed)
        failed = m->d->table->queue_open(m->d, "test", 1, &m->q, e);
    m->on_host = calloc(1, ROOM);
    return failed;
}

static void close_memories(memories *m)
{
    if (m->d) {
        m->d->table->queue_close(m->q);
        m->d->table->memory_close(m->d, MEMORY_DEVICE, m->on_device, ROOM);
    }
    device_close(m->d, m->host);
    free(m->on_host);
}

static int copy(memories *m, void *to, const void *from, pt_error *e)
{
    queue_submit(m->q, &(op){OP_COPY, .copy = {to, from, ROOM}});
    return queue_sync(m->q, queue_signal(m->q), e);
}

static int list_moves(const worker *w, const memories *m, int round, comm_move moves[RANKS_MOST * MOVES])
{
    int n = 0;
    memset(m->on_host, 0, ROOM);
    for (int peer = 0; peer < w->ranks; peer++)
        for (int i = 0; i < MOVES; i++) {
            const size_t out = bytes_of(w, round, w->rank, peer, i), in = bytes_of(w, round, peer, w->rank, i);
            moves[n++] = (comm_move){peer, m->on_device + place_of(false, peer, i), out, m->on_device + place_of(true, peer, i), in,
                                     true, true};
            for (size_t at = 0; at < out; at++)
                m->on_host[place_of(false, peer, i) + at] = byte_of(round, w->rank, peer, at);
        }
    return n;
}

static int check(worker *w, const memories *m, int round)
{
    for (int peer = 0; peer < w->ranks; peer++)
        for (int i = 0; i < MOVES; i++)
            for (size_t at = 0, n = bytes_of(w, round, peer, w->rank, i); at < n; at++)
                if (m->on_host[place_of(true, peer, i) + at] != byte_of(round, peer, w->rank, at))
                    return pt_fail(&w->e, PT_FAILED, "round %d: byte %zu from rank %d to %d is another", round, at, peer, w->rank);
    return 0;
}

static bool is_over(void *over) { return atomic_load((atomic_bool *)over); }

static void *run(void *arg)
{
    worker *w = arg;
    memories m = {0};
    comm_move moves[RANKS_MOST * MOVES];
    device_link *l = NULL;
    const link_table *t = NULL;
    w->failed = open_memories(&m, w->rank, &w->e);
    if (!w->failed) {
        t = device_links(m.d);
        w->failed = t->open(m.d, w->id, w->rank, w->ranks, (link_watch){is_over, &w->over}, &l, &w->e);
    }
    for (int round = 0; round < w->rounds && !w->failed; round++) {
        const int n = list_moves(w, &m, round, moves);
        w->failed = copy(&m, m.on_device, m.on_host, &w->e);
        if (!w->failed)
            w->failed = t->exchange(l, moves, n, &w->e);
        if (!w->failed)
            w->failed = copy(&m, m.on_host, m.on_device, &w->e);
        if (!w->failed)
            w->failed = check(w, &m, round);
    }
    if (l)
        t->close(l);
    close_memories(&m);
    return NULL;
}

/* GPUs, 0: there is no NCCL, or none of them. */
static int gpus_with_links(const link_table **links)
{
    char name[LINK_NAME_BYTES];
    gpu_list g;
    device *d, *host;
    pt_error e = {0};
    if (strcmp(test_device_name(), "cuda") != 0 || device_gpus("cuda", &g, &e))
        return 0;
    assert_int_equal(test_device_named("cuda:0", 1, &d, &host, &e), 0);
    *links = device_links(d);
    device_close(d, host);
    if (*links && !(*links)->load(name, &e))
        return g.n < RANKS_MOST ? g.n : RANKS_MOST;
    printf("nothing is shown: %s\n", e.text);
    return 0;
}

/* come: how many of them do. rounds: of the first; the others take more. */
static void run_all(const link_table *links, worker w[RANKS_MOST], int ranks, int come, int rounds, double over_after_s)
{
    pthread_t thread[RANKS_MOST];
    unsigned char id[LINK_ID_BYTES];
    pt_error e = {0};
    if (links->make_id(id, &e))
        fail_msg("%s", e.text);
    for (int r = 0; r < come; r++) {
        memset(&w[r], 0, sizeof w[r]);
        memcpy(w[r].id, id, sizeof id);
        w[r].rank = r;
        w[r].ranks = ranks;
        w[r].seed = 51;
        w[r].rounds = r ? ROUNDS : rounds;
        assert_int_equal(pthread_create(&thread[r], NULL, run, &w[r]), 0);
    }
    if (over_after_s > 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(over_after_s * 1e9)}, NULL);
    for (int r = 0; r < come && over_after_s > 0; r++)
        atomic_store(&w[r].over, true);
    for (int r = 0; r < come; r++)
        pthread_join(thread[r], NULL);
}

static void every_byte_arrives(void **unused)
{
    (void)unused;
    const link_table *links = NULL;
    const int gpus = gpus_with_links(&links);
    for (int ranks = 1; ranks <= gpus; ranks++) {
        worker w[RANKS_MOST];
        run_all(links, w, ranks, ranks, ROUNDS, 0);
        for (int r = 0; r < ranks; r++)
            if (w[r].failed)
                fail_msg("rank %d of %d: %s", r, ranks, w[r].e.text);
    }
}

/* The first does not come, or comes and exchanges less than the others. */
static void who_waits_in_vain_gives_up_when_told_to(void **unused)
{
    (void)unused;
    const link_table *links = NULL;
    const int gpus = gpus_with_links(&links);
    worker w[RANKS_MOST];
    if (gpus < 2)
        return;
    run_all(links, w, gpus + 1, gpus, ROUNDS, 0.5);
    for (int r = 0; r < gpus; r++)
        if (!strstr(w[r].e.text, "the run ended while"))
            fail_msg("rank %d: %s", r, w[r].e.text);
    run_all(links, w, gpus, gpus, ROUNDS / 2, 0.9);
    for (int r = 1; r < gpus; r++)
        if (!strstr(w[r].e.text, "the run ended while"))
            fail_msg("rank %d: %s", r, w[r].e.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_byte_arrives), cmocka_unit_test(who_waits_in_vain_gives_up_when_told_to)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
