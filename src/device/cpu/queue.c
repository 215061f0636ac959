/* queue.c - a queue is a ring of records (device/ring.h) with a thread, a pool that computes the ops, and a timeline.
 *
 * The timeline, `reached`, is the value of the last signal that the thread has passed. It only grows. A waiter polls it for a few
 * microseconds, then stores its value in `wanted`, the smallest value that a thread sleeps for, and sleeps on `reached_more`. A step has
 * hundreds of signals, and most have no sleeper: waking all sleepers at each signal took 6 us per sleeper.
 *
 * Errors are sticky: the first op that fails stores its error in the queue, and in `failed_from` the first later value of the timeline.
 * From then on only signals and marks are processed, so that the timeline advances and no one hangs. A queue that waits for a value >=
 * failed_from takes over the error; waits for earlier values have succeeded. Queues of other backends are only synced with.
 *
 * A cycle of waits, which the schedule's checker excludes, hangs; so does waiting for a value that is never signaled.
 */
#include "device/cpu/queue.h"

#include "base/clock.h"
#include "base/pause.h"
#include "comm/comm.h"
#include "device/cpu/ops.h"
#include "device/cpu/pool.h"
#include "device/cpu/rows.h"
#include "device/ring.h"
#include "io/disk.h"
#include "io/disk_rows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_TURNS = 1000 };

typedef struct cpu_queue {
    queue base; /* first, so that a queue * is a cpu_queue * */
    pool *pool;
    ring *ring;
    pthread_mutex_t timeline_lock;
    pthread_cond_t reached_more;
    atomic_ullong reached, failed_from; /* failed_from: UINT64_MAX if nothing has failed */
    atomic_ullong wanted;               /* UINT64_MAX: no sleeper */
    pt_error error;                     /* written once, before failed_from */
    row_ops rows;                       /* deferred ops */
} cpu_queue;

static cpu_queue *own(queue *q)
{
    return (cpu_queue *)q;
}

/* ---- ops ------------------------------------------------------------------------------------ */

enum { PIECE_BYTES = 1 << 20 }; /* a tile of copies and clears */

static size_t piece_bytes(const op_copy *o, int64_t piece)
{
    size_t left = o->bytes - (size_t)piece * PIECE_BYTES;
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static void copy_piece(void *arg, int64_t piece, int thread)
{
    const op_copy *o = arg;
    size_t at = (size_t)piece * PIECE_BYTES;
    memcpy((char *)o->dst + at, (const char *)o->src + at, piece_bytes(o, piece));
}

enum { PIECE_ROWS = 64 };

static void copy_rows_piece(void *arg, int64_t piece, int thread)
{
    const op_copy_rows *o = arg;
    const int64_t first = piece * PIECE_ROWS, left = o->rows - first, end = first + (left < PIECE_ROWS ? left : PIECE_ROWS);
    for (int64_t r = first; r < end; r++)
        memcpy((char *)o->dst + (size_t)r * o->lddst, (const char *)o->src + (size_t)r * o->ldsrc, o->bytes);
}

static void cpu_copy_rows(pool *pool, const op_copy_rows *o)
{
    op_copy_rows copy = *o;
    pool_run(pool, (o->rows + PIECE_ROWS - 1) / PIECE_ROWS, copy_rows_piece, &copy);
}

static void zero_piece(void *arg, int64_t piece, int thread)
{
    const op_copy *o = arg;
    memset((char *)o->dst + (size_t)piece * PIECE_BYTES, 0, piece_bytes(o, piece));
}

static void run_pieces(pool *pool, const op_copy *o, pool_fn fn)
{
    op_copy copy = *o;
    pool_run(pool, (int64_t)((o->bytes + PIECE_BYTES - 1) / PIECE_BYTES), fn, &copy);
}

static void cpu_copy(pool *pool, const op_copy *o) { run_pieces(pool, o, copy_piece); }
static void cpu_zero(pool *pool, const op_copy *o) { run_pieces(pool, o, zero_piece); }
static int cpu_disk_read(const op_disk *o, pt_error *e) { return disk_read(o->channel, o->offset, o->memory, o->bytes, e); }
static int cpu_disk_rows(const op_disk_rows *o, pt_error *e)
{
    return disk_rows_read(o->reader, &(disk_table){o->offset, o->row0, o->table_rows}, o->ids, o->rows, o->out, e);
}
static int cpu_disk_write(const op_disk *o, pt_error *e)
{
    return disk_write_summed(o->channel, o->offset, o->memory, o->bytes, o->sum, e);
}

static int cpu_exchange(const op_exchange *o, pt_error *e) { return comm_exchange(o->comm, o->moves, o->n, e); }

static int op_run(pool *pool, const op *o, pt_error *e)
{
    switch (o->kind) {
#define RUN(KIND, name, member, doing) case OP_##KIND: cpu_##name(pool, &o->member); return 0;
#define MOVE(KIND, name, member, doing) case OP_##KIND: return cpu_##name(&o->member, e);
    MEMORY_OPS(RUN)
    CALL_OPS(RUN)
    LIBRARY_OPS(RUN)
    KERNEL_OPS(RUN)
    DISK_OPS(MOVE)
    RANKS_OPS(MOVE)
#undef RUN
#undef MOVE
    default: return pt_fail(e, PT_FAILED, "op %d does not exist on the CPU; this is a bug in the schedule", o->kind);
    }
}

/* ---- timeline ------------------------------------------------------------------------------- */

static void timeline_reach(cpu_queue *q, uint64_t value)
{
    atomic_exchange(&q->reached, value); /* no store, as in pool_run (pool.c) */
    if (atomic_load(&q->wanted) > value)
        return;
    pthread_mutex_lock(&q->timeline_lock);
    atomic_store(&q->wanted, UINT64_MAX); /* remaining waiters store it again */
    pthread_cond_broadcast(&q->reached_more);
    pthread_mutex_unlock(&q->timeline_lock);
}

static void timeline_wait(cpu_queue *q, uint64_t value)
{
    for (int turn = 0; turn < SPIN_TURNS; turn++) {
        if (atomic_load(&q->reached) >= value)
            return;
        cpu_pause();
    }
    pthread_mutex_lock(&q->timeline_lock);
    for (;;) {
        if (value < atomic_load(&q->wanted))
            atomic_exchange(&q->wanted, value);
        if (atomic_load(&q->reached) >= value) /* a signal stores `reached`, then reads `wanted`: one sees the other */
            break;
        pthread_cond_wait(&q->reached_more, &q->timeline_lock);
    }
    pthread_mutex_unlock(&q->timeline_lock);
}

static bool queue_failed(cpu_queue *q)
{
    return atomic_load(&q->failed_from) != UINT64_MAX;
}

/* Called by the queue's own thread, once. */
static void queue_fail(cpu_queue *q, const pt_error *error)
{
    q->error = *error;
    atomic_store(&q->failed_from, atomic_load(&q->reached) + 1);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void wait_for(cpu_queue *q, queue *other, uint64_t value)
{
    pt_error e = {0};
    if (other->device->table->sync != cpu_queue_sync) {
        if (queue_sync(other, value, &e))
            queue_fail(q, &e);
        return;
    }
    timeline_wait(own(other), value);
    if (value >= atomic_load(&own(other)->failed_from))
        queue_fail(q, &own(other)->error);
}

/* Queues with one thread copy data, or update weights on a host that is also the device. */
static void thread_start(const cpu_queue *q)
{
    pool_spread(q->pool);
    if (q->base.threads == 1)
        ring_thread_is_short();
}

static void run_or_keep(cpu_queue *q, const op *o)
{
    pt_error e = {0};
    if (queue_failed(q) || rows_keep(&q->rows, q->pool, o))
        return;
    rows_run(&q->rows, q->pool);
    if (op_run(q->pool, o, &e))
        queue_fail(q, &e);
}

static void record_run(void *arg, const record *r)
{
    cpu_queue *q = arg;
    if (r->kind != RECORD_OP)
        rows_run(&q->rows, q->pool);
    switch (r->kind) {
    case RECORD_OP: run_or_keep(q, &r->op); break;
    case RECORD_WAIT:
        if (!queue_failed(q))
            wait_for(q, r->wait.other, r->wait.value);
        break;
    case RECORD_SIGNAL: timeline_reach(q, r->value); break;
    case RECORD_MARK: *r->ns = clock_ns(); break;
    case RECORD_MARK_WORK: *r->ns = pool_work_ns(q->pool); break;
    case RECORD_MARK_WAITED: *r->ns = pool_waited_ns(q->pool); break;
    case RECORD_START: thread_start(q); break;
    case RECORD_STOP: break;
    }
}

/* ---- the caller's side ---------------------------------------------------------------------- */

void cpu_queue_submit(queue *q, const op *o) { ring_op(own(q)->ring, o); }
uint64_t cpu_queue_signal(queue *q) { return ring_signal(own(q)->ring); }
void cpu_queue_wait(queue *q, queue *other, uint64_t value) { ring_wait(own(q)->ring, other, value); }
void cpu_queue_mark(queue *q, int64_t *ns) { ring_mark(own(q)->ring, ns); }
void cpu_queue_mark_work(queue *q, int64_t *ns) { ring_mark_work(own(q)->ring, ns); }
void cpu_queue_mark_waited(queue *q, int64_t *ns) { ring_mark_waited(own(q)->ring, ns); }

int cpu_queue_sync(queue *base, uint64_t value, pt_error *e)
{
    cpu_queue *q = own(base);
    timeline_wait(q, value);
    if (!queue_failed(q))
        return 0;
    if (e)
        *e = q->error;
    return q->error.code ? q->error.code : PT_FAILED;
}

int cpu_queue_open(device *d, const char *name, int threads, queue **out, pt_error *e)
{
    *out = NULL;
    cpu_queue *q = calloc(1, sizeof *q);
    if (!q)
        return pt_fail(e, PT_FAILED, "no memory for the queue '%s'", name);
    q->base.device = d;
    q->base.threads = threads;
    atomic_init(&q->failed_from, UINT64_MAX);
    atomic_init(&q->wanted, UINT64_MAX);
    pthread_mutex_init(&q->timeline_lock, NULL);
    pthread_cond_init(&q->reached_more, NULL);
    int code = pool_open(threads, &q->pool, e);
    if (!code)
        code = ring_open(name, record_run, q, &q->ring, e);
    if (code) {
        if (q->pool)
            pool_close(q->pool);
        free(q);
        return code;
    }
    *out = &q->base;
    return 0;
}

void cpu_queue_close(queue *base)
{
    if (!base)
        return;
    cpu_queue *q = own(base);
    ring_close(q->ring);
    pool_close(q->pool);
    pthread_cond_destroy(&q->reached_more);
    pthread_mutex_destroy(&q->timeline_lock);
    free(q);
}
