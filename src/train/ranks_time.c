/* ranks_time.c - measures exchanges between ranks by size, and their contention with computation: all ranks do both at once, as in a
 * step. They exchange by a queue, as a step does, and each exchange goes on to other memory, because a step's sums and weights are in no
 * cache. On GPUs the exchanges are of their memory, and the processors have nothing to compute. */
#include "base/clock.h"
#include "base/cores.h"
#include "base/median.h"
#include "comm/shm.h"
#include "train/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {64 << 10, 1 << 20, 8 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, ROOM = 32 << 20 /* of what is sent, and of what is received */ };
enum { BESIDE_EXCHANGES = 6, REPEATS_MOST = 5, THREADS_MOST = 64 };
/* How often exchanges are timed, alone and beside computation. All ranks must use the same numbers. */
typedef struct repeats { int alone, beside; } repeats;
static const repeats usual = {REPEATS_MOST, REPEATS_MOST}, few = {2, 1};

typedef struct timing {
    comm *c;
    queue *q;
    int threads;     /* with which this rank computes; 0: a GPU does, whose memory it is */
    int sharers;     /* ranks that share the processors which this process may use */
    char *memory;    /* twice ROOM */
    size_t at;       /* where the next exchange begins in both halves, if there is room behind it */
    repeats repeats;
} timing;

/* Times an exchange of `bytes`, in which each rank sends its part to every other rank, `times` times. */
static int exchange(timing *x, size_t bytes, int times, double *ns, pt_error *e)
{
    comm_move moves[COMM_RANKS_MOST];
    const size_t part = bytes / (size_t)x->c->ranks;
    const bool on_gpu = !x->threads;
    int failed = comm_barrier(x->c, e);
    const int64_t begin = clock_ns();
    for (int i = 0; i < times && !failed; i++) {
        const size_t at = x->at + (size_t)(x->c->ranks - 1) * part <= ROOM ? x->at : 0;
        char *to = x->memory + at, *from = to + ROOM;
        int n = 0;
        for (int r = 0; r < x->c->ranks; r++) {
            const size_t own = (size_t)n * part;
            if (r != x->c->rank)
                moves[n++] = (comm_move){r, from + own, part, to + own, part, on_gpu, on_gpu};
        }
        x->at = at + (size_t)n * part;
        queue_submit(x->q, &(op){OP_EXCHANGE, .exchange = {x->c, moves, n}});
        failed = queue_sync(x->q, queue_signal(x->q), e);
    }
    *ns = (double)(clock_ns() - begin) / times;
    return failed;
}

static int time_exchange(timing *x, size_t bytes, double *ns, pt_error *e)
{
    double all[REPEATS_MOST];
    int failed = 0;
    for (int i = 0; i < x->repeats.alone && !failed; i++)
        failed = exchange(x, bytes, 1, &all[i], e);
    *ns = failed ? 0 : median(all, x->repeats.alone);
    return failed;
}

/* ---- contention with computation ---- */

/* done, work_ns: of all threads, how often they finished, and their processor time. */
typedef struct crew { pthread_t thread[THREADS_MOST]; int n; atomic_bool over; atomic_llong done, work_ns; } crew;

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
    atomic_fetch_add(&k->work_ns, clock_ns_of(CLOCK_THREAD_CPUTIME_ID));
    return NULL;
}

static void crew_begin(crew *k, int threads)
{
    *k = (crew){0};
    threads = threads < THREADS_MOST ? threads : THREADS_MOST;
    while (k->n < threads && !pthread_create(&k->thread[k->n], NULL, compute, k))
        k->n++;
}

/* How often its threads finished in a ns of their processor time. */
static double crew_end(crew *k)
{
    atomic_store(&k->over, true);
    for (int i = 0; i < k->n; i++)
        pthread_join(k->thread[i], NULL);
    return (double)atomic_load(&k->done) / fmax((double)atomic_load(&k->work_ns), 1);
}

static void wait_ns(double ns)
{
    const int64_t end = clock_ns() + (int64_t)ns;
    while (clock_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* What one exchange takes beside computation, and the processor time of the exchanges' thread in it; how many times as much processor time
 * the computing threads need for the same work, which hardly depends on what other programs take. */
typedef struct beside { double ns[REPEATS_MOST], work_ns[REPEATS_MOST], pace[REPEATS_MOST]; } beside;

static int try_beside(timing *x, size_t bytes, double alone_ns, beside *out, int i, pt_error *e)
{
    crew k;
    int64_t work[2] = {0};
    int failed = comm_barrier(x->c, e);
    crew_begin(&k, x->threads);
    wait_ns(BESIDE_EXCHANGES * alone_ns);
    const double alone = crew_end(&k);
    if (!failed)
        failed = comm_barrier(x->c, e);
    crew_begin(&k, x->threads);
    queue_mark_work(x->q, &work[0]);
    if (!failed)
        failed = exchange(x, bytes, BESIDE_EXCHANGES, &out->ns[i], e);
    queue_mark_work(x->q, &work[1]);
    out->pace[i] = alone / crew_end(&k);
    const int drained = queue_sync(x->q, queue_signal(x->q), failed ? NULL : e); /* the queue writes `work` even if the exchange failed */
    failed = failed ? failed : drained;
    out->work_ns[i] = (double)(work[1] - work[0]) / BESIDE_EXCHANGES;
    return failed;
}

/* Of the computing threads' time, the exchanges' thread takes all that it works, unless there is a processor for it. */
static double taken(const timing *x, double work_ns, double ns)
{
    const double most = 0.9;
    const bool spare = cores_allowed() > x->threads * x->sharers;
    return spare ? 0 : fmin(work_ns / (ns * x->threads), most);
}

static int time_beside(timing *x, size_t bytes, exchange_cost *out, pt_error *e)
{
    const double alone_ns = out->curve.ns[out->curve.n - 1];
    const int n = x->repeats.beside;
    beside all;
    int failed = 0;
    for (int i = 0; i < n && !failed; i++)
        failed = try_beside(x, bytes, alone_ns, &all, i, e);
    if (failed)
        return failed;
    const double ns = fmax(median(all.ns, n), alone_ns);
    out->slowed = ns / alone_ns;
    out->slows = fmax(median(all.pace, n), 1) / (1 - taken(x, median(all.work_ns, n), ns));
    return 0;
}

/* The first exchange touches the transport's memory for the first time. */
static int time_in(timing *x, exchange_cost *out, pt_error *e)
{
    double first;
    int failed = exchange(x, sizes[SIZES - 1], 1, &first, e);
    for (int i = 0; i < SIZES && !failed; i++) {
        cost_curve *curve = &out->curve;
        double ns;
        failed = time_exchange(x, sizes[i], &ns, e);
        curve->amount[i] = (double)sizes[i];
        curve->ns[i] = i && ns < curve->ns[i - 1] ? curve->ns[i - 1] : ns;
        curve->n = i + 1;
    }
    return failed || !x->threads ? failed : time_beside(x, sizes[SIZES - 1], out, e);
}

/* In memory of `d`, by a queue of `host`. */
static int time_all(comm *c, device *d, device *host, int sharers, repeats r, exchange_cost *out, pt_error *e)
{
    const bool on_gpu = device_is_gpu(d);
    timing x = {.c = c, .threads = on_gpu ? 0 : d->info.threads, .sharers = sharers, .repeats = r};
    void *memory = NULL;
    int failed = d->table->memory_open(d, MEMORY_DEVICE, 2 * (size_t)ROOM, &memory, e);
    if (failed)
        return failed;
    x.memory = memory;
    if (!on_gpu)
        memset(memory, 1, 2 * (size_t)ROOM);
    failed = host->table->queue_open(host, "ranks", 1, &x.q, e);
    if (!failed)
        failed = time_in(&x, out, e);
    if (x.q)
        host->table->queue_close(x.q);
    d->table->memory_close(d, MEMORY_DEVICE, memory, 2 * (size_t)ROOM);
    return failed;
}

int ranks_time(const trainer *trainer, exchange_cost *out, pt_error *e)
{
    comm *c = trainer->device_comm ? trainer->device_comm : trainer->comm;
    *out = (exchange_cost){.slowed = 1, .slows = 1};
    return c ? time_all(c, trainer->planning.device, trainer->planning.host, 1, usual, out, e) : 0;
}

/* ---- of ranks that there are not yet: threads in their place ---- */

typedef struct stand_in { shm_segment *segment; device *d; int rank, failed; repeats r; exchange_cost cost; pt_error e; } stand_in;

static void *stand_in_run(void *arg)
{
    stand_in *s = arg;
    comm *c = NULL;
    s->cost = (exchange_cost){.slowed = 1, .slows = 1};
    s->failed = comm_shm_open(s->segment, s->rank, &c, &s->e);
    if (!s->failed)
        s->failed = time_all(c, s->d, s->d, shm_segment_ranks(s->segment), s->r, &s->cost, &s->e);
    if (s->failed) /* or the others would wait */
        shm_segment_abort(s->segment, s->rank, s->e.code, s->e.text);
    comm_close(c);
    return NULL;
}

int ranks_time_here(int ranks, device *host, exchange_cost *out, pt_error *e)
{
    shm_segment *segment;
    pthread_t thread[COMM_RANKS_MOST];
    const bool crowded = ranks * host->info.threads > cores_allowed(); /* they take turns, and each exchange takes long */
    int failed = shm_segment_make(ranks, 0, &segment, NULL, e), n = 0;
    if (failed)
        return failed;
    stand_in *all = calloc((size_t)ranks, sizeof *all);
    for (; all && n < ranks; n++) {
        all[n] = (stand_in){.segment = segment, .d = host, .rank = n, .r = crowded ? few : usual};
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
