/* measured.h - the measured times of a run's steps, for comparison with the forecast.
 *
 * The time of every steady step is kept for the median. Tasks are timed in the first steps and then in one of sixteen, so that reading the
 * clock costs nothing measurable. A run may have no steady step: if it has only one, or if an evaluation or a checkpoint follows each, for
 * which the updates run. Then the times of those steps are used.
 */
#ifndef PT_MEASURED_H
#define PT_MEASURED_H

#include "predict/adjust.h"
#include "run/executor.h"

enum { MEASURED_STEPS = 256, MEASURED_RUNS = 32 };

typedef enum measured_kind { MEASURED_NOTHING, MEASURED_STEADY, MEASURED_APART, MEASURED_FIRST } measured_kind;

typedef struct step_ring { double s[MEASURED_STEPS]; int64_t n; } step_ring; /* the newest; n: how many there were in all */

/* The times of queues and phases in the newest timed runs of a schedule; n: how many there were in all. */
typedef struct run_ring { double busy_ns[MEASURED_RUNS][QUEUES], phase_ns[MEASURED_RUNS][PHASES]; int64_t n; } run_ring;

typedef struct measured {
    int64_t steps;                        /* since the executor was opened */
    step_ring steady, apart;              /* apart: steps after which, and before which, no update waited; also the first */
    double first_s;                       /* the first step, which touches the memory for the first time */
    work_times work[SCHEDULE_KINDS];      /* of the timed runs */
    run_ring runs[SCHEDULE_KINDS];        /* of the same */
} measured;

/* Should the tasks of the next step be timed? */
bool measured_wants(const measured *m);
/* After a run of the executor: adds the times of its tasks, if they were taken. Those of the first step, with its page faults, are not
 * added. */
void measured_run(measured *m, const schedule_input *in, const costs *costs, const executor *exec, schedule_kind kind);
void measured_step(measured *m, double step_s, bool steady);
/* Forgets the times of tasks, to start anew with the next step. */
void measured_again(measured *m);

/* Median of the newest n steady steps, or of as many as there are; 0: none yet. */
double measured_median_s(const measured *m, int n);
/* Median of all steady steps, or of other steps if there are none; *kind: which steps it is about. */
double measured_any_s(const measured *m, measured_kind *kind);
/* Medians over the timed runs of a steady step's schedules, added up to a step; runs is 0 if there were none. */
typedef struct step_times { int runs; double busy_ns[QUEUES], phase_ns[PHASES]; } step_times;
step_times measured_times(const measured *m, update_time update);

#endif
