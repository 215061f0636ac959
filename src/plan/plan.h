/* plan.h - what was decided: where every byte lives, what is kept or computed again, and when. A plain
 * struct, readable and writable as JSON. None of it changes the result (see docs/numerics.md). */
#ifndef PT_PLAN_H
#define PT_PLAN_H

#include "plan/pack.h"

typedef enum tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIERS } tier;
extern const char *const tier_names[TIERS]; /* "device", "host", "disk" */

typedef enum update_time {
    UPDATE_BACKWARD,     /* as soon as a chunk's gradients are complete; without clipping only */
    UPDATE_NEXT_FORWARD, /* just before the next step needs the chunk; exact clipping */
    UPDATE_END           /* all together once the norm is known */
} update_time;

typedef struct plan_chunk {
    tier home;   /* of weights, states and waiting gradient */
    tier update; /* where AdamW runs: device or host */
} plan_chunk;

typedef struct plan_block {
    save_level level;
    tier place; /* of the saved set between forward and backward */
} plan_block;

typedef struct plan {
    int64_t chunk_bytes;
    int n_buffer;        /* device buffers through which the weights of chunks that live elsewhere pass */
    int n_update;        /* buffers through which states pass on their way to an update elsewhere */
    int n_swap;          /* device buffers through which saved sets that live elsewhere pass */
    int64_t micro_batch; /* sequences, a multiple of the unit */
    int visit;           /* micro-batches that visit a block before the next block is taken */
    update_time update;
    int chunks_n, blocks_n; /* blocks_n: decoder layers */
    plan_chunk *chunks;
    plan_block *blocks;
} plan;

int plan_alloc(plan *p, int chunks_n, int blocks_n, pt_error *e);
void plan_free(plan *p);
int plan_copy(plan *to, const plan *from, pt_error *e);

/* Whether the plan belongs to this model and step, and asks for nothing impossible. */
int plan_validate(const plan *p, const model *m, const step_shape *s, const packing *k, bool clipping, pt_error *e);

/* JSON as plan.json holds it. `name` is used in errors. */
int plan_read(const char *path, plan *out, pt_error *e);
int plan_from_json(const char *name, const char *json, size_t n, plan *out, pt_error *e);
char *plan_to_json(const plan *p, const model *m); /* malloc'ed text, NULL: out of memory */

#endif
