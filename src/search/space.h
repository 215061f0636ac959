/* space.h - what the search walks through, and the parts of search/ share.
 *
 * A plan of 100 layers has some hundreds of numbers, but good plans have a shape: the first chunks live on the device,
 * the next on the host, the rest on the disk (placements.c moves single chunks at the end); updates elsewhere follow a stride. A
 * `candidate` is such a plan in few numbers, with a save level and a place for each layer; it becomes a plan by candidate_plan.
 *
 *   candidate --estimate--> time and bytes by sums alone, about a microsecond      (prunes, orders)
 *          --price-----> schedules built and simulated, about a millisecond     (decides)
 *
 * The sums over chunks are kept ready for each size of chunk that is tried (`chunking`), so that an estimate does not
 * walk over the chunks. An estimate's `least_ns` is a true bound: no queue can be done before its tasks are. (With a stride of 2 and
 * more it has the mean of the chunks for those that are updated on the device: off by 0.04% in one of 576 candidates.)
 */
#ifndef PT_SPACE_H
#define PT_SPACE_H

#include "search/memory.h"
#include "search/search.h"

#include <stdatomic.h>

enum { SPACE_CHUNKINGS = 12, SPACE_SPLITS = 64, SPACE_LARGEST = 4, UPDATE_STRIDE_NONE = 0 };

/* Sums over the chunks before chunk c, of the time that each takes alone or of its bytes. Of frozen chunks weights come in, and that is
 * all. */
typedef enum chunk_sum {
    SUM_WEIGHT_IN, SUM_WEIGHT_OUT, SUM_WEIGHT_READ, SUM_WEIGHT_WRITE, /* to device, from device, from disk, to disk */
    SUM_STATE_IN, SUM_STATE_OUT, SUM_STATE_READ, SUM_STATE_WRITE,
    SUM_GRADIENT_IN, SUM_GRADIENT_OUT, SUM_GRADIENT_READ, SUM_GRADIENT_WRITE,
    SUM_SHARD_IN, SUM_SHARD_OUT, SUM_SHARD_READ, SUM_SHARD_WRITE, /* of weights, where ranks share a step */
    SUM_GATHER, SUM_SCATTER, /* weights from and sums of gradients to the other ranks */
    SUM_UPDATE_HOST, SUM_UPDATE_DEVICE, SUM_FINISH,
    SUM_WEIGHT_BYTES, SUM_SHARD_BYTES, SUM_STATE_BYTES, SUM_GRADIENT_BYTES,
    CHUNK_SUMS
} chunk_sum;

typedef struct chunking {
    packing packing;
    int at_once, per_layer;  /* the most chunks that one block, one layer reads */
    double *sum[CHUNK_SUMS]; /* chunks_n + 1 each */
    uint64_t (*largest)[SPACE_LARGEST]; /* weight bytes of the largest chunks from chunk c on, in order */
    uint64_t (*trained)[SPACE_LARGEST]; /* the same of trained ones */
    double gradients;        /* bytes of a waiting gradient for each byte of weights: 1 for one rank */
    uint64_t *window;        /* the most that loading and saving need for one of the chunks from chunk c on */
    double states;           /* bytes of states for each byte of weights, of trained chunks */
    int back0;               /* the first chunk that backward reads */
    uint64_t update_bytes;   /* largest workspace of an update */
    double slow[COST_CLASSES][COST_CLASSES]; /* costs.slow, of transfers of the largest chunk */
} chunking;

/* A way to cut the step: micro-batch and micro-batches a visit. */
typedef struct split { int64_t micro_batch; int visit; } split;

typedef struct candidate {
    int chunking;            /* index into space.chunkings */
    int persist, on_host;    /* chunks: the first on the device, the next on the host, the rest on the disk */
    int whole;               /* chunks: of the first each rank has all weights, of the rest its shard; all, where there is one rank */
    int n_buffer, n_update, n_swap;
    int stride;              /* of the chunks away from the device every stride-th is updated there; 0: none, 1: all */
    int64_t micro_batch;
    int visit;
    update_time update;
    unsigned char level[MODEL_MAX_LAYERS], place[MODEL_MAX_LAYERS];
} candidate;

typedef struct space {
    const search_input *in;
    search_input given;      /* *in, which is what was asked with `layouts` */
    int layers;
    int first_trained;       /* block; as model_first_trained */
    int passing;             /* the first layers, to which backward does not come: they save nothing */
    uint64_t budget[TIERS];  /* the disk's is 0 where memory suffices */
    int chunkings_n, splits_n;
    chunking chunkings[SPACE_CHUNKINGS];
    split splits[SPACE_SPLITS];
    layer_layout layouts[SAVE_LEVELS];
    head_layout head;
    int stride;              /* that Deep Optimizer States' model gives from the rates of device, host and link; 0: none is worth it */
    uint64_t placement_bytes;     /* batch, losses and the like, on the device */
    uint64_t input_bytes;    /* one unit's input of a layer */
    uint64_t residual_bytes; /* one unit's residual stream in fp32 */
    uint64_t accumulator_layer, accumulator_head, accumulator_all; /* of the largest layer, the head, all blocks */
    double least_tasks;      /* that may still be built in looking for the most economical plan: then the best that was found has to do */
    uint64_t fill[TIERS];    /* budgets for estimates: corrected by what they are known to be wrong by */
    memory *memory;   /* of candidates that were priced */
    atomic_int tried;
} space;

/* Schedules are quickly built, and plans differ by single layers: more is looked at, and less is left to the estimate. */
static inline bool space_has_few_layers(const space *s) { return s->layers <= 12; }

/* The first layer that saves for backward, or the first of all. */
static inline int space_first_saving(const space *s) { return s->passing < s->layers ? s->passing : 0; }

int space_open(space *s, const search_input *in, pt_error *e);
void space_close(space *s);

static inline bool space_has(const space *s, tier t) { return t == TIER_DEVICE || (s->budget[t] && (t != TIER_HOST || s->in->host_tier)); }
/* What a GPU has to update is updated there, and all else with it. */
static inline bool space_updates_on_host(const space *s)
{
    return s->in->host_tier && !(s->in->shape->gpu && optimizer_is_by_device(shape_optimizer(s->in->shape)));
}
static inline int candidate_chunks(const space *s, const candidate *r) { return s->chunkings[r->chunking].packing.chunks_n; }
static inline bool space_is_shared(const space *s) { return shape_ranks(s->in->shape) > 1; }
/* The first chunk whose weights pass through buffers. */
static inline int candidate_resident(const candidate *r) { return r->persist < r->whole ? r->persist : r->whole; }

/* Everything on the device, nothing saved but inputs, a unit at a time. */
void candidate_init(const space *s, candidate *r, int chunking);
void candidate_blocks(const space *s, candidate *r, int first, int end, save_level level, tier place);
/* Brings its numbers into their limits and makes equal plans equal candidates. */
void candidate_normalise(const space *s, candidate *r);
uint64_t candidate_hash(const space *s, const candidate *r);
/* The same for all candidates that differ only in what lives where and in what their layers save. */
uint64_t candidate_kind(const candidate *r);
int candidate_plan(const space *s, const candidate *r, plan *p, pt_error *e);
/* like.c: false: no candidate of the space has its chunks, or cuts the step as it does. */
bool candidate_like(const space *s, const priced_plan *c, candidate *r);
bool space_same_chunks(const packing *a, const packing *b);

/* From a candidate that was priced: its neighbours' estimates are wrong by as much. */
void space_correct(space *s, const candidate *r, const uint64_t needs[TIERS]);

typedef struct estimate {
    double ns;               /* what it may take */
    double least_ns;         /* it takes at least that */
    uint64_t bytes[TIERS];   /* about what it needs */
} estimate;
void candidate_estimate(const space *s, const candidate *r, estimate *out);
/* As many chunks on the device, and then on the host, as the estimate says that fit the budgets. false: too much even without any. */
bool candidate_fill(const space *s, candidate *r, const uint64_t budget[TIERS], estimate *out);

typedef struct priced {
    candidate candidate;
    double step_ns;
    uint64_t bytes[TIERS], written; /* written: to the disk in a step */
    bool proven;                    /* that the schedules which are not timed fit too; else `bytes` is without them */
} priced;
/* 1: fits, and it is priced. 0: too slow or too large: step_ns is at least `limit` (0: none), or some of `bytes`, the needs of
 * the schedules built so far, are beyond the budget. Negative: an error. What takes `prove_below` or more (0: nothing) is not
 * proven. Any thread may price, while nobody changes the space's budgets. */
int price_plan(const search_input *in, const packing *k, const plan *p, const uint64_t budget[TIERS], double limit,
               double prove_below, priced *out, pt_error *e);
int candidate_price(space *s, const candidate *r, double limit, double prove_below, priced *out, pt_error *e);
/* The same for the most persistent chunks that really fit, beginning with those of the candidate, which are corrected. */
int candidate_price_filled(space *s, candidate *r, double limit, double prove_below, priced *out, pt_error *e);

/* The plan of a candidate that was priced, to be handed out. */
int space_priced_plan(const space *s, const priced *x, const char *name, priced_plan *out, pt_error *e);

/* policies.c: 1 with the candidate of the policy that fits, 0: none does. */
int policy_price(space *s, policy p, priced *out, pt_error *e);

/* least.c: the most economical plan. 1: fits, 0: does not, with *out filled in either case; `hopeful`: only if that is likely. */
int least_price(space *s, bool hopeful, priced *out, pt_error *e);

/* moves.c: calls fn with each neighbour of *from and its estimate; where fn says true, the neighbour becomes *from and the
 * moves that are left start there. `all`: also other chunks, micro-batches and visits. */
typedef bool (*move_fn)(void *arg, const candidate *r, const estimate *about);
void candidate_moves(const space *s, candidate *from, bool all, move_fn fn, void *arg);

#endif
