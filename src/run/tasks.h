/* tasks.h - runs each kind of task of a schedule as ops on its queue. */
#ifndef PT_TASKS_H
#define PT_TASKS_H

#include "schedule/schedule.h"
#include "run/executor.h"
#include "run/listed_rows.h"
#include "run/touched.h"

struct comm;
struct disk_rows;
struct comm_move;
/* What a task sends and receives, and the memory that it sets to 0 before. */
typedef struct shared_task {
    struct comm_move *moves;
    struct { float *at; size_t bytes; } zeros[2];
    int n, room;
    bool failed; /* no memory for `moves` */
} shared_task;

/* Where the mailbox has the copies of OBJECT_LOSS, OBJECT_SUMSQ and OBJECT_ROUTING. */
typedef struct outcome_place { size_t loss, sumsq, routing; } outcome_place;

typedef struct task_runner {
    const schedule_input *in;
    const walker *walker;            /* its mailbox is the loader's copy of the batch and of what a step ends with */
    outcome_place outcome;
    const void **pieces;             /* address of each piece of the current task's weights */
    layer_set layers;
    carried_layout carries;
    float loss_scale, baseline;
    uint64_t dropout;                /* key of the steps' dropout; 0: none */
    update_params update;
    struct comm *comm;               /* with several ranks */
    shared_task *shared[SCHEDULE_KINDS]; /* [kind][task]; NULL: one rank */
    int shared_n[SCHEDULE_KINDS];
    touched_rows touched;            /* in the current step */
    struct disk_rows *rows, *slot_rows; /* of tables on the disk, and in slots there; NULL: none is there */
    listed_rows listed;               /* in the gradient of a table that is looked up */
} task_runner;

int task_runner_open(task_runner *runner, const schedule_input *in, const walker *w, const outcome_place *at, pt_error *e);
void task_runner_close(task_runner *runner);
/* The address of an object among the task's operands; NULL: it has none. */
char *operand_of(const task_runner *runner, const schedule *sched, const task *t, object_kind kind, int index, int micro);
void task_run(task_runner *runner, const schedule *sched, const task *t, queue *q);

#endif
