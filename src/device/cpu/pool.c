/* pool.c - a thread pool: a shared counter of tiles, and sleeping workers.
 *
 * A job is (fn, arg, tiles) and two counters:
 *
 *     left   tiles not yet taken. A thread takes a tile by a compare-and-swap of left to left - 1; the tile's index is tiles - left, so
 *            tiles start in ascending order
 *     done   finished tiles; pool_run returns when done == tiles
 *
 * fn, arg and tiles are written only when left == 0 and all tiles of the previous job are done, and read only by a thread that has an
 * unfinished tile. So they need no lock, and pool_run does not wait for workers that missed a job.
 *
 * Between jobs a worker polls `left` for about ten microseconds, because the ops of a training step follow each other closely, and then
 * sleeps on the futex `bell`. The caller rings it only if some worker sleeps. No wake-up is lost: the caller stores left, then reads
 * sleepers; a worker increments sleepers, then reads left; all four are sequentially consistent.
 *
 * A pool with as many threads as processors pins each thread to its own (pool_spread). Otherwise, when a worker woke up while another
 * thread was running (such as one that reads from the disk), the scheduler could queue it behind the caller for ten milliseconds and more,
 * with the other of two processors idle. That took a sixth of a step that waits for the disk.
 */
#include "device/cpu/pool.h"

#include "base/clock.h"
#include "base/pause.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CACHE_LINE = 64, HUGE_BYTES = 2 << 20, SPIN_TURNS = 2000 }; /* a turn is one pause: 5 to 40 ns */

typedef struct worker {
    pool *pool;
    pthread_t thread;
    atomic_int id; /* the system's; 0 until the thread has begun */
    int index;
} worker;

struct pool {
    _Alignas(CACHE_LINE) atomic_llong left;
    _Alignas(CACHE_LINE) atomic_llong done;
    _Alignas(CACHE_LINE) atomic_int sleepers; /* workers that sleep, or are about to */
    atomic_uint bell, finished;               /* futex words: a new job; the end of a job */
    atomic_bool caller_sleeps, stop;

    pool_fn fn; /* the job; see above for who may access it when */
    void *arg;
    long long tiles;

    int threads, started;
    worker *workers; /* `threads` entries; [0] is the caller, without a thread */
    unsigned char *scratch;
};

static void futex_sleep(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

/* Runs tiles until none is left. */
static void pool_work(pool *pool, int thread)
{
    long long left = atomic_load(&pool->left);
    while (left > 0) {
        if (!atomic_compare_exchange_weak(&pool->left, &left, left - 1))
            continue;
        long long tiles = pool->tiles;
        pool->fn(pool->arg, tiles - left, thread);
        if (atomic_fetch_add(&pool->done, 1) + 1 == tiles && atomic_load(&pool->caller_sleeps)) {
            atomic_fetch_add(&pool->finished, 1);
            futex_wake(&pool->finished, 1);
        }
        left = atomic_load(&pool->left);
    }
}

static bool pool_has_work(pool *pool)
{
    return atomic_load(&pool->left) > 0 || atomic_load(&pool->stop);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    pool *pool = w->pool;
    atomic_store(&w->id, (int)syscall(SYS_gettid));
    while (!atomic_load(&pool->stop)) {
        pool_work(pool, w->index);
        for (int turn = 0; turn < SPIN_TURNS && !pool_has_work(pool); turn++)
            cpu_pause();
        if (pool_has_work(pool))
            continue;
        unsigned seen = atomic_load(&pool->bell);
        atomic_fetch_add(&pool->sleepers, 1);
        if (!pool_has_work(pool))
            futex_sleep(&pool->bell, seen);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
    return NULL;
}

static void pool_ring(pool *pool, int threads)
{
    atomic_fetch_add(&pool->bell, 1);
    futex_wake(&pool->bell, threads);
}

/* Waits for the tiles of other threads. */
static void pool_finish(pool *pool)
{
    for (int turn = 0; turn < SPIN_TURNS; turn++) {
        if (atomic_load(&pool->done) == pool->tiles)
            return;
        cpu_pause();
    }
    atomic_exchange(&pool->caller_sleeps, true); /* see pool_run */
    for (;;) {
        unsigned seen = atomic_load(&pool->finished);
        if (atomic_load(&pool->done) == pool->tiles)
            break;
        futex_sleep(&pool->finished, seen);
    }
    atomic_store(&pool->caller_sleeps, false);
}

void pool_run(pool *pool, int64_t tiles, pool_fn fn, void *arg)
{
    if (tiles <= 1 || pool->threads == 1) {
        for (int64_t tile = 0; tile < tiles; tile++)
            fn(arg, tile, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->tiles = tiles;
    atomic_store(&pool->done, 0);
    /* No store: QEMU reorders ARM64's store and a later load of another variable (its issue 4872), and a wake-up is lost. */
    atomic_exchange(&pool->left, tiles);
    if (atomic_load(&pool->sleepers) > 0)
        pool_ring(pool, tiles - 1 < INT_MAX ? (int)(tiles - 1) : INT_MAX);
    pool_work(pool, 0);
    pool_finish(pool);
}

/* A small stack: with the usual 8 MiB, the first touch could take a huge page, 2 MiB for a few KiB. */
static int worker_start(worker *w)
{
    pthread_attr_t attr;
    int code = pthread_attr_init(&attr);
    if (code)
        return code;
    pthread_attr_setstacksize(&attr, POOL_STACK_BYTES);
    code = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_attr_destroy(&attr);
    return code;
}

int pool_open(int threads, pool **out, pt_error *e)
{
    *out = NULL;
    if (threads < 1 || threads > 4096)
        return pt_fail(e, PT_USAGE, "a thread pool of %d threads was asked for; use 1 to 4096", threads);
    pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    if (!pool)
        return pt_fail(e, PT_FAILED, "no memory for a thread pool");
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    size_t bytes = (size_t)threads * POOL_SCRATCH_BYTES;
    pool->scratch = aligned_alloc(HUGE_BYTES, bytes);
    if (!pool->workers || !pool->scratch) {
        pool_close(pool);
        return pt_fail(e, PT_FAILED, "no memory for the scratch space of %d threads (%zu bytes)", threads, bytes);
    }
    madvise(pool->scratch, bytes, MADV_HUGEPAGE); /* fewer TLB misses; may be refused */
    for (int i = 1; i < threads; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i;
        int code = worker_start(w);
        if (code) {
            pool->started = i - 1;
            pool_close(pool);
            return pt_fail(e, PT_FAILED, "thread %d of %d could not be started: %s; use fewer threads", i + 1,
                           threads, strerror(code));
        }
    }
    pool->started = threads - 1;
    *out = pool;
    return 0;
}

void pool_close(pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    pool_ring(pool, INT_MAX);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool->scratch);
    free(pool->workers);
    free(pool);
}

int pool_threads(const pool *pool)
{
    return pool->threads;
}

void *pool_scratch(pool *pool, int thread)
{
    return pool->scratch + (size_t)thread * POOL_SCRATCH_BYTES;
}

/* ---- the threads' time ---- */

int64_t pool_work_ns(pool *pool)
{
    int64_t ns = clock_ns_of(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 1; i <= pool->started; i++) {
        clockid_t clock;
        ns += pthread_getcpuclockid(pool->workers[i].thread, &clock) ? 0 : clock_ns_of(clock);
    }
    return ns;
}

/* The kernel's line has the time on a processor, that of waiting for one, and the number of turns. */
static int64_t thread_waited_ns(int id)
{
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", id);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = file < 0 ? 0 : read(file, line, sizeof line - 1);
    if (file >= 0)
        close(file);
    line[n > 0 ? n : 0] = 0;
    long long waited = 0;
    return sscanf(line, "%*s %lld", &waited) == 1 ? waited : 0;
}

int64_t pool_waited_ns(pool *pool)
{
    int64_t ns = thread_waited_ns((int)syscall(SYS_gettid));
    for (int i = 1; i <= pool->started; i++)
        ns += atomic_load(&pool->workers[i].id) ? thread_waited_ns(atomic_load(&pool->workers[i].id)) : 0;
    return ns;
}

/* The n-th processor in this thread's affinity mask, modulo their number. */
static cpu_set_t processor(int n, const cpu_set_t *allowed)
{
    cpu_set_t one;
    int cpu = 0;
    n %= CPU_COUNT(allowed);
    CPU_ZERO(&one);
    while (!CPU_ISSET((size_t)cpu, allowed) || n-- > 0)
        cpu++;
    CPU_SET((size_t)cpu, &one);
    return one;
}

void pool_spread(pool *pool)
{
    cpu_set_t allowed;
    if (pool->threads < 2 || sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) != pool->threads)
        return;
    const int first = getpid() % pool->threads; /* the caller runs ops of a single tile: spread the callers of several programs */
    for (int i = 0; i < pool->threads; i++) {
        const cpu_set_t one = processor(first + i, &allowed);
        pthread_setaffinity_np(i ? pool->workers[i].thread : pthread_self(), sizeof one, &one);
    }
}
