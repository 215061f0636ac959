/* adjust.h - corrects costs by the measured times of a run's tasks: measuring during the run, under its real conditions.
 *
 * Tasks are grouped into kinds that share a cost: a kind of layer at a save level, forward or backward; the head; updates on the device;
 * reads; and so on. The ratio of measured to predicted time of a kind corrects its cost. Kinds that did not run keep their cost, except
 * that the other save levels of a layer follow those that ran.
 */
#ifndef PT_ADJUST_H
#define PT_ADJUST_H

#include "predict/simulate.h"

enum {
    WORK_EMBED, WORK_HEAD, WORK_HEAD_EVAL, WORK_FINISH, WORK_EMBED_FINISH, WORK_UPDATE_DEVICE, WORK_UPDATE_HOST, WORK_TO_DEVICE,
    WORK_FROM_DEVICE, WORK_READ, WORK_WRITE, WORK_GATHER, WORK_SCATTER, WORK_LOOK_UP,
    WORK_LAYERS, /* + ((kind * SAVE_LEVELS) + level) * 2, + 1 for backward */
    WORK_KINDS = WORK_LAYERS + COST_LAYER_KINDS * SAVE_LEVELS * 2
};

typedef struct work_times { int runs; double ns[WORK_KINDS]; } work_times; /* sums over runs of one schedule */

/* Adds the times of one run. */
void work_times_add(work_times *w, const schedule_input *in, const schedule *sched, const costs *costs, const task_time *times);

typedef struct work_run { const schedule *s; const work_times *times; } work_run;

/* Corrects *costs so that simulating the schedules (of one step) gives each kind of work its measured time. Kinds that make less than
 * `least_share` of the whole keep their cost, because one late thread distorts a short time. */
int costs_adjust(costs *costs, const schedule_input *in, const work_run *runs, int n, double least_share, pt_error *e);

/* Multiplies all times by `by`. */
void costs_scale(costs *costs, double by);

#endif
