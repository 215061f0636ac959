/* ranks_time.c - measures exchanges between ranks by size, and their contention with computation: all ranks do both at once, as in a
 * step. On GPUs the exchanges are of their memory, and the processors have nothing to compute. */
#include "base/clock.h"
#include "base/cores.h"
#include "comm/shm.h"
#include "train/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const size_t sizes[] = {64 << 10, 1 << 20, 8 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };
enum { BESIDE_EXCHANGES = 6, THREADS_MOST = 64 };
/* How often exchanges are timed, alone and beside computation. All ranks must use the same numbers. */
typedef struct repeats { int alone, beside; } repeats;
static const repeats usual = {5, 3}, few = {2, 1};

/* Times an exchange of `bytes`, in which each rank sends its part to every other rank, `times` times. */
static int exchange(comm *c, bool on_gpu, char *memory, size_t bytes, int times, double *ns, pt_error *e)
{
    comm_move moves[COMM_RANKS_MOST];
    const size_t part = bytes / (size_t)c->ranks;
    int n = 0;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank)
            moves[n++] = (comm_move){r, memory + bytes + (size_t)r * part, part, memory + (size_t)r * part, part,
                                     on_gpu, on_gpu};
    int failed = comm_barrier(c, e);
    const int64_t begin = clock_ns();
    for (int i = 0; i < times && !failed; i++)
        failed = comm_exchange(c, moves, n, e);
    *ns = (double)(clock_ns() - begin) / times;
    return failed;
}

static int time_exchange(comm *c, bool on_gpu, char *memory, size_t bytes, int times, double *ns, pt_error *e)
{
    int failed = 0;
    *ns = INFINITY;
    for (int i = 0; i < times && !failed; i++) {
        double one;
        failed = exchange(c, on_gpu, memory, bytes, 1, &one, e);
        *ns = fmin(*ns, one);
    }
    return failed;
}

/* ---- contention with computation ---- */

typedef struct crew { pthread_t thread[THREADS_MOST]; int n; atomic_bool over; atomic_llong done; } crew;

/* Works on data in a cache. */
static void *compute(void *arg)
{
    enum { VALUES = 4096 };
    crew *k = arg;
    float x[VALUES];
    for (int i = 0; i < VALUES; i++)
        x[i] = (float)i;
    while (!atomic_load_explicit(&k->over, memory_order_relaxed)) {
        for (int i = 0; i < VALUES; i++)
            x[i] = x[i] * 0.999f + 1;
        atomic_fetch_add_explicit(&k->done, x[VALUES - 1] > 0, memory_order_relaxed);
    }
    return NULL;
}

static void crew_begin(crew *k, int threads)
{
    *k = (crew){0};
    threads = threads < THREADS_MOST ? threads : THREADS_MOST;
    while (k->n < threads && !pthread_create(&k->thread[k->n], NULL, compute, k))
        k->n++;
}

static double crew_end(crew *k)
{
    atomic_store(&k->over, true);
    for (int i = 0; i < k->n; i++)
        pthread_join(k->thread[i], NULL);
    return (double)atomic_load(&k->done);
}

static void wait_ns(double ns)
{
    const int64_t end = clock_ns() + (int64_t)ns;
    while (clock_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* One try: how often the threads finished in a second alone, and during exchanges, and the time of one exchange. */
static int try_beside(comm *c, int threads, char *memory, size_t bytes, double alone_ns, double rate[2], double *ns, pt_error *e)
{
    crew k;
    int failed = comm_barrier(c, e);
    int64_t begin = clock_ns();
    crew_begin(&k, threads);
    wait_ns(BESIDE_EXCHANGES * alone_ns);
    rate[0] = crew_end(&k) / (double)(clock_ns() - begin);
    if (!failed)
        failed = comm_barrier(c, e);
    begin = clock_ns();
    crew_begin(&k, threads);
    if (!failed)
        failed = exchange(c, false, memory, bytes, BESIDE_EXCHANGES, ns, e);
    rate[1] = crew_end(&k) / (double)(clock_ns() - begin);
    return failed;
}

static int time_beside(comm *c, int threads, char *memory, size_t bytes, int times, exchange_cost *out, pt_error *e)
{
    const double alone_ns = out->curve.ns[out->curve.n - 1];
    int failed = 0;
    out->slowed = out->slows = INFINITY;
    for (int i = 0; i < times && !failed; i++) {
        double rate[2], ns;
        failed = try_beside(c, threads, memory, bytes, alone_ns, rate, &ns, e);
        out->slowed = fmin(out->slowed, fmax(ns / alone_ns, 1));
        out->slows = fmin(out->slows, rate[1] > 0 ? fmax(rate[0] / rate[1], 1) : 1);
    }
    return failed;
}

/* `memory` holds twice the largest size; threads: with which this rank computes, 0: a GPU does, whose memory it is. */
static int time_in(comm *of, int threads, char *memory, repeats r, exchange_cost *out, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < SIZES && !failed; i++) {
        cost_curve *c = &out->curve;
        double ns;
        failed = time_exchange(of, !threads, memory, sizes[i], r.alone, &ns, e);
        c->amount[i] = (double)sizes[i];
        c->ns[i] = i && ns < c->ns[i - 1] ? c->ns[i - 1] : ns;
        c->n = i + 1;
    }
    return failed || !threads ? failed : time_beside(of, threads, memory, sizes[SIZES - 1], r.beside, out, e);
}

static int time_all(comm *of, int threads, repeats r, exchange_cost *out, pt_error *e)
{
    char *memory = calloc(2, sizes[SIZES - 1]);
    int failed = memory ? time_in(of, threads, memory, r, out, e) : pt_fail(e, PT_FAILED, "out of memory");
    free(memory);
    return failed;
}

static int time_on_gpus(const trainer *t, exchange_cost *out, pt_error *e)
{
    device *d = t->planning.device;
    const size_t bytes = 2 * sizes[SIZES - 1];
    void *memory;
    int failed = d->table->memory_open(d, MEMORY_DEVICE, bytes, &memory, e);
    if (failed)
        return failed;
    failed = time_in(t->device_comm, 0, memory, usual, out, e);
    d->table->memory_close(d, MEMORY_DEVICE, memory, bytes);
    return failed;
}

int ranks_time(const trainer *t, exchange_cost *out, pt_error *e)
{
    *out = (exchange_cost){.slowed = 1, .slows = 1};
    if (t->device_comm)
        return time_on_gpus(t, out, e);
    return t->comm ? time_all(t->comm, t->planning.device->info.threads, usual, out, e) : 0;
}

/* ---- of ranks that there are not yet: threads in their place ---- */

typedef struct stand_in { shm_segment *segment; int rank, threads, failed; repeats r; exchange_cost cost; pt_error e; } stand_in;

static void *stand_in_run(void *arg)
{
    stand_in *s = arg;
    comm *c = NULL;
    s->cost = (exchange_cost){.slowed = 1, .slows = 1};
    s->failed = comm_shm_open(s->segment, s->rank, &c, &s->e);
    if (!s->failed)
        s->failed = time_all(c, s->threads, s->r, &s->cost, &s->e);
    if (s->failed) /* or the others would wait */
        shm_segment_abort(s->segment, s->rank, s->e.code, s->e.text);
    comm_close(c);
    return NULL;
}

int ranks_time_here(int ranks, int threads, exchange_cost *out, pt_error *e)
{
    shm_segment *segment;
    pthread_t thread[COMM_RANKS_MOST];
    const bool crowded = ranks * threads > cores_allowed(); /* they take turns, and each exchange takes long */
    int failed = shm_segment_make(ranks, 0, &segment, NULL, e), n = 0;
    if (failed)
        return failed;
    stand_in *all = calloc((size_t)ranks, sizeof *all);
    for (; all && n < ranks; n++) {
        all[n] = (stand_in){.segment = segment, .rank = n, .threads = threads, .r = crowded ? few : usual};
        if (pthread_create(&thread[n], NULL, stand_in_run, &all[n]))
            break;
    }
    if (n < ranks)
        shm_segment_abort(segment, -1, PT_FAILED, "no threads could be started");
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    failed = n < ranks ? pt_fail(e, PT_FAILED, "the exchanges of %d ranks could not be measured: no memory or threads", ranks) : 0;
    for (int i = 0; i < n && !failed; i++)
        if (all[i].failed)
            failed = pt_fail(e, PT_FAILED, "%s", all[i].e.text);
    if (!failed)
        *out = all[0].cost;
    free(all);
    shm_segment_unmap(segment);
    return failed;
}
