/* runner.h - walks the schedules of a Deep Ritz run on real queues. It owns the arenas, the queues and the disk file, and decides nothing.
 *
 * A schedule may be run while an earlier one still is: its tasks wait for all of that. What a run's units get and give passes through the
 * mailbox, memory on the host, in slots: those of one run are filled while the run before computes. */
#ifndef PT_RITZ_RUNNER_H
#define PT_RITZ_RUNNER_H

#include "io/disk.h"
#include "ritz/program.h"

typedef struct ritz_runner_options {
    device *device, *host;       /* the same on a CPU */
    const ritz_space *space;     /* both outlive the runner */
    const plan *plan;
    uint64_t mailbox_bytes;      /* taken beside the arenas */
    uint64_t budget[TIERS];
    const char *disk_path;
    int threads;
} ritz_runner_options;

/* What a unit's tasks get and give. */
typedef struct ritz_slot {
    int64_t rows;
    const void *x;               /* (rows, input), what T0 begins with */
    const double *terms;
    const void *ones;
    double *value;               /* where energies go; NULL: nowhere */
    void *u, *gradient;          /* the same */
} ritz_slot;

typedef struct ritz_update { double decay, step_size, sqrt_correction2, beta1, beta2, eps; } ritz_update;

typedef struct ritz_runner ritz_runner;

/* Builds and proves all schedules, takes the memory, starts the queues. PT_DOES_NOT_FIT beyond the budgets. */
int ritz_runner_open(const ritz_runner_options *o, ritz_runner **out, pt_error *e);
void ritz_runner_close(ritz_runner *x);
char *ritz_runner_mailbox(const ritz_runner *x);

/* Submits a run of a program with units of these slots, `n` of at most plan->visit; nothing is waited for. first: its gradients are the
 * first of a step. *inputs_done: when the slots are free again (ritz_runner_wait). */
void ritz_runner_run(ritz_runner *x, ritz_program what, const ritz_slot *slots, int n, bool first, uint64_t *inputs_done);
void ritz_runner_update(ritz_runner *x, const ritz_update *u);
int ritz_runner_wait(ritz_runner *x, uint64_t value, pt_error *e);
/* Until all that was submitted is done. */
int ritz_runner_sync(ritz_runner *x, pt_error *e);

/* Moves one slab of a chunk (OBJECT_WEIGHTS 0, OBJECT_STATES 0 and 1, OBJECT_GRADIENT 0) between its placement and memory on the host,
 * which holds ritz_slab_bytes and lies in the mailbox. Waits for what runs. */
int ritz_runner_move(ritz_runner *x, object_kind kind, int slab, int chunk, bool out, void *memory, pt_error *e);

uint64_t ritz_runner_bytes(const ritz_runner *x, tier t);      /* arenas */
/* How far the run has come into its arena, in whole pages: kept task by task, not taken from the plan. */
uint64_t ritz_runner_peak_bytes(const ritz_runner *x, tier t);
const schedule *ritz_runner_schedule(const ritz_runner *x, ritz_program what); /* NULL: there is none */

/* What a plan needs of each tier, all its programs together. */
int ritz_plan_bytes(const ritz_space *s, const plan *p, uint64_t bytes[TIERS], pt_error *e);

#endif
