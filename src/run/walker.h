/* walker.h - walks schedules on real queues: what the executors of training (executor.h) and of the Deep Ritz method (ritz/runner.h)
 * share.
 *
 * A walker owns the memory of a run (an arena for each tier and a mailbox in host memory, all allocated at open), the file of the disk
 * tier, and the queues. It decides nothing: a schedule gives the queue, the waits and the addresses of every task, and the owner's function
 * turns a task into ops. Nothing is waited for until walker_sync, so a walk may be submitted while an earlier one still runs.
 */
#ifndef PT_WALKER_H
#define PT_WALKER_H

#include "device/device.h"
#include "io/disk.h"
#include "predict/simulate.h"

typedef struct walker_options {
    device *device, *host;      /* the same object on a CPU */
    uint64_t bytes[TIERS];      /* of the arenas and of the disk file */
    uint64_t mailbox_bytes;
    const char *disk_path;      /* folder for the disk tier's file */
    const disk_options *disk;   /* may be NULL */
    struct slots *slots;        /* where weights and states on the disk lie, if they have two slots (slots.h); NULL: none have */
    int threads;                /* compute threads, 0: the device's default */
    unsigned queues;            /* bit set of queue_kind: the ones that tasks use */
    int tasks_n;                /* the most tasks of a schedule */
} walker_options;

typedef struct walker {
    walker_options o;
    uint64_t peak[TIERS];       /* see walker_raise_peak */
    char *arena[TIERS];         /* NULL: the tier has none */
    char *mailbox;
    disk_file *disk;
    disk_channel *reader, *writer;
    disk_channel *slot_reader, *slot_writer;
    queue *queues[QUEUES];      /* NULL: not used */
    uint64_t last[QUEUES];      /* timeline value after all that was submitted; 0: nothing was */
    uint64_t *values;           /* timeline value after each task of the current walk */
} walker;

/* The queues that the tasks of a schedule use, as a bit set. */
unsigned walker_queues_of(const schedule *sched);
/* On failure close it, too. */
int walker_open(walker *w, const walker_options *o, pt_error *e);
void walker_close(walker *w);

typedef struct walk {
    const schedule *schedule;
    const bool *awaited;        /* tasks whose end is signaled; NULL: all */
    bool first;                 /* the peak can rise only in the first walk of a schedule */
    task_time *times;           /* of each task, valid after walker_sync; NULL: not measured */
    void (*run)(void *arg, const schedule *s, const task *t, queue *q); /* submits a task's ops */
    void *arg;
} walk;
void walker_submit(walker *w, const walk *k);
/* Waits for the end of all that was submitted, and returns the first error. */
int walker_sync(walker *w, pt_error *e);

/* The highest end of a buffer that a task has been given so far, in whole pages. It is recorded as tasks are submitted, not taken from the
 * plan. Owners add what they access between walks. */
void walker_raise_peak(walker *w, tier t, uint64_t end);

/* ---- for the owner's tasks ---- */

char *walker_address(const walker *w, const schedule *sched, int buffer); /* NULL: on the disk */
/* NULL: the task has no such operand. */
char *walker_operand(const walker *w, const schedule *sched, const task *t, object_kind kind, int index, int micro);
/* TASK_COPY, TASK_READ, TASK_WRITE */
void walker_transfer(const walker *w, const schedule *sched, const task *t, queue *q);
/* The transfer of a buffer on the disk, from or to memory. Call it in the order in which transfers are submitted. */
op_disk walker_disk(const walker *w, bool write, const buffer *b, void *memory);
/* Where an object lies between walks; NULL: it has no placement. */
const buffer *walker_placement(const schedule *sched, object_kind kind, int index);

#endif
