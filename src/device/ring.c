#include "device/ring.h"

#include "base/pause.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN_TURNS = 1000 };

struct ring {
    void (*run)(void *arg, const record *r);
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, room; /* a new record; half of the ring is free */
    bool full;                 /* the caller waits for that */
    atomic_ullong head, tail;
    uint64_t signaled;
    record records[RING_RECORDS];
};

/* ---- the thread ---- */

static const record *record_next(ring *r)
{
    uint64_t tail = atomic_load(&r->tail);
    for (int turn = 0; turn < SPIN_TURNS && atomic_load(&r->head) == tail; turn++)
        cpu_pause();
    if (atomic_load(&r->head) == tail) {
        pthread_mutex_lock(&r->lock);
        while (atomic_load(&r->head) == tail)
            pthread_cond_wait(&r->work, &r->lock);
        pthread_mutex_unlock(&r->lock);
    }
    return &r->records[tail % RING_RECORDS];
}

static void record_done(ring *r)
{
    pthread_mutex_lock(&r->lock);
    const uint64_t waiting = atomic_load(&r->head) - (atomic_fetch_add(&r->tail, 1) + 1);
    if (r->full && waiting <= RING_RECORDS / 2) {
        r->full = false;
        pthread_cond_broadcast(&r->room);
    }
    pthread_mutex_unlock(&r->lock);
}

static void *ring_main(void *arg)
{
    ring *r = arg;
    r->run(r->arg, &(record){.kind = RECORD_START});
    for (bool stop = false; !stop;) {
        const record *next = record_next(r);
        r->run(r->arg, next);
        stop = next->kind == RECORD_STOP;
        record_done(r);
    }
    return NULL;
}

/* The first version of Linux's struct sched_attr, which the headers of the C library and of the kernel declare in conflicting ways. */
typedef struct thread_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
} thread_attributes;

/* If all processors are busy, a thread that wakes up waits for the end of another's time slice, usually about 3 ms: a read of 0.3 ms took 3
 * ms, and longer reads, which wait several times, a third more. A thread that requests a shorter slice runs first. */
void ring_thread_is_short(void)
{
    const uint64_t short_slice_ns = 200000;
    thread_attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) || a.policy != SCHED_OTHER)
        return;
    a.slice_ns = short_slice_ns;
    syscall(SYS_sched_setattr, 0, &a, 0);
}

/* ---- the caller's side ---- */

/* Returns with the lock held and room for one record. */
static record *record_begin(ring *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->full || atomic_load(&r->head) - atomic_load(&r->tail) == RING_RECORDS) {
        r->full = true;
        pthread_cond_wait(&r->room, &r->lock);
    }
    return &r->records[atomic_load(&r->head) % RING_RECORDS];
}

static void record_end(ring *r)
{
    atomic_fetch_add(&r->head, 1);
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

void ring_op(ring *r, const op *o)
{
    record *next = record_begin(r);
    next->kind = RECORD_OP;
    next->op = *o;
    record_end(r);
}

uint64_t ring_signal(ring *r)
{
    record *next = record_begin(r);
    uint64_t value = ++r->signaled;
    next->kind = RECORD_SIGNAL;
    next->value = value;
    record_end(r);
    return value;
}

void ring_wait(ring *r, queue *other, uint64_t value)
{
    record *next = record_begin(r);
    next->kind = RECORD_WAIT;
    next->wait.other = other;
    next->wait.value = value;
    record_end(r);
}

static void add_mark(ring *r, record_kind kind, int64_t *ns)
{
    record *next = record_begin(r);
    next->kind = kind;
    next->ns = ns;
    record_end(r);
}

void ring_mark(ring *r, int64_t *ns) { add_mark(r, RECORD_MARK, ns); }
void ring_mark_work(ring *r, int64_t *ns) { add_mark(r, RECORD_MARK_WORK, ns); }
void ring_mark_waited(ring *r, int64_t *ns) { add_mark(r, RECORD_MARK_WAITED, ns); }

int ring_open(const char *name, void (*run)(void *arg, const record *r), void *arg, ring **out, pt_error *e)
{
    *out = NULL;
    ring *r = calloc(1, sizeof *r);
    if (!r)
        return pt_fail(e, PT_FAILED, "no memory for the queue '%s'", name);
    r->run = run;
    r->arg = arg;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->room, NULL);
    int code = pthread_create(&r->thread, NULL, ring_main, r);
    if (code) {
        free(r);
        return pt_fail(e, PT_FAILED, "the thread of the queue '%s' could not be started: %s", name, strerror(code));
    }
    char short_name[16]; /* the thread's name in the system */
    strncpy(short_name, name, sizeof short_name - 1);
    short_name[sizeof short_name - 1] = '\0';
    pthread_setname_np(r->thread, short_name);
    *out = r;
    return 0;
}

void ring_close(ring *r)
{
    if (!r)
        return;
    record_begin(r)->kind = RECORD_STOP;
    record_end(r);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->room);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
