/* executor.h - walks a schedule on real queues.
 *
 * It owns the arenas (one a tier, taken once), the queues and the disk file, and decides nothing: every
 * task's queue, waits and addresses stand in the schedule. Between runs all queues are idle and the
 * placements hold the state of the training; state.h reads and writes it there.
 */
#ifndef PT_EXECUTOR_H
#define PT_EXECUTOR_H

#include "device/device.h"
#include "io/disk.h"
#include "predict/simulate.h"

typedef struct executor executor;

typedef struct executor_options {
    device *device, *host;          /* the same on a CPU */
    schedule_input input;           /* outlives the executor */
    unsigned schedules;             /* bit set of schedule_kind: those that will be run */
    uint64_t budget[TIERS];
    const char *disk_path;          /* folder for the disk tier's file */
    const disk_options *disk;       /* may be NULL */
    int threads;                    /* compute threads, 0: the device's default */
    struct comm *comm;              /* to the other ranks of the packing; NULL: there are none */
    struct comm *device_comm;       /* the same for what lies on the device; NULL: `comm` reaches it */
} executor_options;

/* Builds and checks the schedules, takes the memory, starts the queues. */
int executor_open(const executor_options *o, executor **out, pt_error *e);
void executor_close(executor *x);

/* Inputs of the next run: batch * seq_len each, in the loader's memory. Where the shape says nothing of documents, first is not looked
 * at and positions stay as they are; of weights the same. */
typedef struct executor_batch { int32_t *ids, *targets, *first, *positions; float *weights; } executor_batch;
executor_batch executor_input(executor *x);
/* Positions that begin anew with each document, from `first`. */
void executor_place(executor *x);

/* Runs one schedule to its end. loss_scale: what one target token counts in the gradient (1 / their number), times its weight. */
int executor_run(executor *x, schedule_kind kind, float loss_scale, const update_params *u, pt_error *e);

const float *executor_losses(const executor *x);  /* (batch, seq_len) of the last run, of all ranks one after the other */
const float *executor_right(const executor *x);   /* the same: 1 where the target was the most probable token, else 0 */
const double *executor_sumsq(const executor *x);  /* sumsq_count() partial sums of the last step, whoever has computed them */
struct comm *executor_comm(const executor *x);    /* NULL: one rank */
const schedule *executor_schedule(const executor *x, schedule_kind kind);
const schedule_input *executor_input_of(const executor *x);
int executor_threads(const executor *x); /* that the processor may use */

/* Whether the next runs take the time of each task: two looks at the clock a task. */
void executor_time_tasks(executor *x, bool on);
/* Of the tasks of the schedule's last run; NULL where they were not taken. */
const task_time *executor_times(const executor *x, schedule_kind kind);

/* Largest arena over the schedules, with the room that saving needs. All of it is taken from the system at open. */
uint64_t executor_bytes(const executor *x, tier t);
/* How far into its arena the run has come: the end of the highest buffer that a task was given so far, or that loading and
 * saving were, in whole pages. Kept task by task as they are issued, not taken from the plan; nothing beyond it has ever been written (a
 * test looks). What of it the system holds in RAM can tell nothing, since all pages are there before the first step. */
uint64_t executor_peak_bytes(const executor *x, tier t);
/* For state.h: where a placement lies (NULL on the disk; with a host tier, what lies on the device is only to be moved),
 * and a room in host memory that is free between runs: *bytes of it, at most those that *bytes asks for. */
char *executor_placement(const executor *x, object_kind kind, int chunk, uint64_t *disk_offset);
char *executor_scratch(executor *x, uint64_t *bytes);
/* Copies to, from or inside the device's memory, or clears it (from NULL), and waits for the end. */
int executor_move(executor *x, void *to, const void *from, size_t bytes, pt_error *e);
int executor_disk(executor *x, bool write, uint64_t offset, void *memory, size_t bytes, pt_error *e);

#endif
