/* simulate.h - the time of a schedule: simulates the list that the executor runs, with given costs.
 *
 * Queues run concurrently, the tasks of a queue in order, each when its waits are over. Time advances from event to event (a task begins or
 * ends). Between two events every running task proceeds at the speed that contention (costs.slow, slow_more) leaves it. Arithmetic after a
 * pause loses costs.wake_latency. When costs.quota is used up, everything stands still for the rest of the period; a step that uses less
 * loses nothing, however busy computation and disk are. A period begins with the step, and the step takes at least as long as the quota
 * needs to give its processor time. The simulator reads no clock and uses no device.
 */
#ifndef PT_SIMULATE_H
#define PT_SIMULATE_H

#include "predict/costs.h"

typedef enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE, PHASES } phase;
extern const char *const phase_names[PHASES];
/* Phase of a task: the head belongs to backward (in an evaluation to forward), transfers to none (-1). */
int task_phase(const task *t);

/* Start and end of a task. */
typedef struct task_time { int64_t start_ns, end_ns; } task_time;

typedef struct simulation {
    double total_ns;                  /* from the first task's start to the last one's end (or as long as the quota needs), plus step_ns */
    double busy_ns[QUEUES];
    double wait_ns[QUEUES][QUEUES];   /* [a][b]: idle time of a before a task, charged to b if a task of b was the last that it waited */
                                      /* for; not the time after a's last task */
    double phase_ns[PHASES];          /* busy time of the compute and host queues by phase */
    double *start_ns, *end_ns;        /* of each task, relative to the start of the first; only with `times` */
} simulation;

/* `times`: also compute each task's start and end (simulation_free). Fails if memory runs out, or if queues wait for each other (impossible
 * in a schedule that was built or checked). One pass over the tasks, at most two allocations. */
int simulate(const schedule_input *in, const schedule *sched, const costs *costs, bool times, simulation *out, pt_error *e);
void simulation_free(simulation *s);

/* Builds and simulates the schedules of a steady step of the plan (with the updates of a drained plan), or of the evaluation of a model
 * that is not trained. Returns its time. */
int simulate_plan(const schedule_input *in, const costs *costs, double *step_ns, pt_error *e);

#endif
