/* solver.h - a run of the Deep Ritz method: an energy over points, its gradient, steps, checkpoints.
 *
 * A step's points, those of the inside and behind them those of the faces, are cut into units of `unit_rows`. Sums over points are added
 * unit after unit, in fp32 or fp64 on the device, and energies in fp64 point after point here. How units are taken through the network,
 * and where everything lies, is planned (planner.h) and done by schedules (program.h, runner.h). No plan, no number of threads and no
 * resumed run changes a bit.
 *
 *     mailbox, on the host:   slots: x and terms of a unit, twice as many as units in a run | ones | energies and u of all points
 *                             | room for a chunk's slab, or a unit's u
 *
 * What E has of (int u)^2 / 2 needs int u before any gradient: a forward pass of its own. Its gradient is M grad M. With random points M^2
 * has the bias Var / N, so that mc takes the factors from two halves of the points, (M1 grad M2 + M2 grad M1) / 2; other points
 * have next to no variance there, and lose more by being halved.
 */
#ifndef PT_RITZ_SOLVER_H
#define PT_RITZ_SOLVER_H

#include "io/files.h"
#include "ritz/planner.h"
#include "ritz/points.h"
#include "ritz/problem.h"

#include <stdio.h>

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
    int64_t unit_rows, inside_units, face_n, boundary_n, boundary_units;
    tier mailbox_tier;
    uint64_t budget[TIERS];
    points *inside, *faces, *eval;
    ritz_slot *slots;             /* two sets of plan.visit */
    char *slot_room;
    uint64_t busy_until[2];       /* of each set: until its inputs are on the device; 0: it is free */
    char *ones, *u;               /* u: of the inside's points */
    double *values;               /* of all points */
    char *staging;
    double *x, *f, *v;            /* of the unit that is being made */
    double mean[2];               /* what the points of the two halves of the inside get of (int u)^2 / 2 */
    int64_t step, first_step;
    uint64_t draw;                /* of the points that are being made */
    uint32_t part;                /* of the faces' set; 0: none yet */
    int turn;                     /* the set of slots that comes next */
    FILE *metrics;
    dir_lock lock;
    bool locked;
};

void ritz_notice(const pt_ritz *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes another plan than the planner's: for tests. */
typedef int (*ritz_plan_fn)(void *arg, const ritz_planning *p, plan *out, pt_error *e);
/* pt_ritz_open, with such a plan where `given` is not NULL. */
int ritz_open(const pt_ritz_options *o, ritz_plan_fn given, void *arg, pt_ritz **out, pt_error *e);
/* What can be said before there is a network: units, and without points (training false) no more than its weights. */
int ritz_open_network(pt_ritz *r, bool training, ritz_plan_fn given, void *arg, pt_error *e);
/* Planned beside measured: arenas, and the mailbox on its tier. */
uint64_t ritz_peak_bytes(const pt_ritz *r, tier t);
/* ns to make a unit's points (ritz_planning). */
double ritz_time_points(void *run);

/* Energy and, in the chunks' sums, its gradient on the points of a drawing. */
int ritz_integrate(pt_ritz *r, uint64_t draw, double *energy, pt_error *e);
/* The gradient, params values, after ritz_integrate. */
int ritz_read_gradient(pt_ritz *r, double *gradient, pt_error *e);
/* Moves a chunk's slab (ritz_runner_move) between its place and r->staging. */
int ritz_slab(pt_ritz *r, object_kind kind, int slab, int chunk, bool out, pt_error *e);

int ritz_write_network(pt_ritz *r, const char *folder, pt_error *e);
int ritz_read_network(pt_ritz *r, const char *folder, pt_error *e);
/* Goes on from the newest checkpoint in out, if there is one. */
int ritz_resume(pt_ritz *r, pt_error *e);
int ritz_metrics_open(pt_ritz *r, pt_error *e);
int ritz_metrics_write(pt_ritz *r, const pt_ritz_step_info *s, pt_error *e);
double ritz_lr(const pt_ritz_options *o, int64_t step);

#endif
