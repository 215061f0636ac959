/* solver.h - a run of the Deep Ritz method: an energy over points, its gradient, steps, checkpoints.
 *
 * A step's points, those of the inside and behind them those of the faces, are cut into units of `unit_rows`. A unit goes through the
 * sweeps of network.h; sums over points are added unit after unit, in fp32 or fp64 on the device, and energies in fp64 point after point
 * here. `micro` units are in memory at a time. Neither that, nor what is computed again, nor threads, nor a resumed run changes a bit.
 *
 *     device   weights, two moments, sums | ones | unit | unit ...
 *     host     slots: x and terms of a unit, twice as many as units | energies and u of all points | room for one slab of parameters
 *
 * What E has of (int u)^2 / 2 needs int u before any gradient: a forward pass of its own. Its gradient is M grad M. With random points M^2
 * has the bias Var / N, so that mc takes the factors from two halves of the points, (M1 grad M2 + M2 grad M1) / 2; other points
 * have next to no variance there, and lose more by being halved.
 */
#ifndef PT_RITZ_SOLVER_H
#define PT_RITZ_SOLVER_H

#include "io/files.h"
#include "ritz/network.h"
#include "ritz/points.h"
#include "ritz/problem.h"

#include <stdio.h>

typedef struct ritz_slot { char *x; double *terms; uint64_t busy_until; } ritz_slot;

struct pt_ritz {
    pt_ritz_options o;
    char out[FILE_PATH_BYTES];
    problem problem;
    ritz_network net;
    ritz_layout layout;
    device *device, *host;
    queue *queue;
    int64_t unit_rows, inside_units, face_n, boundary_n, boundary_units;
    int micro;
    points *inside, *faces, *eval;
    char *arena, *mailbox;
    uint64_t arena_bytes, mailbox_bytes;
    uint64_t slab_bytes;          /* weights, or a moment */
    char *weights, *moments[2], *sums, *ones, *units;
    ritz_slot *slots;
    double *values;               /* mailbox: of all points */
    char *u;                      /* mailbox: of the inside's */
    char *staging;                /* mailbox: a slab */
    double *x, *f, *v;            /* of the unit that is being made */
    double mean[2];               /* what the points of the two halves of the inside get of (int u)^2 / 2 */
    int64_t step, first_step;
    uint64_t draw;                /* of the points that are being made */
    uint32_t part;                /* of the faces' set; 0: none yet */
    FILE *metrics;
    dir_lock lock;
    bool locked;
};

void ritz_notice(const pt_ritz *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The network alone, for evaluation: everything but points and moments. */
int ritz_open_network(pt_ritz *r, int threads, pt_error *e);

/* Energy and, in r->sums, its gradient on the points of a drawing. */
int ritz_integrate(pt_ritz *r, uint64_t draw, double *energy, pt_error *e);
/* The gradient, params values, after ritz_integrate. */
int ritz_read_gradient(pt_ritz *r, double *gradient, pt_error *e);
/* Moves a slab between the device and r->staging. */
int ritz_slab(pt_ritz *r, char *slab, bool out, pt_error *e);

int ritz_write_network(pt_ritz *r, const char *folder, pt_error *e);
int ritz_read_network(pt_ritz *r, const char *folder, pt_error *e);
/* Goes on from the newest checkpoint in out, if there is one. */
int ritz_resume(pt_ritz *r, pt_error *e);
int ritz_metrics_open(pt_ritz *r, pt_error *e);
int ritz_metrics_write(pt_ritz *r, const pt_ritz_step_info *s, pt_error *e);
double ritz_lr(const pt_ritz_options *o, int64_t step);

#endif
