/* simulate.h - how long a schedule takes: the very list that the executor walks, priced by measured costs.
 *
 * Queues run at the same time, tasks of one in order, each when its waits are over. What runs side by side slows
 * down as costs.slow and slow_more say: time goes from event to event (a task begins or ends), and between two events every
 * running task proceeds at the speed that its neighbours leave it. Arithmetic that has rested loses what costs.wake_latency
 * says. Where costs.quota is used up before its period is over, all stands still for the rest of it: a step that computes beside its disk
 * for less than that loses nothing, however busy both are in between. A period begins with the step, whose processor time it takes at
 * least. Pure: no clock, no device.
 */
#ifndef PT_SIMULATE_H
#define PT_SIMULATE_H

#include "predict/costs.h"

typedef enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE, PHASES } phase;
extern const char *const phase_names[PHASES];
/* Phase of a task: the head belongs to backward (evaluation's to forward), transfers to none (-1). */
int task_phase(const task *t);

/* Of a task that ran. */
typedef struct task_time { int64_t start_ns, end_ns; } task_time;

typedef struct simulation {
    double total_ns;                  /* from the first task's start to the end of the last (or as long as a quota suffices for), plus
                                         costs.step_ns */
    double busy_ns[QUEUES];
    double wait_ns[QUEUES][QUEUES];   /* [a][b]: a stood still for a task of b, the last that its next one waited for; not
                                         after a's own last */
    double phase_ns[PHASES];          /* busy time of the compute and host queues by phase */
    double *start_ns, *end_ns;        /* of each task, from the first one's start; only with `times` */
} simulation;

/* `times`: also each task's start and end (simulation_free). Fails for want of memory, or where queues wait for each other
 * (never in a schedule that was built or checked). One pass over the tasks, two allocations at most. */
int simulate(const schedule_input *in, const schedule *s, const costs *c, bool times, simulation *out, pt_error *e);
void simulation_free(simulation *s);

/* Time of a steady step of the plan, all its schedules counted (a drained plan's updates too): builds and simulates them.
 * A model that is not trained: of its evaluation. */
int simulate_plan(const schedule_input *in, const costs *c, double *step_ns, pt_error *e);

#endif
