/* The pool runs every tile exactly once, on threads that the caller may tell apart. */
#include "device/cpu/pool.h"

#include "base/cores.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TILES = 5000, MAX_THREADS = 8 };

typedef struct count_job {
    pool *p;
    atomic_int runs[TILES];
    atomic_bool busy[MAX_THREADS];
    int threads;
    atomic_int clashes;
} count_job;

static void count_tile(void *arg, int64_t tile, int thread)
{
    count_job *job = arg;
    if (thread < 0 || thread >= job->threads || atomic_exchange(&job->busy[thread], true))
        atomic_fetch_add(&job->clashes, 1);
    unsigned char *scratch = pool_scratch(job->p, thread);
    memset(scratch + (tile & 1 ? 0 : POOL_SCRATCH_BYTES - 64), (int)tile, 64);
    atomic_fetch_add(&job->runs[tile], 1);
    atomic_store(&job->busy[thread], false);
}

static void every_tile_runs_once(void **state)
{
    static count_job job;
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        pt_error e = {0};
        assert_int_equal(pool_open(threads, &job.p, &e), 0);
        assert_int_equal(pool_threads(job.p), threads);
        job.threads = threads;
        for (int64_t tiles = 0; tiles <= TILES; tiles = tiles * 3 + 1) {
            memset(job.runs, 0, sizeof job.runs);
            pool_run(job.p, tiles, count_tile, &job);
            for (int64_t i = 0; i < TILES; i++)
                assert_int_equal(atomic_load(&job.runs[i]), i < tiles);
        }
        assert_int_equal(atomic_load(&job.clashes), 0);
        pool_close(job.p);
    }
}

/* Jobs of one or two tiles in a tight row, with plain (not atomic) results: a worker that is late
 * for one job must never run a tile of it with the arguments of the next. */
typedef struct add_job { int64_t base; int64_t out[3]; } add_job;

static void add_tile(void *arg, int64_t tile, int thread)
{
    add_job *job = arg;
    job->out[tile] = job->base + tile;
}

static void a_result_is_there_when_run_returns(void **state)
{
    pool *p;
    assert_int_equal(pool_open(4, &p, NULL), 0);
    add_job jobs[2];
    for (int64_t i = 0; i < 20000; i++) {
        add_job *job = &jobs[i & 1];
        int64_t tiles = 2 + (i % 2);
        memset(job, 0, sizeof *job);
        job->base = 3 * i;
        pool_run(p, tiles, add_tile, job);
        for (int64_t tile = 0; tile < tiles; tile++)
            assert_int_equal(job->out[tile], 3 * i + tile);
        if (i % 4000 == 0)
            usleep(2000); /* long enough for the workers to sleep */
    }
    pool_close(p);
}

/* ---- processors ---- */

enum { MOST = 256 };

typedef struct places { int threads; atomic_int begun; cpu_set_t allowed[MOST]; } places;

/* Each thread takes one tile: none is done before all are begun. */
static void note_place(void *arg, int64_t tile, int thread)
{
    places *x = arg;
    sched_getaffinity(0, sizeof x->allowed[thread], &x->allowed[thread]);
    atomic_fetch_add(&x->begun, 1);
    while (atomic_load(&x->begun) < x->threads)
        sched_yield();
}

/* In a thread of its own, which may stay where it is put. */
static void *spread_and_note(void *arg)
{
    places *x = arg;
    pool *p;
    if (pool_open(x->threads, &p, NULL))
        return NULL;
    pool_spread(p);
    pool_run(p, x->threads, note_place, x);
    pool_close(p);
    return x;
}

static places *places_of(int threads)
{
    static places x;
    pthread_t thread;
    void *done;
    x = (places){.threads = threads};
    assert_int_equal(pthread_create(&thread, NULL, spread_and_note, &x), 0);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_ptr_equal(done, &x);
    return &x;
}

/* Some sandboxes refuse: then threads stay where the system puts them. */
static bool may_be_moved(void)
{
    cpu_set_t own;
    return !sched_getaffinity(0, sizeof own, &own) && !sched_setaffinity(0, sizeof own, &own);
}

static void as_many_threads_as_processors_have_one_each_and_fewer_have_all(void **state)
{
    const int all = cores_allowed();
    if (all < 2 || all >= MOST || !may_be_moved())
        skip();
    places *x = places_of(all);
    cpu_set_t together = x->allowed[0];
    for (int i = 0; i < all; i++) {
        assert_int_equal(CPU_COUNT(&x->allowed[i]), 1);
        CPU_OR(&together, &together, &x->allowed[i]);
    }
    assert_int_equal(CPU_COUNT(&together), all);
    for (int n = all - 1; n <= all + 1; n += 2) {
        x = places_of(n);
        for (int i = 0; i < n; i++)
            assert_int_equal(CPU_COUNT(&x->allowed[i]), all);
    }
}

static void an_absurd_number_of_threads_is_refused(void **state)
{
    pool *p;
    pt_error e = {0};
    assert_int_equal(pool_open(0, &p, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "threads"));
    assert_int_equal(pool_open(1 << 20, &p, &e), PT_USAGE);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_runs_once),
        cmocka_unit_test(a_result_is_there_when_run_returns),
        cmocka_unit_test(as_many_threads_as_processors_have_one_each_and_fewer_have_all),
        cmocka_unit_test(an_absurd_number_of_threads_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
