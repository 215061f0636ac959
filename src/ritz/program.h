/* program.h - a run of the Deep Ritz method as schedules of the engine (schedule/schedule.h): flat lists of tasks with queues, waits and
 * addresses, that are built, proved, simulated and walked like those of a language model.
 *
 *   RITZ_MEAN     units up through the network:                            u of each point, of which int u is made; values
 *   RITZ_TURN     `visit` units through all four sweeps:                   their energies, and gradients into the sums
 *   RITZ_FACES    units of the boundary, where the gradient does not count: the same by two sweeps
 *   RITZ_UPDATE   AdamW of every chunk
 *   RITZ_POINTS   units up and down:                                       u and its gradient at given points
 *
 * A step is  MEAN ... MEAN  TURN ... TURN  FACES ... FACES  UPDATE;  each runs as often as there are units for it, so that nothing on the
 * device grows with the number of points. All of them have the same placements.
 *
 *   chunk   of parameters: consecutive stages, at most CHUNK_BYTES of them or one. Its weights, moments ("states") and sums of gradients
 *           ("gradient", which lasts from turn to turn) live on one tier; where that is not the device, they pass through buffers.
 *   block   a sweep of a group: sweep * groups + group
 *   saved   a group's set of tensors of a unit (ritz_layout); lives where the plan says from the sweep up to the last one
 *   batch   a unit's own tensors
 *
 * The plan is the engine's too (plan/plan.h): `blocks` are the groups, SAVE_ALL keeps what a group makes inside, SAVE_INPUT computes it
 * again; `visit` units are taken through a group before the next one is; `micro_batch` is their points.
 */
#ifndef PT_RITZ_PROGRAM_H
#define PT_RITZ_PROGRAM_H

#include "ritz/network.h"
#include "schedule/schedule.h"

typedef enum ritz_program { RITZ_MEAN, RITZ_TURN, RITZ_FACES, RITZ_UPDATE, RITZ_POINTS, RITZ_PROGRAMS } ritz_program;
typedef enum ritz_sweep { SWEEP_FORWARD, SWEEP_ADJOINT, SWEEP_TANGENT, SWEEPS } ritz_sweep;

enum { RITZ_VISIT_MOST = 64 };

typedef struct ritz_chunk { int stage0, stages_n; int64_t value0, values; } ritz_chunk;

typedef struct ritz_space {
    const ritz_network *net;
    int64_t unit_rows;
    bool training;                 /* false: weights alone */
    bool host_tier;                /* else the disk is beside the device, whose memory is RAM */
    bool has_mean, has_faces;      /* what a step has besides turns */
    int chunks_n;
    ritz_chunk chunks[RITZ_STAGES];
    int chunk_of_stage[RITZ_STAGES];
} ritz_space;

/* Chunks of the network; what else is set stays. */
void ritz_space_init(ritz_space *s);
bool ritz_has_program(const ritz_space *s, ritz_program p);
/* One of a chunk's slabs: weights, a moment, or its sums of gradients. */
uint64_t ritz_slab_bytes(const ritz_space *s, int chunk);

/* How a program's groups are laid out: as the plan says, and where the network is only gone up, nothing kept. */
void ritz_program_layout(const ritz_space *s, const plan *p, ritz_program what, ritz_layout *out);
/* Everything on the device and kept, a unit at a time. Free it with plan_free. */
int ritz_plan_init(const ritz_space *s, plan *out, pt_error *e);
/* The list with its addresses, and all waits. */
int ritz_schedule_build(const ritz_space *s, const plan *p, ritz_program what, schedule *out, pt_error *e);
/* The address-only part of it: bytes alone. */
int ritz_schedule_place(const ritz_space *s, const plan *p, ritz_program what, schedule *out, pt_error *e);

#endif
