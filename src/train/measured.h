/* measured.h - what the steps of a run really take, to be laid beside the forecast.
 *
 * Every steady step's time is kept for the median; the tasks' times are taken on the first steps and then on one of
 * sixteen, so that looking at the clock costs nothing that could be measured. A run may have no steady step: of one step alone, or
 * where each is followed by an evaluation or a checkpoint, for which its updates run. Then those steps' times are all there is.
 */
#ifndef PT_MEASURED_H
#define PT_MEASURED_H

#include "predict/adjust.h"
#include "run/executor.h"

enum { MEASURED_STEPS = 256, MEASURED_RUNS = 32 };

typedef enum measured_kind { MEASURED_NOTHING, MEASURED_STEADY, MEASURED_APART, MEASURED_FIRST } measured_kind;

typedef struct step_ring { double s[MEASURED_STEPS]; int64_t n; } step_ring; /* the newest; n: how many there were */

/* What the queues and phases of the newest timed runs of a schedule took; n: how many there were. */
typedef struct run_ring { double busy_ns[MEASURED_RUNS][QUEUES], phase_ns[MEASURED_RUNS][PHASES]; int64_t n; } run_ring;

typedef struct measured {
    int64_t steps;                        /* since the executor was opened */
    step_ring steady, apart;              /* apart: without waiting updates of the step before, but for the first */
    double first_s;                       /* the first step, which touches the memory */
    work_times work[SCHEDULE_KINDS];      /* of the runs whose tasks were timed */
    run_ring runs[SCHEDULE_KINDS];        /* of the same */
} measured;

/* Whether the tasks of the next step should be timed. */
bool measured_wants(const measured *m);
/* After a run of the executor: adds its tasks' times where they were taken. The first step's, with its page faults, are not. */
void measured_run(measured *m, const schedule_input *in, const costs *c, const executor *x, schedule_kind kind);
void measured_step(measured *m, double step_s, bool steady);
/* Forgets the tasks' times, to take new ones from the next step on. */
void measured_again(measured *m);

/* Median of the newest n steady steps, or of fewer where there are not so many; 0: none yet. */
double measured_median_s(const measured *m, int n);
/* The same of all of them, else of what there is; *kind: which steps it is of. */
double measured_any_s(const measured *m, measured_kind *kind);
/* Medians over timed runs of a steady step's schedules, as the step's time is one: runs 0 where there were none. */
typedef struct step_times { int runs; double busy_ns[QUEUES], phase_ns[PHASES]; } step_times;
step_times measured_times(const measured *m, update_time update);

#endif
