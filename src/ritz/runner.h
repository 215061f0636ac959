/* runner.h - runs the schedules of a Deep Ritz run (program.h) on a walker's queues (run/walker.h).
 *
 * A program may be submitted while an earlier one still runs: its tasks wait for the whole of that. The inputs and results of units pass
 * through slots in the walker's mailbox. The slots of one program are filled while the one before computes.
 */
#ifndef PT_RITZ_RUNNER_H
#define PT_RITZ_RUNNER_H

#include "ritz/ansatz.h"
#include "ritz/jets.h"
#include "ritz/program.h"
#include "ritz/residual.h"
#include "run/walker.h"

typedef struct ritz_runner_options {
    device *device, *host;       /* the same on a CPU */
    const ritz_space *space;     /* both outlive the runner */
    const plan *plan;
    uint64_t mailbox_bytes;      /* allocated besides the arenas */
    uint64_t budget[TIERS];
    const char *disk_path;
    int threads;
} ritz_runner_options;

/* Makes x and terms of the rows first .. end of a slot. Compute threads call it, several at once; scratch has CALL_SCRATCH_BYTES. */
typedef struct ritz_slot ritz_slot;
typedef void (*ritz_make_fn)(const ritz_slot *s, int64_t first, int64_t end, void *scratch);

/* Inputs and results of a unit. Results that are NULL are not wanted. */
struct ritz_slot {
    int64_t rows;
    const void *x;               /* (rows, input) */
    const double *terms;         /* (rows, QUADRATIC_TERMS); NULL: no energy is wanted */
    ritz_make_fn make;           /* not NULL: makes both, in their places in the unit's memory, instead of a copy of x and terms */
    const void *arg;             /* for `make`, as is the next one */
    int64_t first;               /* number of the slot's first row */
    void *made_x; double *made_terms; /* where `make` writes; terms NULL: only x is wanted. The runner sets them. */
    const void *ones;            /* (rows) */
    double *value;               /* result: energies (rows) */
    void *u, *gradient;          /* results: (rows), (rows, input) */
    ansatz_energy composed;      /* problem NULL: the energy is quadratic */
    residual_loss residual;      /* of a network with jets, with memory for its calls */
    jets_call *calls;
};

typedef struct ritz_runner ritz_runner;

/* Builds and checks all schedules, allocates the memory, starts the queues. PT_DOES_NOT_FIT beyond the budgets. */
int ritz_runner_open(const ritz_runner_options *o, ritz_runner **out, pt_error *e);
void ritz_runner_close(ritz_runner *x);
char *ritz_runner_mailbox(const ritz_runner *x);

/* Submits a program with units in these slots, `n` of at most plan->visit, and waits for nothing. first: its gradients are the first of a
 * step. *inputs_done: the value at which the slots are free again (ritz_runner_wait). */
void ritz_runner_run(ritz_runner *x, ritz_program what, ritz_slot *slots, int n, bool first, uint64_t *inputs_done);
void ritz_runner_update(ritz_runner *x, const adamw_rates *u);
int ritz_runner_wait(ritz_runner *x, uint64_t value, pt_error *e);
/* Waits for the end of all that was submitted. */
int ritz_runner_sync(ritz_runner *x, pt_error *e);

/* Moves one slab of a chunk (OBJECT_WEIGHTS 0, OBJECT_STATES 0 and 1, OBJECT_GRADIENT 0) between its placement and memory in the mailbox
 * of ritz_slab_bytes. Waits for what runs. */
int ritz_runner_move(ritz_runner *x, object_kind kind, int slab, int chunk, bool out, void *memory, pt_error *e);

/* The highest end of a buffer that a task or a move has accessed so far, in whole pages (run/walker.h). */
uint64_t ritz_runner_peak_bytes(const ritz_runner *x, tier t);

#endif
