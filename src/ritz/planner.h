/* planner.h - the plan of a Deep Ritz run: the fastest by simulation of those that fit.
 *
 * There is less to decide than for a language model, because units are independent: one at a time, with everything kept, is the fastest
 * plan, and its memory does not grow with the number of points. Where even that does not fit,
 *
 *   the first groups are computed again,                                              which costs time alone
 *   chunks of weights live elsewhere, on the host or else on the disk, and pass by,   which `visit` units share
 *   saved sets do too
 *
 * and for each number of units the planner takes the least of it that fits, in several orders, builds the schedules and simulates them
 * (predict/simulate.h) with times that were measured: a group's sweeps over a unit, an update, copies, the disk.
 */
#ifndef PT_RITZ_PLANNER_H
#define PT_RITZ_PLANNER_H

#include "predict/simulate.h"
#include "protrain_ritz.h"
#include "ritz/runner.h"

enum { GROUP_FIRST, GROUP_MIDDLE, GROUP_LAST, GROUP_KINDS };

/* Times in ns: of a group over a unit, computed again or kept; of a value; of a byte. All 0: not known. */
typedef struct ritz_prices {
    double sweep[SWEEPS][GROUP_KINDS][2], reverse[GROUP_KINDS][2], reverse_flat[GROUP_KINDS][2];
    double energy, update, copy, read, write;
    double points;               /* to make a unit's points, on the thread that calls */
} ritz_prices;

typedef struct ritz_planning {
    const ritz_space *space;
    device *device;
    int threads;
    const char *disk_path;
    uint64_t budget[TIERS];      /* of arenas and mailbox together */
    tier mailbox_tier;
    uint64_t (*mailbox_bytes)(const void *arg, int visit);
    double (*make_points)(void *arg); /* makes a unit's, and returns the time in ns; NULL: there are none */
    void *arg;
    int64_t inside_units, face_units;
    int visit;                   /* 0: searched */
    pt_ritz_misfit *misfit;      /* may be NULL */
    bool price;                  /* the step's time is wanted, whatever has to be decided */
} ritz_planning;

typedef struct ritz_step_forecast {
    double step_ns;              /* 0: not known */
    double busy_ns[QUEUES];
    double again_ns;             /* of compute: what is computed again */
    uint64_t bytes[TIERS];       /* arenas, and the mailbox on its tier */
    uint64_t read_bytes, written_bytes; /* of the disk, in a step */
    int tried;                   /* plans simulated */
} ritz_step_forecast;

/* PT_DOES_NOT_FIT with what would be needed. The caller owns *out. */
int ritz_plan_choose(const ritz_planning *p, plan *out, ritz_step_forecast *about, pt_error *e);
/* Of a plan that is given. */
int ritz_plan_forecast(const ritz_planning *p, const plan *plan, const ritz_prices *prices, ritz_step_forecast *out, pt_error *e);
/* The plan of a file (plan/plan.h), as JSON of our own or of another run: PT_FAILED where it is none for this network and units,
 * PT_DOES_NOT_FIT where it does not fit the budgets. */
int ritz_plan_take(const ritz_planning *p, const char *path, plan *out, ritz_step_forecast *about, pt_error *e);
/* What a file holds: malloc'ed text, NULL: out of memory. */
char *ritz_plan_to_json(const ritz_space *s, const plan *p, bool gpu);
/* The most chunks that one group's stages lie in: as many buffers are needed where they pass by. */
int ritz_chunks_at_once(const ritz_space *s);
/* Takes the times, on the device, with memory for a unit and a group. */
int ritz_prices_measure(const ritz_planning *p, ritz_prices *out, pt_error *e);

#endif
