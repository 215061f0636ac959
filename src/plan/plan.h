/* plan.h - the decisions for a run: where every byte lives, what is saved or recomputed, and when updates run. A plain struct, readable and
 * writable as JSON. It does not change the result (see docs/numerics.md). */
#ifndef PT_PLAN_H
#define PT_PLAN_H

#include "layer/program.h"
#include "plan/pack.h"

typedef enum tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIERS } tier;
extern const char *const tier_names[TIERS]; /* "device", "host", "disk" */

typedef enum update_time {
    UPDATE_BACKWARD,     /* as soon as a chunk's gradients are complete; only without clipping */
    UPDATE_NEXT_FORWARD, /* just before the next step needs the chunk; exact clipping */
    UPDATE_END           /* all together, once the norm is known */
} update_time;
extern const char *const update_time_words[]; /* "updates ..." */

typedef struct plan_chunk {
    tier placement;   /* tier of weights, states and waiting gradient */
    tier update; /* tier whose processor runs the update: device or host */
    bool sharded; /* several ranks: each keeps only its shard of the weights, and they are gathered for each use */
} plan_chunk;

static inline bool plan_chunk_same(const plan_chunk *a, const plan_chunk *b)
{
    return a->placement == b->placement && a->update == b->update && a->sharded == b->sharded;
}

/* Is the chunk a table's whose rows are looked up where it is, on the host or on the disk? A shard has only some of them. */
static inline bool plan_looks_up(const plan_chunk *at, const chunk_t *c)
{
    return c->looked_up && at->placement != TIER_DEVICE && !at->sharded;
}

typedef struct plan_block {
    save_level level;
    tier place; /* of the saved tensors between forward and backward */
} plan_block;

/* What the plan in a file was made for; model_type is empty if the file does not say. */
typedef struct plan_target {
    char model_type[32];
    int64_t parameters, layers, seq_len, batch;
    int64_t parts;   /* of a sequence, which seq_len and batch count; 1: it is whole */
    int64_t hidden, heads, kv_heads, ffn, vocab; /* 0 if the file does not say */
    int64_t trained; /* number of trained parameters */
    uint64_t frozen; /* identifies the frozen ones: model_frozen_hash; 0: none */
    int passing;     /* model_passing_layers */
    char trains[MODEL_TRAINED_TEXT]; /* model_describe_trained; "" where the file does not say */
    pt_dtype type;
    int gpu; /* 1 or 0; -1 if the file does not say */
    const optimizer *optimizer; /* NULL if the file does not say */
} plan_target;

enum { PLAN_MAX_CHUNKS = 1 << 20, PLAN_MAX_SLOTS = 4096, PLAN_MIN_CHUNK_BYTES = 8 << 10 };
#define PLAN_MAX_CHUNK_BYTES (INT64_C(1) << 40)

typedef struct plan {
    plan_target made_for;
    int64_t chunk_bytes; /* PLAN_MIN_CHUNK_BYTES .. PLAN_MAX_CHUNK_BYTES */
    int n_buffer;        /* device buffers for the weights of chunks that live elsewhere */
    int n_update;        /* buffers for states on their way to an update on another tier */
    int n_swap;          /* device buffers for saved tensors that live elsewhere */
    int64_t micro_batch; /* sequences, a multiple of the unit */
    int visit;           /* micro-batches that pass through a block before the next block starts */
    update_time update;
    bool ranges;         /* layers with experts are computed in parts, of which each reads one range of experts (layer/parts.h) */
    int chunks_n, blocks_n; /* blocks_n: decoder layers */
    plan_chunk *chunks;
    plan_block *blocks;  /* layers before the end of backward: SAVE_INPUT, TIER_DEVICE */
} plan;

/* An empty plan with space for so many chunks and layers, all on the device. */
int plan_alloc(plan *plan, int chunks_n, int blocks_n, pt_error *e);
void plan_free(plan *plan);
int plan_copy(plan *to, const plan *from, pt_error *e); /* `to` is overwritten, not freed */

/* Checks that the plan belongs to this model and step, and that its values are possible: PT_FAILED names the key and the fix. Does not
 * check the memory that it needs. */
int plan_validate(const plan *plan, const model *m, const step_shape *shape, const packing *packing, bool clipping, pt_error *e);

/* JSON as in plan.json. Equal neighbours among the chunks and blocks are written once, with their count:
 *
 *   {"made_for": {"model_type": "gpt2", "parameters": 124439808, "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12,
 *                 "ffn": 3072, "vocab": 50257, "seq_len": 512, "batch": 4, "dtype": "bf16", "optimizer": "adamw",
 *                 "gpu": false},
 *    "chunk_bytes": 16777216, "n_buffer": 4, "n_update": 2, "n_swap": 3, "micro_batch": 4, "visit": 1,
 *    "update": "next_forward",                                                 or "backward", "end"
 *    "ranges": true,                                                           may be missing: false
 *    "chunks": [{"count": 3, "home": "device", "update": "device"}, ...],      placements "device", "host", "disk"; "sharded": true
 *    "blocks": [{"count": 12, "save": "attention", "place": "device"}, ...]}   "input", "attention", "all" ("matmuls": the same)
 *
 * With frozen parameters, "made_for" has "trained" (the number of trained parameters), "passing" (the number of layers without backward)
 * and "frozen": "0123456789abcdef" (a hash of the set of frozen parameters).
 *
 * "made_for" may be missing, and in it "hidden" to "vocab", "optimizer" and "gpu", which older files lack; all other keys are required.
 * Unknown keys, wrong types and impossible numbers are PT_FAILED with file, key and fix. The output of `protrain plan --json`, recognized
 * by its "fits", is accepted too: its "plan" is read. `name` is what errors call the text. On 0 the caller owns *out (plan_free). */
int plan_read(const char *path, plan *out, pt_error *e);
int plan_from_json(const char *name, const char *json, size_t n, plan *out, pt_error *e);
char *plan_to_json(const plan *plan, const model *m, const step_shape *shape); /* malloc'ed text, NULL: out of memory */
char *plan_write_json(const plan *plan, const char *made_for); /* the same; made_for: what stands between the braces of that key */

#endif
