/* space.h - the space of candidates, shared by the files of search/.
 *
 * A plan of 100 layers has hundreds of numbers, but good plans have a common shape: the first chunks live on the device, the next on the
 * host, the rest on the disk (placements.c moves single chunks at the end), and updates elsewhere follow a stride. A `candidate` is such a
 * plan in few numbers, with a save level and a tier for each layer; candidate_plan makes the plan.
 *
 *   candidate --estimate--> time and bytes from sums, in about a microsecond              (prunes, orders)
 *             --price-----> schedules built and simulated, in about a millisecond     (decides)
 *
 * Sums over chunks are precomputed for each size of chunk (`chunking`), so that an estimate does not visit the chunks. An estimate's
 * `least_ns` is a true bound, because no queue can end before its tasks do. (With a stride of 2 or more it takes the mean chunk for
 * updates on the device: wrong by 0.04% in one of 576 candidates.)
 */
#ifndef PT_SPACE_H
#define PT_SPACE_H

#include "search/memory.h"
#include "search/search.h"

enum { SPACE_CHUNKINGS = 12, SPACE_SPLITS = 64, SPACE_LARGEST = 4, UPDATE_STRIDE_NONE = 0 };

/* Prefix sums over the chunks before chunk c, of the time that each takes alone or of its bytes. Frozen chunks are only read. */
typedef enum chunk_sum {
    SUM_WEIGHT_IN, SUM_WEIGHT_OUT, SUM_WEIGHT_READ, SUM_WEIGHT_WRITE, /* to device, from device, from disk, to disk */
    SUM_STATE_IN, SUM_STATE_OUT, SUM_STATE_READ, SUM_STATE_WRITE,
    SUM_GRADIENT_IN, SUM_GRADIENT_OUT, SUM_GRADIENT_READ, SUM_GRADIENT_WRITE,
    SUM_SHARD_IN, SUM_SHARD_OUT, SUM_SHARD_READ, SUM_SHARD_WRITE, /* of weights, if ranks share a step */
    SUM_GATHER, SUM_SCATTER, /* weights from, and sums of gradients to, the other ranks */
    SUM_GATHER_ROWS,         /* weights of a trained table that is looked up */
    SUM_UPDATE_HOST, SUM_UPDATE_DEVICE, SUM_FINISH,
    SUM_WEIGHT_BYTES, SUM_SHARD_BYTES, SUM_STATE_BYTES, SUM_GRADIENT_BYTES,
    CHUNK_SUMS
} chunk_sum;

typedef struct chunking {
    packing packing;
    bool ranges;             /* plan.ranges */
    int at_once, per_layer;  /* the largest number of chunks that one block, one layer reads; with ranges, that a part of a layer does */
    int layer_tasks;         /* of a micro-batch, of all blocks, forward and backward */
    double *sum[CHUNK_SUMS]; /* chunks_n + 1 each */
    uint64_t (*largest)[SPACE_LARGEST]; /* weight bytes of the largest chunks from chunk c on, in order */
    uint64_t (*trained)[SPACE_LARGEST]; /* the same of trained ones */
    double gradients;        /* bytes of a waiting gradient per byte of weights; 1 for one rank */
    uint64_t *window;        /* [c]: scratch for loading and saving, at most, of a chunk from c on */
    double states;           /* bytes of states per byte of weights, in trained chunks */
    int back0;               /* the first chunk that backward reads */
    int looked_up;           /* number of the last chunks, which pass through no buffer */
    uint64_t update_bytes;   /* largest workspace of an update */
    uint64_t listed_bytes;   /* several ranks: the largest partial sums of listed rows */
    double slow[COST_CLASSES][COST_CLASSES]; /* costs.slow, of transfers of the largest chunk */
} chunking;

/* A division of the step: micro-batch, and micro-batches per visit. */
typedef struct split { int64_t micro_batch; int visit; } split;

typedef struct candidate {
    int chunking;            /* index into space.chunkings */
    int persist, on_host;    /* numbers of chunks: the first are on the device, the next on the host, the rest on the disk */
    int whole;               /* number of first chunks whose weights every rank has; of the rest it has its shard. With one rank: all */
    int n_buffer, n_update, n_swap;
    int stride;              /* every stride-th chunk away from the device is updated on it; 0: none, 1: all */
    int64_t micro_batch;
    int visit;
    update_time update;
    unsigned char level[MODEL_MAX_LAYERS], place[MODEL_MAX_LAYERS];
} candidate;

/* What a layer's exchanges of heads send for one unit, of forward or of backward. */
enum { HEADS_EXCHANGES = 6 };
typedef struct heads_bytes { int n; bool backward[HEADS_EXCHANGES]; uint64_t bytes[HEADS_EXCHANGES]; } heads_bytes;

typedef struct space {
    const search_input *in;
    search_input given;      /* copy of the input, with `layouts` */
    int layers;
    int first_trained;       /* block; as model_first_trained */
    int passing;             /* number of first layers without backward; they save nothing */
    uint64_t budget[TIERS];  /* the disk's is 0 if memory suffices */
    int chunkings_n, splits_n;
    chunking chunkings[SPACE_CHUNKINGS];
    split splits[SPACE_SPLITS];
    layer_set layouts;
    heads_bytes (*heads)[SAVE_LEVELS]; /* of each kind of layer; NULL: no ranks share sequences */
    head_layout head;
    int stride;              /* from the model of Deep Optimizer States, for the rates of device, host and link; 0: no stride pays */
    uint64_t placement_bytes;     /* batch, losses and the like, on the device */
    uint64_t input_bytes;    /* one unit's input of a layer */
    uint64_t residual_bytes; /* one unit's residual stream in fp32 */
    carried_layout carries;  /* what layers hand on of one unit */
    uint64_t rows_bytes;     /* one unit's rows of a table that is looked up */
    uint64_t rows_gradient_bytes; /* of a step, if it is trained */
    uint64_t rows_sums_bytes; /* the same of a rank's sums, with several ranks */
    double rows_finish_ns;   /* of their sums */
    uint64_t accumulator_layer, accumulator_head, accumulator_all; /* of the largest layer, the head, all blocks */
    double least_tasks;      /* tasks that may still be built to find the most economical plan; at 0 the best so far is taken */
    uint64_t fill[TIERS];    /* budgets for estimates, corrected by their known error */
    memory *memory;   /* prices of candidates */
    double work;             /* done so far (search.h); only the search's own thread counts it */
    int tried;
} space;

/* Schedules are built quickly, and plans differ in single layers: the search tries more, and relies less on the estimate. */
static inline bool space_has_few_layers(const space *space) { return space->layers <= 12; }

/* The work of n estimates; a candidate that is filled takes as much as some of them. */
enum { WORK_OF_ESTIMATE = 150, WORK_OF_LAYER = 4, ESTIMATES_OF_FILLING = 4 };
static inline double space_work_of(const space *space, int n) { return (double)n * (WORK_OF_ESTIMATE + WORK_OF_LAYER * space->layers); }

/* The first layer that saves for backward, or the first layer if none does. */
static inline int space_first_saving(const space *space) { return space->passing < space->layers ? space->passing : 0; }

/* Allows micro-batches of so many units, if one was requested. */
bool space_is_asked_for(const search_input *in, int64_t units);
/* Can the step be divided into visits of so many units? */
bool space_divides(const search_input *in, int64_t units);

/* May layers be computed by ranges of experts? */
bool search_has_ranges(const search_input *in);
int space_open(space *space, const search_input *in, pt_error *e);
void space_close(space *space);

static inline bool space_has(const space *space, tier t)
{
    return t == TIER_DEVICE || (space->budget[t] && (t != TIER_HOST || space->in->host_tier));
}
/* Chunks that must be updated on the GPU are, and then all others, too. */
static inline bool space_updates_on_host(const space *space)
{
    return space->in->host_tier && !(space->in->shape->gpu && optimizer_is_by_device(shape_optimizer(space->in->shape)));
}
static inline int candidate_chunks(const space *space, const candidate *cand) { return space->chunkings[cand->chunking].packing.chunks_n; }
static inline bool space_is_shared(const space *space) { return shape_ranks(space->in->shape) > 1; }
/* The first chunk whose weights pass through buffers. */
static inline int candidate_resident(const candidate *cand) { return cand->persist < cand->whole ? cand->persist : cand->whole; }

/* How many chunks pass through buffers. */
static inline int candidate_passing(const space *space, const candidate *cand)
{
    const int n = candidate_chunks(space, cand) - space->chunkings[cand->chunking].looked_up - candidate_resident(cand);
    return n > 0 ? n : 0;
}

/* Everything on the device, only inputs saved, one unit at a time. */
void candidate_init(const space *space, candidate *cand, int chunking);
void candidate_blocks(const space *space, candidate *cand, int first, int end, save_level level, tier place);
/* Limits its numbers to their ranges, so that equal plans are equal candidates. */
void candidate_normalise(const space *space, candidate *cand);
uint64_t candidate_hash(const space *space, const candidate *cand);
/* A hash that is equal for candidates that differ only in placements and in what layers save. */
uint64_t candidate_kind(const candidate *cand);
int candidate_plan(const space *space, const candidate *cand, plan *plan, pt_error *e);
/* like.c: false: no candidate of the space has the plan's chunks or its division of the step. */
bool candidate_like(const space *space, const priced_plan *c, candidate *cand);
bool space_same_chunks(const packing *a, const packing *b);

/* Corrects `fill` by the error of a priced candidate's estimate; its neighbours have about the same. */
void space_correct(space *space, const candidate *cand, const uint64_t needs[TIERS]);

typedef struct estimate {
    double ns;               /* estimate */
    double least_ns;         /* lower bound */
    uint64_t bytes[TIERS];   /* estimate */
} estimate;
void candidate_estimate(const space *space, const candidate *cand, estimate *out);
/* Puts as many chunks on the device, and then on the host, as the estimate says fit the budgets. false: it does not fit with none. */
bool candidate_fill(const space *space, candidate *cand, const uint64_t budget[TIERS], estimate *out);

typedef struct priced {
    candidate candidate;
    double step_ns, work;           /* work: of pricing it, only by price_plan */
    uint64_t bytes[TIERS], written; /* written: to the disk per step */
    bool proven;                    /* the schedules that are not timed fit, too; false: `bytes` does not include them */
} priced;
/* 1: fits, and is priced. 0: too slow or too large: step_ns is at least `limit` (0: none), or `bytes`, the needs of the schedules built so
 * far, exceeds a budget. Negative: an error. A candidate that takes `prove_below` or more (0: none) is not proven. What is returned, and
 * the work that is counted, depend only on what the search asks, not on what was priced ahead. */
int price_plan(const search_input *in, const packing *packing, const plan *plan, const uint64_t budget[TIERS], double limit, priced *out,
               pt_error *e);
int candidate_price(space *space, const candidate *cand, double limit, double prove_below, priced *out, pt_error *e);
/* So that it is known when the search asks. Thread-safe while the space's budgets do not change. */
void candidate_price_ahead(space *space, const candidate *cand, double limit, double prove_below);
/* The same with the largest number of persistent chunks that really fits, starting from the candidate's, which is corrected. */
int candidate_price_filled(space *space, candidate *cand, double limit, double prove_below, priced *out, pt_error *e);

/* Moves the plan of a priced candidate into *out. */
int space_priced_plan(const space *space, const priced *x, const char *name, priced_plan *out, pt_error *e);

/* policies.c: 1 with the candidate of the policy that fits; 0: none does. */
int policy_price(space *space, policy p, priced *out, pt_error *e);

/* least.c: the most economical plan. 1: fits; 0: does not. *out is set in both cases. `hopeful`: price it only if it is likely to fit. */
int least_price(space *space, bool hopeful, priced *out, pt_error *e);

/* moves.c: calls fn with each neighbour of *from and its estimate. If fn returns true, the neighbour becomes *from, and the remaining moves
 * start there. `all`: also other chunks, micro-batches and visits. */
typedef bool (*move_fn)(void *arg, const candidate *r, const estimate *about);
/* Returns the work. */
double candidate_moves(const space *space, candidate *from, bool all, move_fn fn, void *arg);

#endif
