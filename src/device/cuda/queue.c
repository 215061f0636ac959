/* queue.c - a queue is a stream, a thread that launches onto it (device/ring.h), and a timeline of events.
 *
 *     records:    op   op   signal 7   wait(other, 3)   op   mark
 *     thread:     launch    record      let the stream       launch ...
 *                           event 7     wait for event 3
 *     stream:     [=op=][==op==] 7 ........................ [=op=]
 *
 * The event of value v is events[v % EVENTS]; the value is reached when the event is complete. Nobody is told: who wants to
 * know asks (cudaEventQuery), from time to time. Before an event is recorded anew its old value has been reached, and
 * `reached` says so, so that the event of a value > reached is always that value's own.
 *
 * A stream takes about a thousand launches; who launches more stands still, with whatever lock is held. So the thread keeps to some
 * 500 ops, most of which are one launch: every PACE_OPS ops it records an event and waits for the one PACES before.
 *
 * Waiting. For a queue of the same GPU the stream waits, as soon as the other thread has recorded the event; this
 * thread goes on launching. For a queue of the CPU this thread waits, and with it what follows on this stream, but no other
 * stream and not the caller. The alternatives were stream memory operations (not on every driver and virtual machine) and host
 * functions on the stream (all streams share one thread for them: one that waits holds up the others, and may
 * deadlock with them). What a launch thread loses by it is to have launched ahead across a wait for the host, which only
 * copies do, and those are long.
 *
 * Failure sticks, as on the CPU (device/cpu/queue.c): a launch that fails skips what follows on this queue and on those that
 * wait for a later value. An error inside a kernel is CUDA's: it spoils the whole context, is seen by the next query
 * of an event, and every queue reports it.
 *
 * Marks are events with a time. cudaEventElapsedTime gives fp32 milliseconds, so they are measured from an event that is
 * recorded when the queue is idle, at a known time of the clock, and anew where that is a second ago. They are opened when the first
 * mark comes (a trace was asked for) and resolved by sync, that of other queues too.
 *
 * What can go wrong: a cycle of waits hangs; so does waiting for a value that is never signaled.
 */
#include "device/cuda/cuda.h"
#include "device/cuda/kernels.h"
#include "device/ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENTS = 512, MARKS = 1024, QUICK_TURNS = 200, NAP_NS = 20000, FRESH_NS = 1000000000 };
enum { PACES = 4, PACE_OPS = 128 }; /* an event every so many ops; at most PACES * PACE_OPS are ahead of the stream */

typedef struct mark { cudaEvent_t event; int64_t *ns; } mark;

typedef struct cuda_queue {
    queue base; /* first: a queue * is a cuda_queue * */
    cuda_device *device;
    cudaStream_t stream;
    ring *ring;
    pthread_mutex_t lock;           /* of everything below */
    pthread_cond_t launched_more;
    uint64_t launched, reached;     /* the last value whose event is recorded; that is known to be complete */
    uint64_t failed_from;           /* UINT64_MAX: nothing has failed */
    pt_error error;
    cudaEvent_t events[EVENTS];
    cudaEvent_t paces[PACES];
    uint64_t ops;                   /* launched */
    cudaEvent_t start;              /* what the marks are measured from, and when that was */
    int64_t start_ns;
    mark *marks;                    /* MARKS of them, NULL until the first */
    int marks_first, marks_n;       /* a ring: those not resolved yet */
} cuda_queue;

static cuda_queue *own(queue *q) { return (cuda_queue *)q; }

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- failure ---- */

/* With the lock held. The first failure stays. */
static void fail_locked(cuda_queue *q, const pt_error *e, uint64_t from)
{
    if (q->failed_from != UINT64_MAX)
        return;
    q->error = *e;
    q->failed_from = from;
}

/* By the queue's thread: everything behind what is launched. */
static void queue_fail(cuda_queue *q, const pt_error *e)
{
    pthread_mutex_lock(&q->lock);
    fail_locked(q, e, q->launched + 1);
    pthread_mutex_unlock(&q->lock);
}

static bool queue_failed(cuda_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool failed = q->failed_from != UINT64_MAX;
    pthread_mutex_unlock(&q->lock);
    return failed;
}

/* ---- timeline ---- */

/* With the lock held. A value whose event cannot be asked any more counts as reached, by a queue that has failed. */
static bool reached_locked(cuda_queue *q, uint64_t value)
{
    if (q->reached >= value)
        return true;
    if (q->launched < value)
        return false;
    cudaError_t error = cudaEventQuery(q->events[value % EVENTS]);
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return false;
    }
    if (error) {
        pt_error e = {0};
        cuda_fail(&e, error, "computing");
        fail_locked(q, &e, q->reached + 1);
    }
    q->reached = value;
    return true;
}

/* Looks often at first (generation waits for single tokens), then every 20 us, and leaves the core to others. */
static void timeline_await(cuda_queue *q, uint64_t value)
{
    for (int turn = 0;; turn++) {
        pthread_mutex_lock(&q->lock);
        bool reached = reached_locked(q, value);
        pthread_mutex_unlock(&q->lock);
        if (reached)
            return;
        if (turn >= QUICK_TURNS)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

static void run_signal(cuda_queue *q, uint64_t value)
{
    if (value > EVENTS)
        timeline_await(q, value - EVENTS);
    pthread_mutex_lock(&q->lock);
    cudaError_t error = cudaEventRecord(q->events[value % EVENTS], q->stream);
    if (error) {
        pt_error e = {0};
        cuda_fail(&e, error, "recording an event");
        fail_locked(q, &e, value);
    }
    q->launched = value;
    pthread_cond_broadcast(&q->launched_more);
    pthread_mutex_unlock(&q->lock);
}

/* The stream waits for a value of another stream of this GPU. */
static int wait_stream(cuda_queue *q, cuda_queue *other, uint64_t value, pt_error *e)
{
    cudaError_t error = cudaSuccess;
    int failed = 0;
    pthread_mutex_lock(&other->lock);
    while (other->launched < value)
        pthread_cond_wait(&other->launched_more, &other->lock);
    if (value >= other->failed_from) {
        *e = other->error;
        failed = other->error.code ? other->error.code : PT_FAILED;
    } else if (other->reached < value) {
        error = cudaStreamWaitEvent(q->stream, other->events[value % EVENTS], 0);
    }
    pthread_mutex_unlock(&other->lock);
    return error ? cuda_fail(e, error, "waiting for another queue") : failed;
}

static int run_wait(cuda_queue *q, queue *other, uint64_t value, pt_error *e)
{
    bool same = other->device->table->sync == cuda_queue_sync && own(other)->device == q->device;
    return same ? wait_stream(q, own(other), value, e) : queue_sync(other, value, e);
}

/* ---- marks ---- */

/* With the lock held: the times of the marks that are complete. */
static void resolve_locked(cuda_queue *q)
{
    while (q->marks_n) {
        mark *m = &q->marks[q->marks_first];
        float ms;
        cudaError_t error = cudaEventElapsedTime(&ms, q->start, m->event);
        if (error)
            cudaGetLastError();
        if (error == cudaErrorNotReady)
            return;
        *m->ns = q->start_ns + (error ? 0 : (int64_t)((double)ms * 1e6));
        q->marks_first = (q->marks_first + 1) % MARKS;
        q->marks_n--;
    }
}

static int marks_open(cuda_queue *q, pt_error *e)
{
    cudaError_t error = cudaEventCreate(&q->start);
    q->marks = calloc(MARKS, sizeof *q->marks);
    if (!q->marks)
        return pt_fail(e, PT_FAILED, "no memory for the marks of a trace");
    for (int i = 0; i < MARKS && !error; i++)
        error = cudaEventCreate(&q->marks[i].event);
    return error ? cuda_fail(e, error, "opening a trace") : 0;
}

/* When the stream is idle is known after waiting for it: marks count from there. Only where none is open: nobody else looks at `start`
 * then, so the lock is left to those who wait for this queue. It takes the stream tens of microseconds, hence seldom. This thread may
 * lose the processor between event and clock: then once more. */
static cudaError_t anchor(cuda_queue *q)
{
    enum { TRIES = 4, QUICK_NS = 50000 };
    cudaError_t error = cudaStreamSynchronize(q->stream);
    bool quick = false;
    for (int i = 0; i < TRIES && !error && !quick; i++) {
        int64_t from = now_ns();
        error = cudaEventRecord(q->start, q->stream);
        if (!error)
            error = cudaEventSynchronize(q->start);
        q->start_ns = now_ns();
        quick = q->start_ns - from < QUICK_NS;
    }
    return error;
}

/* A CPU queue that waits for this one resolves marks in the middle of a step. */
static int run_mark(cuda_queue *q, int64_t *ns, pt_error *e)
{
    int failed = q->marks ? 0 : marks_open(q, e);
    if (failed)
        return failed;
    pthread_mutex_lock(&q->lock);
    bool none = !q->marks_n, full = q->marks_n == MARKS; /* only this thread opens any */
    pthread_mutex_unlock(&q->lock);
    const bool stale = !q->start_ns || now_ns() - q->start_ns > FRESH_NS;
    cudaError_t error = none && stale ? anchor(q) : full ? cudaStreamSynchronize(q->stream) : cudaSuccess;
    pthread_mutex_lock(&q->lock);
    if (full)
        resolve_locked(q);
    mark *m = &q->marks[(q->marks_first + q->marks_n) % MARKS];
    if (!error)
        error = cudaEventRecord(m->event, q->stream);
    if (!error) {
        m->ns = ns;
        q->marks_n++;
    }
    pthread_mutex_unlock(&q->lock);
    return error ? cuda_fail(e, error, "tracing") : 0;
}

/* ---- ops ---- */

#define NAME(KIND, name, member, doing) [OP_##KIND] = doing,
static const char *const op_names[OP_KINDS] = {ALL_OPS(NAME)};
#undef NAME

/* Host memory that is not pinned has no address on the GPU: it is cleared here, in its turn. */
static cudaError_t cuda_zero(const op_copy *o, cudaStream_t s)
{
    struct cudaPointerAttributes where;
    cudaError_t error = cudaPointerGetAttributes(&where, o->dst);
    if (error || where.type != cudaMemoryTypeUnregistered) /* pinned memory may have another address there */
        return error ? error : cudaMemsetAsync(where.devicePointer ? where.devicePointer : o->dst, 0, o->bytes, s);
    error = cudaStreamSynchronize(s);
    memset(o->dst, 0, o->bytes);
    return error;
}

static cudaError_t cuda_copy_rows(const op_copy_rows *o, cudaStream_t s)
{
    return cudaMemcpy2DAsync(o->dst, o->lddst, o->src, o->ldsrc, o->bytes, (size_t)o->rows, cudaMemcpyDefault, s);
}

static cudaError_t cuda_copy(const op_copy *o, cudaStream_t s)
{
    return cudaMemcpyAsync(o->dst, o->src, o->bytes, cudaMemcpyDefault, s);
}

/* An event that has not been recorded yet is complete. */
static cudaError_t keep_pace(cuda_queue *q)
{
    if (++q->ops % PACE_OPS)
        return cudaSuccess;
    cudaEvent_t pace = q->paces[q->ops / PACE_OPS % PACES];
    cudaError_t error = cudaEventSynchronize(pace);
    return error ? error : cudaEventRecord(pace, q->stream);
}

static int op_launch(cuda_queue *q, const op *o, pt_error *e)
{
    cudaStream_t s = q->stream;
    int error = keep_pace(q);
    if (error)
        return cuda_fail(e, (cudaError_t)error, "computing");
    switch (o->kind) {
#define LAUNCH(KIND, name, member, doing) case OP_##KIND: error = cuda_##name(&o->member, s); break;
#define CALL(KIND, name, member, doing) case OP_##KIND: return cuda_##name##_launch(q->device->name, &o->member, s, e);
    MEMORY_OPS(LAUNCH)
    KERNEL_OPS(LAUNCH)
    LIBRARY_OPS(CALL)
#undef LAUNCH
#undef CALL
    default: return pt_fail(e, PT_FAILED, "op %d does not exist on a CUDA queue; this is a bug in the schedule", o->kind);
    }
    return error ? cuda_fail(e, (cudaError_t)error, op_names[o->kind]) : 0;
}

/* ---- the thread ---- */

static void record_run(void *arg, const record *r)
{
    cuda_queue *q = arg;
    pt_error e = {0};
    int failed = 0;
    switch (r->kind) {
    case RECORD_START:
        cudaSetDevice(q->device->ordinal);
        ring_thread_is_short();
        break;
    case RECORD_OP: failed = queue_failed(q) ? 0 : op_launch(q, &r->op, &e); break;
    case RECORD_WAIT: failed = queue_failed(q) ? 0 : run_wait(q, r->wait.other, r->wait.value, &e); break;
    case RECORD_SIGNAL: run_signal(q, r->value); break;
    case RECORD_MARK: failed = run_mark(q, r->ns, &e); break;
    case RECORD_MARK_WORK: case RECORD_MARK_WAITED: break; /* no processor computes (device.h) */
    case RECORD_STOP: cudaStreamSynchronize(q->stream); break;
    }
    if (failed)
        queue_fail(q, &e);
}

/* ---- the other side ---- */

void cuda_queue_submit(queue *q, const op *o) { ring_op(own(q)->ring, o); }
uint64_t cuda_queue_signal(queue *q) { return ring_signal(own(q)->ring); }
void cuda_queue_wait(queue *q, queue *other, uint64_t value) { ring_wait(own(q)->ring, other, value); }
void cuda_queue_mark(queue *q, int64_t *ns) { ring_mark(own(q)->ring, ns); }

int cuda_queue_sync(queue *base, uint64_t value, pt_error *e)
{
    cuda_queue *q = own(base);
    cudaSetDevice(q->device->ordinal);
    timeline_await(q, value);
    pthread_mutex_lock(&q->lock);
    resolve_locked(q);
    int failed = q->failed_from == UINT64_MAX ? 0 : q->error.code ? q->error.code : PT_FAILED;
    if (failed && e)
        *e = q->error;
    pthread_mutex_unlock(&q->lock);
    return failed;
}

static void events_close(cuda_queue *q)
{
    for (int i = 0; i < EVENTS; i++)
        if (q->events[i])
            cudaEventDestroy(q->events[i]);
    for (int i = 0; i < PACES; i++)
        if (q->paces[i])
            cudaEventDestroy(q->paces[i]);
    for (int i = 0; q->marks && i < MARKS; i++)
        if (q->marks[i].event)
            cudaEventDestroy(q->marks[i].event);
    if (q->start)
        cudaEventDestroy(q->start);
    free(q->marks);
}

int cuda_queue_open(device *d, const char *name, int threads, queue **out, pt_error *e)
{
    *out = NULL;
    cuda_queue *q = calloc(1, sizeof *q);
    if (!q)
        return pt_fail(e, PT_FAILED, "no memory for the queue '%s'", name);
    q->base.device = d;
    q->device = (cuda_device *)d;
    q->failed_from = UINT64_MAX;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->launched_more, NULL);
    cudaSetDevice(q->device->ordinal);
    cudaError_t error = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    for (int i = 0; i < EVENTS && !error; i++)
        error = cudaEventCreateWithFlags(&q->events[i], cudaEventDisableTiming);
    for (int i = 0; i < PACES && !error; i++)
        error = cudaEventCreateWithFlags(&q->paces[i], cudaEventDisableTiming | cudaEventBlockingSync);
    int failed = error ? cuda_fail(e, error, "opening a queue") : ring_open(name, record_run, q, &q->ring, e);
    if (failed) {
        cuda_queue_close(&q->base);
        return failed;
    }
    *out = &q->base;
    return 0;
}

void cuda_queue_close(queue *base)
{
    if (!base)
        return;
    cuda_queue *q = own(base);
    cudaSetDevice(q->device->ordinal);
    ring_close(q->ring);
    cuda_matmul_leave(q->device->matmul, q->stream);
    events_close(q);
    if (q->stream)
        cudaStreamDestroy(q->stream);
    pthread_cond_destroy(&q->launched_more);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
