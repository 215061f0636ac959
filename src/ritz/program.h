/* program.h - the schedules of a Deep Ritz run (schedule/schedule.h): flat lists of tasks with queues, waits and addresses. They are built,
 * checked, simulated and walked like those of a language model.
 *
 *   RITZ_MEAN     forward sweep of `visit` units:                      u at each point, for int u
 *   RITZ_TURN     all four sweeps of `visit` units:                    energies, and gradients added to the sums
 *   RITZ_FACES    forward and reverse sweep of boundary units:         the same; these energies do not depend on the gradient of u
 *                 With a residual loss, RITZ_TURN is a sweep of jets up and one down, also for boundary units.
 *   RITZ_UPDATE   AdamW of every chunk
 *   RITZ_POINTS   forward and adjoint sweep of a unit:                 u and its gradient at given points
 *
 * A step is  MEAN ... MEAN  TURN ... TURN  FACES ... FACES  UPDATE.  Each runs as often as there are units for it, so no device memory
 * grows with the number of points. All schedules have the same placements.
 *
 *   chunk   of parameters: consecutive stages of at most CHUNK_BYTES together, or one larger stage. Its weights, moments ("states") and
 *           gradient sums ("gradient", which last from program to program) live on one tier. If that is not the device, they pass through
 *           buffers.
 *   block   a sweep of a group: sweep * groups + group
 *   saved   the set of tensors of a group and a unit (ritz_layout), on the plan's tier from the forward sweep to its last reader
 *   batch   a unit's own tensors
 *
 * The plan is the engine's (plan/plan.h): its blocks are the groups; SAVE_ALL saves a group's inner tensors, SAVE_INPUT recomputes them;
 * `visit` units pass through a group before the next group starts; `micro_batch` is the number of their points.
 */
#ifndef PT_RITZ_PROGRAM_H
#define PT_RITZ_PROGRAM_H

#include "ritz/network.h"
#include "schedule/schedule.h"

typedef enum ritz_program { RITZ_MEAN, RITZ_TURN, RITZ_FACES, RITZ_UPDATE, RITZ_POINTS, RITZ_PROGRAMS } ritz_program;
/* SWEEP_JETS: the sweep up of a residual loss (jets.h), in place of the three before the loss. */
typedef enum ritz_sweep { SWEEP_FORWARD, SWEEP_ADJOINT, SWEEP_TANGENT, SWEEP_JETS, SWEEPS } ritz_sweep;

enum { RITZ_VISIT_MOST = 64 };

typedef struct ritz_chunk { int stage0, stages_n; int64_t value0, values; } ritz_chunk;

typedef struct ritz_space {
    const ritz_network *net;
    int64_t unit_rows;
    bool training;                 /* false: only weights, no moments and gradients */
    bool host_tier;                /* false: device memory is RAM, and the disk is the next tier */
    bool has_mean, has_faces;      /* the step has these programs */
    int chunks_n;
    ritz_chunk chunks[RITZ_STAGES];
    int chunk_of_stage[RITZ_STAGES];
} ritz_space;

/* Divides the network into chunks; all other fields are set before. */
void ritz_space_init(ritz_space *s);
bool ritz_has_program(const ritz_space *s, ritz_program p);
/* Bytes of one slab of a chunk: weights, a moment, or gradient sums. */
uint64_t ritz_slab_bytes(const ritz_space *s, int chunk);

/* Layout of a program's units: as the plan says; RITZ_MEAN saves nothing. */
void ritz_program_layout(const ritz_space *s, const plan *plan, ritz_program what, ritz_layout *out);
/* A plan with everything on the device and saved, one unit at a time. Free it with plan_free. */
int ritz_plan_init(const ritz_space *s, plan *out, pt_error *e);
/* The schedule with addresses and all waits. */
int ritz_schedule_build(const ritz_space *s, const plan *plan, ritz_program what, schedule *out, pt_error *e);
/* The schedule with addresses but without waits, which is enough to know its bytes. */
int ritz_schedule_place(const ritz_space *s, const plan *plan, ritz_program what, schedule *out, pt_error *e);

#endif
