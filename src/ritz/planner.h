/* planner.h - chooses the plan of a Deep Ritz run: of those that fit, the one that is fastest by simulation.
 *
 * There is less to decide than for a language model, because units are independent. One unit at a time, with everything saved, is the
 * fastest plan, and its memory does not grow with the number of points. If even that does not fit, there are three ways to save memory:
 *
 *   - the first groups are recomputed;
 *   - chunks of weights live on the host, or else on the disk, and pass through buffers, and `visit` units share such a transfer;
 *   - saved sets live there, too.
 *
 * For each number of units the planner takes as little of each as fits, in several combinations, builds their schedules, and simulates
 * them (predict/simulate.h) with measured times: of a group's sweeps over a unit, an update, copies and disk transfers.
 */
#ifndef PT_RITZ_PLANNER_H
#define PT_RITZ_PLANNER_H

#include "predict/simulate.h"
#include "protrain_ritz.h"
#include "ritz/runner.h"

enum { GROUP_FIRST, GROUP_MIDDLE, GROUP_LAST, GROUP_KINDS };

/* Times in ns. All 0: not measured. */
typedef struct ritz_prices {
    int64_t rows;                /* points of the unit that was timed: fewer than a unit may have if a step has fewer */
    double sweep[SWEEPS][GROUP_KINDS][2], reverse[GROUP_KINDS][2], reverse_flat[GROUP_KINDS][2]; /* of a unit; [1]: tensors are saved */
    double energy;               /* of a unit */
    double update;               /* per value */
    double copy, read, write;    /* per byte */
    double together;             /* a unit's tasks one after the other, whose ops a device may join: times the sum of their times */
    double sync;                 /* until the caller knows that a queue is done */
    double points[2];            /* for one thread to make a unit's points; [1]: with what their energies depend on */
} ritz_prices;

typedef struct ritz_planning {
    const ritz_space *space;
    device *device;
    int threads;
    const char *disk_path;
    uint64_t budget[TIERS];      /* for arenas and mailbox together */
    tier mailbox_tier;
    uint64_t (*mailbox_bytes)(const void *arg, int visit);
    double (*make_points)(void *arg, bool weighed); /* makes a unit's, and returns the time in ns; NULL: there are none */
    void *arg;
    bool makes_in_threads;       /* the compute threads make the points inside; else the thread that calls does */
    int64_t inside_n, face_n;    /* points of a step */
    int64_t inside_units, face_units;
    bool evaluates;              /* a step begins with u and its gradient at all points, for an eigenvalue's quotient */
    int visit;                   /* units per visit; 0: the planner chooses */
    pt_ritz_misfit *misfit;      /* may be NULL */
    bool price;                  /* predict the step's time, also if there is nothing to decide */
} ritz_planning;

typedef struct ritz_step_forecast {
    double step_ns;              /* 0: not predicted */
    double busy_ns[QUEUES];
    double again_ns;             /* the part of compute that recomputes */
    uint64_t bytes[TIERS];       /* of arenas and mailbox */
    uint64_t read_bytes, written_bytes; /* from and to the disk, per step */
    int tried;                   /* number of plans that were simulated */
} ritz_step_forecast;

/* The caller owns *out. PT_DOES_NOT_FIT says what would be needed. */
int ritz_plan_choose(const ritz_planning *p, plan *out, ritz_step_forecast *about, pt_error *e);
/* Time and memory of a given plan; prices NULL: only memory. */
int ritz_plan_forecast(const ritz_planning *p, const plan *plan, const ritz_prices *prices, ritz_step_forecast *out, pt_error *e);
/* Reads the plan from a file (plan/plan.h). PT_FAILED: it is not for this network and these units; PT_DOES_NOT_FIT: it exceeds a budget. */
int ritz_plan_take(const ritz_planning *p, const char *path, plan *out, ritz_step_forecast *about, pt_error *e);
/* The text of such a file, malloc'ed; NULL: out of memory. */
char *ritz_plan_to_json(const ritz_space *s, const plan *plan, bool gpu);
/* The most chunks that the stages of one group lie in. So many buffers are needed if chunks pass through. */
int ritz_chunks_at_once(const ritz_space *s);
/* Measures the times on the device. Needs memory for a unit and a group. */
int ritz_prices_measure(const ritz_planning *p, ritz_prices *out, pt_error *e);

#endif
