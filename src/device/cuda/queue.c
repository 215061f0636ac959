/* queue.c - a queue is a stream, a thread that launches onto it (device/ring.h), and a timeline of events.
 *
 *     records:    op   op   signal 7   wait(other, 3)   op   mark
 *     thread:     launch    record      let the stream       launch ...
 *                           event 7     wait for event 3
 *     stream:     [=op=][==op==] 7 ........................ [=op=]
 *
 * The event of value v is events[v % EVENTS]; the value is reached when the event is complete, which waiters poll (cudaEventQuery). An
 * event is reused only after its old value is known to be reached, so the event of a value > reached always belongs to that value.
 *
 * A stream holds about a thousand launches; a further launch blocks, with any lock held. So the thread stays at most 500 ops ahead, most of
 * which are one launch: every PACE_OPS ops it records an event, and waits for the event PACES before.
 *
 * Waits. For a queue of the same GPU the stream waits, once the other thread has recorded the event; this thread continues to launch. For a
 * queue of the CPU this thread waits, and with it the rest of this stream, but neither other streams nor the caller. Alternatives have
 * drawbacks: stream memory operations do not exist on every driver and virtual machine, and host functions of all streams share one thread,
 * where one that waits delays the others and may deadlock. The cost is that nothing is launched ahead across a wait for the host; only
 * copies wait for the host, and they are long.
 *
 * Errors are sticky, as on the CPU (device/cpu/queue.c): after a failed launch, this queue and those that wait for later values skip their
 * ops. An error in a kernel is CUDA's: it breaks the whole context, the next query of an event returns it, and every queue reports it.
 *
 * Marks are events with a time. cudaEventElapsedTime returns fp32 milliseconds, so times are relative to an event that is recorded at a
 * known time, when the queue is idle, and again after a second. Events for marks are created with the first mark (when a trace is
 * requested), and resolved by sync, also by that of other queues.
 *
 * A cycle of waits hangs; so does waiting for a value that is never signaled.
 */
#include "device/cuda/cuda.h"
#include "device/cuda/kernels.h"
#include "device/ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENTS = 512, MARKS = 1024, QUICK_TURNS = 200, NAP_NS = 20000, FRESH_NS = 1000000000 };
enum { PACES = 4, PACE_OPS = 128 }; /* an event every PACE_OPS ops; the thread is at most PACES * PACE_OPS ops ahead */

typedef struct mark { cudaEvent_t event; int64_t *ns; } mark;

typedef struct cuda_queue {
    queue base; /* first, so that a queue * is a cuda_queue * */
    cuda_device *device;
    cudaStream_t stream;
    ring *ring;
    pthread_mutex_t lock;           /* protects everything below */
    pthread_cond_t launched_more;
    uint64_t launched, reached;     /* the last value whose event is recorded; whose event is known to be complete */
    uint64_t failed_from;           /* UINT64_MAX: nothing has failed */
    pt_error error;
    cudaEvent_t events[EVENTS];
    cudaEvent_t paces[PACES];
    uint64_t ops;                   /* launched */
    cudaEvent_t start;              /* the reference of the marks, and its time */
    int64_t start_ns;
    mark *marks;                    /* MARKS entries; NULL before the first mark */
    int marks_first, marks_n;       /* a ring of unresolved marks */
} cuda_queue;

static cuda_queue *own(queue *q) { return (cuda_queue *)q; }

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- failure ---- */

/* Needs the lock. Keeps the first error. */
static void fail_locked(cuda_queue *q, const pt_error *e, uint64_t from)
{
    if (q->failed_from != UINT64_MAX)
        return;
    q->error = *e;
    q->failed_from = from;
}

/* Called by the queue's thread: everything after the last launch fails. */
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

/* Needs the lock. If an event can no longer be queried, its value counts as reached, by a failed queue. */
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

/* Polls continuously at first (generation waits for single tokens), then every 20 us, which frees the core. */
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

/* Makes the stream wait for a value of another stream of this GPU. */
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

/* Needs the lock. Computes the times of complete marks. */
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
        const int64_t ahead = *m->ns - now_ns();
        if (ahead > 0) { /* a complete mark lies in the past: the reference's time was read late */
            *m->ns -= ahead;
            q->start_ns -= ahead;
        }
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

/* Waits until the stream is idle, and records the reference event of the marks. Called only without unresolved marks, when no other thread
 * reads `start`, so that it needs no lock. Rare, because it costs the stream tens of microseconds. Repeated if this thread is preempted
 * between the event and the clock; what remains of that delay is found when marks are resolved. */
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

/* CPU queues that wait for this one resolve marks in the middle of a step. */
static int run_mark(cuda_queue *q, int64_t *ns, pt_error *e)
{
    int failed = q->marks ? 0 : marks_open(q, e);
    if (failed)
        return failed;
    pthread_mutex_lock(&q->lock);
    bool none = !q->marks_n, full = q->marks_n == MARKS; /* only this thread adds marks */
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

/* Pageable host memory has no address on the GPU: the thread clears it, after the previous ops. */
static cudaError_t cuda_zero(const op_copy *o, cudaStream_t s)
{
    struct cudaPointerAttributes where;
    cudaError_t error = cudaPointerGetAttributes(&where, o->dst);
    if (error || where.type != cudaMemoryTypeUnregistered) /* pinned memory may have another address on the GPU */
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

/* An event that was never recorded counts as complete. */
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

/* ---- the caller's side ---- */

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
