/* solver.h - a run of the Deep Ritz method: an energy over points, its gradient, steps, checkpoints.
 *
 * The points of a step, first those inside the box, then those of its faces, are divided into units of `unit_rows`. Gradients accumulate
 * unit by unit, in fp32 or fp64 on the device; energies are added point by point, in fp64 on the host. The planner (planner.h) chooses how
 * units pass through the network and where everything lies, and schedules carry it out (program.h, runner.h). No plan, number of threads,
 * kill or resume changes a bit.
 *
 * On a CPU the threads that compute make the points inside, and f and V there, before they take them through the network. The thread that
 * calls makes those of faces, those for a GPU, and those of functions that may not be called by several threads.
 *
 *     mailbox, on the host:   slots: x and terms of units, twice `visit` | ones | energies and u of all points
 *                             | staging: a slab of a chunk, or u of a unit
 *
 * The term (int u)^2 / 2 of an energy has the gradient M grad M with M = int u, so it needs M before the gradient: one more forward pass.
 * With random points M^2 has the bias Var / N, so mc takes the two factors from two halves of the points: (M1 grad M2 + M2 grad M1) / 2.
 * Other points have almost no variance there, and would lose more by being halved.
 */
#ifndef PT_RITZ_SOLVER_H
#define PT_RITZ_SOLVER_H

#include "io/steps.h"
#include "ritz/planner.h"
#include "ritz/points.h"
#include "ritz/problem.h"
#include "ritz/terms.h"

enum { RITZ_RECENT = 32 };

struct pt_ritz {
    pt_ritz_options o;
    char out[FILE_PATH_BYTES], disk_path[FILE_PATH_BYTES];
    problem problem;
    ritz_network net;
    ritz_space space;
    plan plan;
    ritz_step_forecast forecast;
    ritz_runner *runner;
    device *device, *host;
    int64_t unit_rows, inside_units, boundary_n, boundary_units;
    tier mailbox_tier;
    uint64_t budget[TIERS];
    points *inside, *eval, *sets; /* sets: of energy.c, as are the next faces */
    ritz_faces faces, set_faces;
    double penalty;               /* of this step */
    struct { double value, scale; } quotient; /* of an eigenvalue problem: N / D, and 2 / D */
    bool exact_is_zero;           /* at all points of the last evaluation */
    ritz_slot *slots;             /* two sets of plan.visit slots */
    uint64_t busy_until[2];       /* [set] value at which its inputs are on the device; 0: it is free */
    char *ones, *u;               /* u: at the points inside */
    double *values;               /* energies of all points */
    char *staging;
    jets_call *calls;             /* of all slots, for a residual loss */
    double *x, *f, *v, *a;        /* of the unit that is being filled */
    double *ansatz;               /* scratch of ansatz_apply; NULL: u is the network */
    double *work;                 /* of an eigenvalue problem: a unit's terms, u and gradient */
    double *samples;              /* for errors and energies: ritz_eval_rows points with all their values */
    double recent[RITZ_RECENT];   /* energies of the last steps */
    int64_t recent_n;
    double mean[2];               /* term m (OP_QUADRATIC) of the points in the two halves, from (int u)^2 / 2 */
    int64_t step, first_step;
    int64_t polished;             /* iterations of L-BFGS that were asked for and are done, after the last step */
    int turn;                     /* the current set of slots */
    step_lines metrics;           /* not open without `out` */
    dir_lock lock;
    bool locked;
};

/* PT_USAGE if a function of protrain_ritz.h cannot be called for ritz: it is NULL, or only planned; with `training`, it has no points. */
int ritz_check_call(const pt_ritz *ritz, const char *function, bool training, pt_error *e);
void ritz_notice(const pt_ritz *ritz, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes a plan in place of the planner's, for tests. */
typedef int (*ritz_plan_fn)(void *arg, const ritz_planning *p, plan *out, pt_error *e);
/* pt_ritz_open with a plan from `given`, unless that is NULL. */
int ritz_open(const pt_ritz_options *o, ritz_plan_fn given, void *arg, pt_ritz **out, pt_error *e);
/* Opens device, points, plan and runner. training false: only for evaluation, without points and optimizer. */
int ritz_open_network(pt_ritz *ritz, bool training, ritz_plan_fn given, void *arg, pt_error *e);
/* Points at a time of which the errors are computed. */
int64_t ritz_eval_rows(const pt_ritz *ritz);
/* Bytes used so far of arenas and mailbox; to compare with forecast.bytes. */
uint64_t ritz_peak_bytes(const pt_ritz *ritz, tier t);
/* Points on each face beside n inside, if the caller did not say how many. */
int64_t ritz_points_a_face(const pt_ritz *ritz, int64_t n);
/* Whether the compute threads make the points inside, instead of the thread that calls. */
bool ritz_makes_in_threads(const pt_ritz *ritz);
/* ns that one thread takes to make a unit's points, and with `weighed` their terms (ritz_planning). */
double ritz_time_points(void *run, bool weighed);

/* Errors and energy after a step. */
int ritz_evaluate(pt_ritz *ritz, pt_ritz_step_info *s, pt_error *e);
/* Bytes that pt_ritz_polish takes. */
uint64_t ritz_polish_bytes(const pt_ritz *ritz);

/* ---- integrate.c ---- */

/* Points as the network's input (rows, net.input), which has zeros behind the coordinates. */
void ritz_put_x(const pt_ritz *ritz, const double *x, int64_t rows, char *to);
/* Number i of an array of the network's type. */
double ritz_value(const pt_ritz *ritz, const char *base, int64_t i);
/* The energy on the points of a draw; its gradient is then in the chunks' sums. */
int ritz_integrate(pt_ritz *ritz, uint64_t draw, double *energy, pt_error *e);
/* The largest magnitude of f and V at the points of the current draw. */
double ritz_largest_value(pt_ritz *ritz);
/* Reads the gradient, net.params values, after ritz_integrate. */
int ritz_read_gradient(pt_ritz *ritz, double *gradient, pt_error *e);
/* ritz_runner_move between a slab and ritz->staging. */
int ritz_slab(pt_ritz *ritz, object_kind kind, int slab, int chunk, bool out, pt_error *e);

/* ---- tensors.c, checkpoint.c, metrics.c ---- */

int ritz_write_network(pt_ritz *ritz, const char *folder, pt_error *e);
int ritz_read_network(pt_ritz *ritz, const char *folder, pt_error *e);
/* Takes the weights of the network in the folder of a run, which must have the same shape. */
int ritz_init(pt_ritz *ritz, const char *folder, pt_error *e);
int ritz_write_states(pt_ritz *ritz, const char *folder, pt_error *e);
int ritz_read_states(pt_ritz *ritz, const char *folder, pt_error *e);
/* Loads the newest checkpoint in out, if there is one. */
int ritz_resume(pt_ritz *ritz, pt_error *e);
bool ritz_has_checkpoint(const pt_ritz *ritz);
/* Points a step and steps of the run that wrote the newest checkpoint in the folder; negative if it cannot be read. */
int ritz_newest_size(const char *folder, int64_t *n, int64_t *steps);
int ritz_metrics_open(pt_ritz *ritz, pt_error *e);
int ritz_metrics_write(pt_ritz *ritz, const pt_ritz_step_info *s, pt_error *e);
double ritz_lr(const pt_ritz_options *o, int64_t step);
/* The number of a step's draw (points.h). */
uint64_t ritz_draw_of(const pt_ritz_options *o, int64_t step);

#endif
