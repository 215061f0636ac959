/* executor.h - runs a schedule on real queues.
 *
 * Its walker (walker.h) owns the memory, the queues and the disk file. It decides nothing: the schedule gives the queue, waits and
 * addresses of every task. Between runs all queues are idle and the placements hold the training state, which state.h reads and writes.
 */
#ifndef PT_EXECUTOR_H
#define PT_EXECUTOR_H

#include "run/walker.h"

typedef struct executor executor;

typedef struct executor_options {
    device *device, *host;          /* the same object on a CPU */
    schedule_input input;           /* must outlive the executor */
    unsigned schedules;             /* bit set of schedule_kind: the ones that will run */
    uint64_t budget[TIERS];
    const char *disk_path;          /* folder for the disk tier's file */
    const disk_options *disk;       /* may be NULL */
    struct slots *slots;            /* weights and states on the disk have two slots (slots.h), for commit_states; NULL: one */
    int threads;                    /* compute threads, 0: the device's default */
    struct comm *comm;              /* connects to the other ranks of the packing; NULL: one rank */
    struct comm *device_comm;       /* the same for what lies on the device; NULL: `comm` reaches it */
} executor_options;

/* Builds and checks the schedules, allocates the memory, starts the queues. */
int executor_open(const executor_options *o, executor **out, pt_error *e);
void executor_close(executor *exec);

/* Sets the inputs of the next run, batch * seq_len each, in the loader's memory. If the shape has no documents, `first` is ignored and
 * positions stay as they are; if it has no weights, `weights` is ignored. */
typedef struct executor_batch { int32_t *ids, *targets, *first, *positions; float *weights; } executor_batch;
executor_batch executor_input(executor *exec);
/* Positions that restart at each document, computed from `first`. */
void executor_place(executor *exec);

/* Runs one schedule to its end. loss_scale: the factor of one target token in the gradient (1 / number of targets), times its weight. */
int executor_run(executor *exec, schedule_kind kind, float loss_scale, const update_params *u, pt_error *e);
/* Sets the baseline of preference_rule in the next runs; 0 before. */
void executor_set_baseline(executor *exec, float baseline);
/* Sets the key of dropout in the next steps; 0: none, as before. An evaluation has none. */
void executor_set_dropout(executor *exec, uint64_t key);

const float *executor_losses(const executor *exec);  /* (batch, seq_len) of the last run, of all ranks in order */
const float *executor_right(const executor *exec);   /* in the same order: 1 if the target was the most probable token, else 0 */
const float *executor_scores(const executor *exec);  /* (batch, seq_len, shape.scores) of the last evaluation, by one rank */
/* Of the last step, for each unit of all ranks in order and each layer with experts: where the rows of each expert end (model/shape.h). */
const int32_t *executor_routing(const executor *exec);
const double *executor_sumsq(const executor *exec);  /* sumsq_count() partial sums of the last step, of all ranks */
struct comm *executor_comm(const executor *exec);    /* NULL: one rank */
const schedule *executor_schedule(const executor *exec, schedule_kind kind);
const schedule_input *executor_input_of(const executor *exec);
int executor_threads(const executor *exec); /* compute threads */

/* Turns the timing of tasks in the next runs on or off. It takes two clock reads per task. */
void executor_time_tasks(executor *exec, bool on);
/* The times of the tasks in the schedule's last run; NULL if it was not timed. */
const task_time *executor_times(const executor *exec, schedule_kind kind);

/* Size of the arena: the largest need of the schedules, with scratch for saving. All of it is allocated at open. */
uint64_t executor_bytes(const executor *exec, tier t);
/* The highest end of a buffer that a task or loading and saving has been given so far, in whole pages. It is recorded as tasks are issued,
 * not taken from the plan, and nothing beyond it has been written (a test looks). Resident memory would not tell, because all pages are
 * resident before the first step. */
uint64_t executor_peak_bytes(const executor *exec, tier t);
/* For state.h: the address of a placement (NULL if on the disk; on the device, with a host tier, only for copies), and scratch in host
 * memory that is free between runs: at most *bytes; *bytes is set to its size. */
char *executor_placement(const executor *exec, object_kind kind, int chunk, uint64_t *disk_offset);
char *executor_scratch(executor *exec, uint64_t *bytes);
/* Copies to, from or inside the device's memory, or clears it (src NULL), and waits for the end. */
int executor_move(executor *exec, void *to, const void *from, size_t bytes, pt_error *e);
/* Reads or writes an object that lies on the disk. */
int executor_disk(executor *exec, bool write, object_kind kind, int chunk, void *memory, pt_error *e);

#endif
