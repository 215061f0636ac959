/* Ranks that exchange: every byte arrives where it should, whatever the transport and whatever pieces the moves are cut into; one that
 * fails ends all with its sentence, and one that leaves, or never comes, is named. Setting the wall clock changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "random_plan.h"
#include "sanitized.h"

#include "comm/together.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

enum { RANKS_MOST = 6, ROUNDS = 40, RUNS = SANITIZED ? 2 : 6, BYTES_MOST = 300000, MOVES_MOST = 4 };

typedef struct worker {
    together *t;
    uint64_t seed;
    int rank, failed;
    int fails_at, leaves_at; /* round; -1: never */
    pt_error e;
} worker;

static char byte_of(int round, int from, int to, size_t at) { return (char)(round * 31 + from * 7 + to * 13 + (int)(at % 251)); }

/* Bytes from one rank to another in a round; both know. */
static size_t bytes_of(uint64_t seed, int round, int from, int to)
{
    random_source r = {.seed = seed};
    r = random_fork(&r, (uint64_t)(round * 10000 + from * 100 + to));
    return random_one_in(&r, 3) ? 0 : (size_t)random_below(&r, random_one_in(&r, 4) ? BYTES_MOST : 100);
}

typedef struct buffers { char *out[RANKS_MOST], *in[RANKS_MOST]; comm_move moves[2 * RANKS_MOST * MOVES_MOST]; int n; } buffers;

/* Each side cuts as it likes. */
static void cut(buffers *b, random_source *r, int peer, char *p, size_t bytes, bool sends)
{
    for (int i = 0; i < MOVES_MOST && bytes; i++) {
        const size_t n = i == MOVES_MOST - 1 ? bytes : (size_t)random_below(r, (int)bytes + 1);
        b->moves[b->n++] = sends ? comm_send(peer, p, n) : comm_receive(peer, p, n);
        p += n;
        bytes -= n;
    }
}

static int exchange_once(worker *w, comm *c, random_source *r, int round)
{
    buffers b = {0};
    for (int p = 0; p < c->ranks; p++) {
        const size_t out = bytes_of(w->seed, round, c->rank, p), in = bytes_of(w->seed, round, p, c->rank);
        b.out[p] = malloc(out + 1);
        b.in[p] = calloc(1, in + 1);
        for (size_t i = 0; i < out; i++)
            b.out[p][i] = byte_of(round, c->rank, p, i);
        cut(&b, r, p, b.out[p], out, true);
        cut(&b, r, p, b.in[p], in, false);
    }
    int failed = comm_exchange(c, b.moves, b.n, &w->e);
    for (int p = 0; p < c->ranks; p++) {
        const size_t in = bytes_of(w->seed, round, p, c->rank);
        for (size_t i = 0; i < in && !failed; i++)
            if (b.in[p][i] != byte_of(round, p, c->rank, i))
                failed = pt_fail(&w->e, PT_FAILED, "round %d: byte %zu from rank %d to %d is another", round, i, p, c->rank);
        free(b.out[p]);
        free(b.in[p]);
    }
    return failed;
}

static int work(worker *w, comm *c)
{
    random_source r = {.seed = w->seed + (uint64_t)w->rank};
    int failed = 0;
    for (int round = 0; round < ROUNDS && !failed; round++) {
        if (round == w->leaves_at)
            return 0;
        if (round == w->fails_at)
            return pt_fail(&w->e, PT_DOES_NOT_FIT, "no memory for a test");
        failed = exchange_once(w, c, &r, round);
    }
    return failed ? failed : comm_barrier(c, &w->e);
}

static void *run(void *arg)
{
    worker *w = arg;
    comm *c = NULL;
    w->failed = together_open(w->t, w->rank, &c, &w->e);
    if (!w->failed)
        w->failed = work(w, c);
    if (w->failed && c)
        comm_abort(c, &w->e);
    comm_close(c);
    return NULL;
}

static void run_all(worker w[RANKS_MOST], together *t, int ranks, uint64_t seed)
{
    pthread_t thread[RANKS_MOST];
    for (int r = 0; r < ranks; r++) {
        w[r].t = t;
        w[r].rank = r;
        w[r].seed = seed;
        assert_int_equal(pthread_create(&thread[r], NULL, run, &w[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    together_free(t);
}

static void none(worker w[RANKS_MOST])
{
    memset(w, 0, RANKS_MOST * sizeof *w);
    for (int r = 0; r < RANKS_MOST; r++)
        w[r].fails_at = w[r].leaves_at = -1;
}

static void every_byte_arrives(void **unused)
{
    (void)unused;
    random_source r = random_open();
    for (int i = 0; i < RUNS; i++)
        for (transport by = 0; by < TRANSPORTS; by++) {
            worker w[RANKS_MOST];
            together t;
            const int ranks = random_from(&r, 2, RANKS_MOST);
            none(w);
            together_make(&t, by, ranks);
            run_all(w, &t, ranks, (uint64_t)random_below(&r, 1 << 30));
            for (int k = 0; k < ranks; k++)
                if (w[k].failed)
                    fail_msg("%s, rank %d of %d: %s", transport_names[by], k, ranks, w[k].e.text);
        }
}

static void one_that_fails_ends_all_with_its_sentence(void **unused)
{
    (void)unused;
    random_source r = random_open();
    for (transport by = 0; by < TRANSPORTS; by++) {
        worker w[RANKS_MOST];
        together t;
        const int ranks = random_from(&r, 2, RANKS_MOST), one = random_below(&r, ranks);
        none(w);
        w[one].fails_at = random_below(&r, ROUNDS);
        together_make(&t, by, ranks);
        const double begin = clock_s();
        run_all(w, &t, ranks, 1);
        for (int k = 0; k < ranks; k++)
            if (w[k].failed != PT_DOES_NOT_FIT || !strstr(w[k].e.text, "no memory for a test") ||
                (k != one && !strstr(w[k].e.text, "rank ")))
                fail_msg("%s, rank %d, while %d fails: %d, %s", transport_names[by], k, one, w[k].failed, w[k].e.text);
        assert_true(clock_s() - begin < 20);
    }
}

static void one_that_leaves_is_named(void **unused)
{
    (void)unused;
    random_source r = random_open();
    static const transport watched[] = {BY_SOCKETS, BY_BOTH}; /* who starts the ranks of BY_MEMORY watches them */
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        worker w[RANKS_MOST];
        together t;
        const int ranks = random_from(&r, 3, RANKS_MOST), one = random_below(&r, ranks);
        char name[16];
        none(w);
        w[one].leaves_at = 3;
        snprintf(name, sizeof name, "rank %d", one);
        together_make(&t, watched[i], ranks);
        run_all(w, &t, ranks, 2);
        for (int k = 0; k < ranks; k++)
            if (k != one && (!w[k].failed || !strstr(w[k].e.text, name)))
                fail_msg("%s, rank %d, while %d leaves: %d, %s", transport_names[watched[i]], k, one, w[k].failed, w[k].e.text);
    }
}

/* ---- a wall clock that is set back ---- */

static atomic_bool set_back;

/* Stands before the system's: an answer of the wall clock from before it was set back by an hour. */
int clock_gettime(clockid_t id, struct timespec *out)
{
    const int failed = (int)syscall(SYS_clock_gettime, id, out);
    if (!failed && id == CLOCK_REALTIME && atomic_load(&set_back))
        out->tv_sec += 3600;
    return failed;
}

/* A rank whose beats stop is killed after some seconds. */
static void ranks_beat_on_where_the_wall_clock_is_set_back(void **unused)
{
    (void)unused;
    enum { BEATS = 3 };
    const struct timespec moment = {.tv_nsec = 10000000};
    shm_segment *s;
    comm *c;
    pt_error e = {0};
    assert_int_equal(shm_segment_make(1, 0, &s, NULL, &e), 0);
    atomic_store(&set_back, true);
    assert_int_equal(comm_shm_open(s, 0, &c, &e), 0);
    for (const double until_s = clock_s() + 8; shm_segment_beat(s, 0) < BEATS && clock_s() < until_s;)
        nanosleep(&moment, NULL);
    assert_true(shm_segment_beat(s, 0) >= BEATS);
    atomic_store(&set_back, false);
    comm_close(c);
    shm_segment_unmap(s);
}

/* ---- how they meet ---- */

static void those_that_do_not_come_are_named(void **unused)
{
    (void)unused;
    worker w[RANKS_MOST];
    together t;
    none(w);
    together_make(&t, BY_SOCKETS, 5);
    t.meeting.seconds = 1;
    run_all(w, &t, 2, 0);
    for (int k = 0; k < 2; k++)
        if (!w[k].failed || !strstr(w[k].e.text, "ranks 2, 3 and 4 of 5 did not join within 1 s"))
            fail_msg("rank %d: %s", k, w[k].e.text);
}

/* Sends something to where rank 0 listens, again and again. */
typedef struct stranger { int port, kind; pthread_t thread; } stranger;

static void *disturb(void *arg)
{
    stranger *s = arg;
    for (int i = 0; i < 200; i++) {
        char bytes[sizeof(hello) + 40];
        int fd;
        hello h = hello_make(HELLO_CONTROL, 1, 1, 3, 1, 1); /* of another run */
        memset(bytes, 'x', sizeof bytes);
        if (s->kind == 1)
            memcpy(bytes, &h, sizeof h);
        if (!net_connect("localhost", s->port, clock_s() + 1, &fd)) {
            net_send_all(fd, bytes, s->kind == 2 ? 5 : sizeof bytes, clock_s());
            close(fd);
        }
        const struct timespec moment = {.tv_nsec = 2000000};
        nanosleep(&moment, NULL);
    }
    return NULL;
}

static void strangers_do_not_matter(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < 3; kind++) {
        worker w[RANKS_MOST];
        together t;
        none(w);
        together_make(&t, BY_SOCKETS, 3);
        stranger s = {.port = t.meeting.port, .kind = kind};
        assert_int_equal(pthread_create(&s.thread, NULL, disturb, &s), 0);
        run_all(w, &t, 3, 3);
        pthread_join(s.thread, NULL);
        for (int k = 0; k < 3; k++)
            if (w[k].failed)
                fail_msg("kind %d, rank %d: %s", kind, k, w[k].e.text);
    }
}

/* Two runs that were given the same ports: each finds its own. */
static void *run_other(void *arg)
{
    worker *w = arg;
    run_all(w, w->t, 3, 4);
    return NULL;
}

static void runs_of_the_same_ports_do_not_mix(void **unused)
{
    (void)unused;
    worker w[2][RANKS_MOST];
    together t[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        none(w[i]);
        together_make(&t[i], BY_BOTH, 3);
        w[i][0].t = &t[i];
        t[i].meeting.port = t[0].meeting.port;
        t[i].meeting.ports = 16;
        t[i].meeting.address = "0.0.0.1,localhost"; /* the first leads nowhere */
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_other, w[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++)
            if (w[i][k].failed)
                fail_msg("run %d, rank %d: %s", i, k, w[i][k].e.text);
}

/* One of this machine's own addresses leads to it. */
static void own_addresses_lead_here(void **unused)
{
    (void)unused;
    char all[400], few[12];
    net_own_addresses(all, sizeof all);
    net_own_addresses(few, sizeof few);
    assert_true(strlen(few) < sizeof few && !strchr(all, ' ') && all[0]);
    worker w[RANKS_MOST];
    together t;
    none(w);
    together_make(&t, BY_SOCKETS, 2);
    t.meeting.address = all;
    run_all(w, &t, 2, 7);
    for (int k = 0; k < 2; k++)
        if (w[k].failed)
            fail_msg("rank %d: %s, by %s", k, w[k].e.text, all);
}

typedef struct odd { together *t; void (*change)(hello *h); } odd;

/* Says something else than it should to rank 0, which listens already or will soon. */
static int say_oddly(const odd *o)
{
    hello h = hello_make(HELLO_CONTROL, o->t->meeting.key, 1, o->t->meeting.ranks, 1, 1);
    int fd;
    o->change(&h);
    while (net_connect("localhost", o->t->meeting.port, clock_s() + 1, &fd))
        ;
    net_send_all(fd, &h, sizeof h, clock_s() + 1);
    return fd;
}

static void *come_oddly(void *arg)
{
    const int fd = say_oddly(arg);
    hello_answer a;
    net_receive_all(fd, &a, sizeof a, clock_s() + 5);
    close(fd);
    return NULL;
}

static void of_another_version(hello *h) { snprintf(h->version, sizeof h->version, "0.0.1"); }
static void told_of_more_ranks(hello *h) { h->ranks = 8; }
static void another_rank_0(hello *h) { h->rank = 0; }
static void of_another_run(hello *h) { h->key++; }
static void as_it_should(hello *h) { (void)h; }

static void ranks_that_disagree_are_named(void **unused)
{
    (void)unused;
    static const struct { void (*change)(hello *h); const char *said; } cases[] = {
        {of_another_version, "is protrain 0.0.1, and rank 0 "},
        {told_of_more_ranks, "expects 8 ranks, and rank 0 expects 2"},
        {another_rank_0, "two processes have rank 0"},
        {of_another_run, "is of another run, or has another PROTRAIN_RUN_KEY"},
        {as_it_should, "rank 1 on "} /* and ended then */};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        worker w[RANKS_MOST];
        together t;
        none(w);
        together_make(&t, BY_SOCKETS, 2);
        t.meeting.seconds = 1;
        odd o = {&t, cases[i].change};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, come_oddly, &o), 0);
        run_all(w, &t, 1, 5);
        pthread_join(thread, NULL);
        if (!w[0].failed || !strstr(w[0].e.text, "rank 1 of 2 did not join") || !strstr(w[0].e.text, cases[i].said))
            fail_msg("%s: %s", cases[i].said, w[0].e.text);
    }
}

static void start_worker(worker *w, together *t, int rank, pthread_t *thread)
{
    w->t = t;
    w->rank = rank;
    w->seed = 8;
    assert_int_equal(pthread_create(thread, NULL, run, w), 0);
}

/* Whatever others say to rank 0, or stop saying, it waits for the rank itself. One that says nothing more is given up after a while. */
static void wrong_hellos_end_no_run(void **unused)
{
    (void)unused;
    static void (*const changes[])(hello *h) = {of_another_version, told_of_more_ranks, another_rank_0, of_another_run};
    worker w[RANKS_MOST];
    together t;
    pthread_t thread[2];
    none(w);
    together_make(&t, BY_SOCKETS, 2);
    start_worker(&w[0], &t, 0, &thread[0]);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        come_oddly(&(odd){&t, changes[i]});
    close(say_oddly(&(odd){&t, as_it_should})); /* as a rank does that has waited for too long: it comes again */
    const int silent = say_oddly(&(odd){&t, as_it_should});
    start_worker(&w[1], &t, 1, &thread[1]);
    for (int k = 0; k < 2; k++)
        pthread_join(thread[k], NULL);
    close(silent);
    together_free(&t);
    for (int k = 0; k < 2; k++)
        if (w[k].failed)
            fail_msg("rank %d: %s", k, w[k].e.text);
}

/* Each of the later ranks would come behind them. */
static void *meet_beside_idle_ones(void *arg)
{
    enum { IDLE = 5 };
    worker *w = arg;
    meeting m = w->t->meeting;
    meeting_result r;
    int idle[IDLE], n = 0;
    m.rank = w->rank;
    w->failed = meet(&m, &r, &w->e);
    while (!w->failed && w->rank == 1 && n < IDLE && !net_connect("127.0.0.1", net_port(r.listener), clock_s() + 1, &idle[n]))
        n++;
    if (!w->failed)
        w->failed = meet_rest(&m, &r, &w->e);
    if (!w->failed && w->rank == 1 && n < IDLE)
        w->failed = pt_fail(&w->e, PT_FAILED, "only %d idle connections", n);
    while (n)
        close(idle[--n]);
    meet_close(&r);
    return NULL;
}

static void idle_connections_delay_no_rank(void **unused)
{
    (void)unused;
    worker w[3];
    together t;
    pthread_t thread[3];
    together_make(&t, BY_SOCKETS, 3);
    const double begin = clock_s();
    for (int k = 0; k < 3; k++) {
        w[k] = (worker){.t = &t, .rank = k};
        assert_int_equal(pthread_create(&thread[k], NULL, meet_beside_idle_ones, &w[k]), 0);
    }
    for (int k = 0; k < 3; k++) {
        pthread_join(thread[k], NULL);
        if (w[k].failed)
            fail_msg("rank %d: %s", k, w[k].e.text);
    }
    assert_true(clock_s() - begin < 10); /* one after the other they would take 15 s */
    together_free(&t);
}

static void loopback_is_for_this_machine_alone(void **unused)
{
    (void)unused;
    static const char *const here[] = {"127.0.0.1", "127.0.1.1", "::1"}, *const elsewhere[] = {"10.0.0.1", "::", "fe80::1", "node1", ""};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        assert_true(net_is_loopback(here[i]));
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        assert_false(net_is_loopback(elsewhere[i]));
    char all[400];
    const int listener = net_listen("127.0.0.1", 0), port = net_port(listener);
    int fd;
    assert_true(listener >= 0);
    assert_null(net_connect("127.0.0.1", port, clock_s() + 5, &fd));
    close(fd);
    net_own_addresses(all, sizeof all);
    all[strcspn(all, ",")] = 0;
    if (all[strspn(all, "0123456789.")] == 0) /* the address of an interface, not this machine's name */
        assert_non_null(net_connect(all, port, clock_s() + 5, &fd));
    close(listener);
}

static void a_port_in_use_is_said(void **unused)
{
    (void)unused;
    const int fd = net_listen(NULL, 0);
    worker w[RANKS_MOST];
    together t;
    none(w);
    together_make(&t, BY_SOCKETS, 2);
    t.meeting.port = net_port(fd);
    t.meeting.ports = 1;
    run_all(w, &t, 1, 6);
    close(fd);
    if (!w[0].failed || !strstr(w[0].e.text, "cannot listen at port") || !strstr(w[0].e.text, "MASTER_PORT"))
        fail_msg("%s", w[0].e.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_byte_arrives),
                                       cmocka_unit_test(one_that_fails_ends_all_with_its_sentence),
                                       cmocka_unit_test(one_that_leaves_is_named),
                                       cmocka_unit_test(ranks_beat_on_where_the_wall_clock_is_set_back),
                                       cmocka_unit_test(those_that_do_not_come_are_named),
                                       cmocka_unit_test(strangers_do_not_matter),
                                       cmocka_unit_test(runs_of_the_same_ports_do_not_mix),
                                       cmocka_unit_test(own_addresses_lead_here),
                                       cmocka_unit_test(ranks_that_disagree_are_named),
                                       cmocka_unit_test(wrong_hellos_end_no_run),
                                       cmocka_unit_test(idle_connections_delay_no_rank),
                                       cmocka_unit_test(loopback_is_for_this_machine_alone),
                                       cmocka_unit_test(a_port_in_use_is_said)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
