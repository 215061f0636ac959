/* ring.h - the part of a queue that all backends share: a ring of records, and the thread that runs them.
 *
 *     ring_op, ring_signal, ring_wait, ring_mark     the ring's thread
 *          |                                              |
 *          v                                              v
 *     [ . . . op op signal op wait op mark . . . . ]      RING_RECORDS records, allocated at open
 *             ^ tail % records        ^ head % records
 *
 * head counts the records added, tail those that are finished. Both change under the ring's lock; only the thread accesses the record at
 * tail. The backend's `run` executes a record: on the CPU it computes, on CUDA it launches. Adding a record waits only for room.
 *
 * If `run` waits for something that never happens, ring_close hangs.
 */
#ifndef PT_DEVICE_RING_H
#define PT_DEVICE_RING_H

#include "device/device.h"

enum { RING_RECORDS = 1024 }; /* if this many are waiting, adding blocks until half of them are done */

/* RECORD_START is run once, before all others, to set up the thread. */
typedef enum record_kind {
    RECORD_START, RECORD_OP, RECORD_SIGNAL, RECORD_WAIT, RECORD_MARK, RECORD_MARK_WORK, RECORD_MARK_WAITED, RECORD_STOP
} record_kind;

typedef struct record {
    record_kind kind;
    union {
        op op;
        uint64_t value;                                /* RECORD_SIGNAL: 1, 2, 3, ... */
        struct { queue *other; uint64_t value; } wait;
        int64_t *ns;                                   /* RECORD_MARK... */
    };
} record;

typedef struct ring ring;

/* name: the thread's name in the system. */
int ring_open(const char *name, void (*run)(void *arg, const record *r), void *arg, ring **out, pt_error *e);
void ring_close(ring *r); /* runs what was added, then ends the thread */
/* Requests a short time slice for the calling thread, so that it runs soon after it wakes up although other threads compute, as is needed
 * to start transfers. Has no effect if the system does not support it (before Linux 6.12) or refuses. */
void ring_thread_is_short(void);

void ring_op(ring *r, const op *o);
uint64_t ring_signal(ring *r); /* the signal's value */
void ring_wait(ring *r, queue *other, uint64_t value);
void ring_mark(ring *r, int64_t *ns);
/* For backends whose queues have mark_work and mark_waited. */
void ring_mark_work(ring *r, int64_t *ns);
void ring_mark_waited(ring *r, int64_t *ns);

#endif
