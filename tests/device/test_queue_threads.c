/* The threads of queues: when they get a processor, the time that they work and wait, and who is woken. */
#include "base/rng.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/queues.h"

/* The system's struct sched_attr as it was at first: policy, flags, nice and priority, then the slice in ns and what others have. */
typedef struct slice { uint32_t size, policy, other[4]; uint64_t ns[3]; } slice;

/* Of a thread of this process; 0: the system tells none, or does not let it be set. */
static uint64_t slice_of(long thread)
{
    slice s = {.size = sizeof s};
    const bool usual = !syscall(SYS_sched_getattr, thread, &s, sizeof s, 0) && s.policy == SCHED_OTHER;
    return usual && s.ns[0] && !syscall(SYS_sched_setattr, thread, &s, 0) ? s.ns[0] : 0;
}

static long thread_named(const char *name)
{
    DIR *d = opendir("/proc/self/task");
    long found = 0;
    for (struct dirent *t; d && !found && (t = readdir(d));) {
        char path[320], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", t->d_name);
        FILE *f = fopen(path, "re");
        if (f && fgets(text, sizeof text, f) && !strncmp(text, name, strlen(name)))
            found = atol(t->d_name);
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return found;
}

/* The thread of a queue that has several for its work has the usual slice, one that is alone a shorter one. */
static void a_queue_of_one_thread_gets_a_processor_soon(void **state)
{
    device *d = open_device(2);
    queue *moves = open_queue(d, "moves", 1), *computes = open_queue(d, "computes", 2);
    assert_int_equal(queue_sync(moves, queue_signal(moves), NULL) | queue_sync(computes, queue_signal(computes), NULL), 0);
    const uint64_t usual = slice_of(0), moving = slice_of(thread_named("moves")), computing = slice_of(thread_named("computes"));
    d->table->queue_close(moves);
    d->table->queue_close(computes);
    d->table->close(d);
    if (usual <= 200000) /* none, or as short by itself */
        skip();
    assert_true(computing == usual && moving == 200000);
}

/* Not while it waits. */
static void a_queue_tells_the_time_that_its_threads_worked(void **state)
{
    device *d = open_device(1);
    queue *q = open_queue(d, "work", 2), *other = open_queue(d, "other", 1);
    static char buffer[64 << 20];
    int64_t work[4] = {0}, ns[2] = {0};
    queue_mark(q, &ns[0]);
    queue_mark_work(q, &work[0]);
    submit_zero(q, buffer, sizeof buffer);
    queue_mark_work(q, &work[1]);
    queue_mark(q, &ns[1]);
    assert_int_equal(queue_sync(q, queue_signal(q), NULL), 0);
    assert_int_equal(q->threads, 2);
    assert_in_range(work[1] - work[0], 1, 2 * (ns[1] - ns[0]) + (ns[1] - ns[0]) / 25); /* two clocks */
    for (int i = 0; i < 8; i++)
        submit_zero(other, buffer, sizeof buffer);
    queue_mark_work(q, &work[2]);
    queue_wait(q, other, queue_signal(other));
    queue_mark_work(q, &work[3]);
    assert_int_equal(queue_sync(q, queue_signal(q), NULL), 0);
    assert_true(work[3] - work[2] < work[1] - work[0]);
    d->table->queue_close(other);
    d->table->queue_close(q);
    d->table->close(d);
}

/* Two queues on one processor have it in turn. */
static void a_queue_tells_the_time_that_others_kept_it_waiting(void **state)
{
    cpu_set_t before, one;
    static char buffer[2][64 << 20];
    int64_t waited[2][2] = {{0}};
    if (access("/proc/self/schedstat", R_OK) || sched_getaffinity(0, sizeof before, &before))
        skip();
    CPU_ZERO(&one);
    for (int cpu = 0; !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    device *d = open_device(1);
    queue *q[2] = {open_queue(d, "one", 1), open_queue(d, "other", 1)};
    for (int k = 0; k < 2; k++)
        queue_mark_waited(q[k], &waited[k][0]);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 2; k++)
            submit_zero(q[k], buffer[k], sizeof buffer[k]);
    for (int k = 0; k < 2; k++)
        queue_mark_waited(q[k], &waited[k][1]);
    for (int k = 0; k < 2; k++)
        assert_int_equal(queue_sync(q[k], queue_signal(q[k]), NULL), 0);
    assert_true(waited[0][1] >= waited[0][0] && waited[1][1] >= waited[1][0]);
    assert_true(waited[0][1] - waited[0][0] + waited[1][1] - waited[1][0] > 1000000);
    for (int k = 0; k < 2; k++)
        d->table->queue_close(q[k]);
    d->table->close(d);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* ---- who waits is woken, and nobody else ---- */

enum { WAITERS = 6, WAIT_ROUNDS = 4000, SIGNALS = 5, HANGS_S = 300 };

typedef struct waiting {
    queue *q;
    uint64_t seed;
    pthread_barrier_t begins, ends;
    atomic_ullong first; /* the first of the round's SIGNALS values */
} waiting;

typedef struct waiter { waiting *all; uint32_t n; pthread_t thread; } waiter;

/* For one of the values of each round. */
static void *wait_each_round(void *arg)
{
    const waiter *w = arg;
    for (uint64_t round = 0; round < WAIT_ROUNDS; round++) {
        uint32_t v[4];
        rng_words(w->all->seed, RNG_TEST, 1 + w->n, round, v);
        pthread_barrier_wait(&w->all->begins);
        queue_sync(w->all->q, atomic_load(&w->all->first) + v[0] % SIGNALS, NULL);
        pthread_barrier_wait(&w->all->ends);
    }
    return NULL;
}

/* Between signals the queue computes for nothing up to some tens of microseconds: waiters look, go to sleep or sleep. */
static void signal_a_round(const waiting *w, uint64_t round)
{
    static char block[1 << 18];
    for (uint32_t i = 0; i < SIGNALS; i++) {
        uint32_t v[4];
        rng_words(w->seed, RNG_TEST, 0, round * SIGNALS + i, v);
        if (v[0] % 4)
            submit_zero(w->q, block, v[1] % (v[0] % 4 == 1 ? sizeof block : 1 << 14));
        assert_int_equal(queue_signal(w->q), atomic_load(&w->first) + i);
    }
}

/* After a round's last signal nothing comes that would wake whom a signal forgot: it would sleep on, and the alarm ends the program. */
static void all_who_wait_for_any_value_are_woken(void **state)
{
    device *d = open_device(1);
    waiting all = {.q = open_queue(d, "signals", 1), .seed = (uint64_t)clock_ns()};
    waiter waiters[WAITERS];
    print_message("seed %llu\n", (unsigned long long)all.seed);
    pthread_barrier_init(&all.begins, NULL, WAITERS + 1);
    pthread_barrier_init(&all.ends, NULL, WAITERS + 1);
    atomic_store(&all.first, queue_signal(all.q) + 1);
    alarm(HANGS_S);
    for (uint32_t i = 0; i < WAITERS; i++) {
        waiters[i] = (waiter){.all = &all, .n = i};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_each_round, &waiters[i]), 0);
    }
    for (uint64_t round = 0; round < WAIT_ROUNDS; round++) {
        pthread_barrier_wait(&all.begins);
        signal_a_round(&all, round);
        pthread_barrier_wait(&all.ends);
        atomic_fetch_add(&all.first, SIGNALS);
    }
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
    alarm(0);
    pthread_barrier_destroy(&all.begins);
    pthread_barrier_destroy(&all.ends);
    d->table->queue_close(all.q);
    d->table->close(d);
}

static long times_asleep(void)
{
    struct rusage now;
    getrusage(RUSAGE_THREAD, &now);
    return now.ru_nvcsw;
}

/* The signal comes about when the waiter has looked for it long enough and goes to sleep: later where it did not sleep, sooner where it
 * did. There is no other signal. */
static void who_is_about_to_sleep_is_woken(void **state)
{
    enum { ROUNDS = 30000, MOST = 16 << 20, CHANGE = 1 << 15 };
    device *d = open_device(1);
    queue *q = open_queue(d, "signals", 1);
    char *block = open_memory(d, MOST);
    const uint64_t seed = (uint64_t)clock_ns();
    long slept = 0, before = times_asleep();
    uint32_t bytes = MOST / 16;
    print_message("seed %llu\n", (unsigned long long)seed);
    alarm(HANGS_S);
    const int64_t enough = clock_ns() + 60ll * 1000000000; /* of a busy machine, where threads wait for their turn */
    uint64_t round = 0;
    for (; round < ROUNDS && clock_ns() < enough; round++) {
        uint32_t v[4];
        rng_words(seed, RNG_TEST, 0, round, v);
        submit_zero(q, block, bytes);
        assert_int_equal(queue_sync(q, queue_signal(q), NULL), 0);
        const long now = times_asleep();
        const uint32_t change = v[0] % CHANGE;
        bytes = now > before ? bytes - (change < bytes ? change : 0) : bytes + change < MOST ? bytes + change : bytes;
        slept += now > before;
        before = now;
    }
    alarm(0);
    print_message("asleep in %ld of %llu rounds\n", slept, (unsigned long long)round);
    d->table->queue_close(q);
    d->table->memory_close(d, MEMORY_HOST, block, MOST);
    d->table->close(d);
}

typedef struct sleeper { queue *q; uint64_t value; long times; pthread_t thread; } sleeper;

static void *count_sleeps(void *arg)
{
    sleeper *s = arg;
    const long before = times_asleep();
    queue_sync(s->q, s->value, NULL);
    s->times = times_asleep() - before;
    return NULL;
}

/* Each signal comes long enough after the one before for a sleeper to have gone to sleep again. The farthest begins to wait first. */
static void who_waits_for_a_far_value_sleeps_through_the_signals_before_it(void **state)
{
    enum { SLEEPERS = 4, APART = 500, BYTES = 1 << 20 };
    static char block[BYTES];
    device *d = open_device(1);
    queue *q = open_queue(d, "signals", 1);
    sleeper sleepers[SLEEPERS];
    const uint64_t first = queue_signal(q);
    alarm(HANGS_S);
    for (uint64_t i = 0; i < SLEEPERS; i++) {
        sleepers[i] = (sleeper){.q = q, .value = first + APART * (SLEEPERS - i)};
        assert_int_equal(pthread_create(&sleepers[i].thread, NULL, count_sleeps, &sleepers[i]), 0);
    }
    for (int i = 0; i < APART * SLEEPERS; i++) {
        submit_zero(q, block, BYTES);
        queue_signal(q);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        assert_int_equal(pthread_join(sleepers[i].thread, NULL), 0);
        print_message("%d signals: asleep %ld times\n", APART * (SLEEPERS - i), sleepers[i].times);
        assert_in_range(sleepers[i].times, 0, APART / 5);
    }
    alarm(0);
    d->table->queue_close(q);
    d->table->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_of_one_thread_gets_a_processor_soon),
        cmocka_unit_test(a_queue_tells_the_time_that_its_threads_worked),
        cmocka_unit_test(a_queue_tells_the_time_that_others_kept_it_waiting),
        cmocka_unit_test(all_who_wait_for_any_value_are_woken),
        cmocka_unit_test(who_is_about_to_sleep_is_woken),
        cmocka_unit_test(who_waits_for_a_far_value_sleeps_through_the_signals_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
