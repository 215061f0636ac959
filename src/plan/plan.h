/* plan.h - what was decided: where every byte lives, what is kept or computed again, and when. A plain
 * struct, readable and writable as JSON. None of it changes the result (see docs/numerics.md). */
#ifndef PT_PLAN_H
#define PT_PLAN_H

#include "model/layer.h"
#include "plan/pack.h"

typedef enum tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIERS } tier;
extern const char *const tier_names[TIERS]; /* "device", "host", "disk" */

typedef enum update_time {
    UPDATE_BACKWARD,     /* as soon as a chunk's gradients are complete; without clipping only */
    UPDATE_NEXT_FORWARD, /* just before the next step needs the chunk; exact clipping */
    UPDATE_END           /* all together once the norm is known */
} update_time;
extern const char *const update_time_words[]; /* "updates ..." */

typedef struct plan_chunk {
    tier placement;   /* of weights, states and waiting gradient */
    tier update; /* where AdamW runs: device or host */
    bool sharded; /* of several ranks each keeps its shard of the weights alone, and they are gathered for each use */
} plan_chunk;

static inline bool plan_chunk_same(const plan_chunk *a, const plan_chunk *b)
{
    return a->placement == b->placement && a->update == b->update && a->sharded == b->sharded;
}

typedef struct plan_block {
    save_level level;
    tier place; /* of the saved set between forward and backward */
} plan_block;

/* What a plan in a file was made for; model_type is empty where the file does not say. */
typedef struct plan_target {
    char model_type[32];
    int64_t parameters, layers, seq_len, batch;
    int64_t hidden, heads, kv_heads, ffn, vocab; /* 0 where the file does not say */
    int64_t trained; /* parameters, fewer than `parameters` where some are frozen */
    uint64_t frozen; /* which are: model_frozen_hash; 0: none */
    int passing;     /* model_passing_layers */
    pt_dtype type;
    int gpu; /* 1 or 0; -1 where the file does not say */
    const optimizer *optimizer; /* NULL where the file does not say */
} plan_target;

enum { PLAN_MAX_CHUNKS = 1 << 20, PLAN_MAX_SLOTS = 4096, PLAN_MIN_CHUNK_BYTES = 8 << 10 };
#define PLAN_MAX_CHUNK_BYTES (INT64_C(1) << 40)

typedef struct plan {
    plan_target made_for;
    int64_t chunk_bytes; /* PLAN_MIN_CHUNK_BYTES .. PLAN_MAX_CHUNK_BYTES */
    int n_buffer;        /* device buffers through which the weights of chunks that live elsewhere pass */
    int n_update;        /* buffers through which states pass on their way to an update elsewhere */
    int n_swap;          /* device buffers through which saved sets that live elsewhere pass */
    int64_t micro_batch; /* sequences, a multiple of the unit */
    int visit;           /* micro-batches that visit a block before the next block is taken */
    update_time update;
    int chunks_n, blocks_n; /* blocks_n: decoder layers */
    plan_chunk *chunks;
    plan_block *blocks;  /* of a layer that backward does not come to: SAVE_INPUT, TIER_DEVICE */
} plan;

/* An empty plan with room for so many chunks and layers, all of them on the device. */
int plan_alloc(plan *p, int chunks_n, int blocks_n, pt_error *e);
void plan_free(plan *p);
int plan_copy(plan *to, const plan *from, pt_error *e); /* `to` is overwritten, not freed */

/* Whether the plan belongs to this model and step, and asks for nothing impossible: PT_FAILED names the key and
 * the mend. How much memory it needs is not looked at. */
int plan_validate(const plan *p, const model *m, const step_shape *s, const packing *k, bool clipping, pt_error *e);

/* JSON as plan.json holds it; equal neighbours among the chunks and blocks are written once, with their count:
 *
 *   {"made_for": {"model_type": "gpt2", "parameters": 124439808, "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12,
 *                 "ffn": 3072, "vocab": 50257, "seq_len": 512, "batch": 4, "dtype": "bf16", "optimizer": "adamw",
 *                 "gpu": false},
 *    "chunk_bytes": 16777216, "n_buffer": 4, "n_update": 2, "n_swap": 3, "micro_batch": 4, "visit": 1,
 *    "update": "next_forward",                                                 or "backward", "end"
 *    "chunks": [{"count": 3, "home": "device", "update": "device"}, ...],      placements "device", "host", "disk"; "sharded": true
 *    "blocks": [{"count": 12, "save": "attention", "place": "device"}, ...]}   "input", "attention", "all" ("matmuls": the same)
 *
 * Where some parameters are frozen, "made_for" has "trained": how many are not, "passing": to how many layers backward does not come,
 * and "frozen": "0123456789abcdef", which tells such sets apart.
 *
 * "made_for" may be missing, and in it "hidden" to "vocab", "optimizer" and "gpu", which older files lack; everything else is needed.
 * Unknown keys, wrong types and absurd numbers are PT_FAILED with file, key and mend. What `protrain plan --json` prints, known by its
 * "fits", is read too: its "plan". `name` is what errors call the text. The caller owns *out (plan_free) where 0 is returned. */
int plan_read(const char *path, plan *out, pt_error *e);
int plan_from_json(const char *name, const char *json, size_t n, plan *out, pt_error *e);
char *plan_to_json(const plan *p, const model *m, const step_shape *s); /* malloc'ed text, NULL: out of memory */
char *plan_write_json(const plan *p, const char *made_for); /* the same; made_for: what stands between the braces of that key */

#endif
