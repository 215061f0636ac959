/* schedule.h - a training step, or a part of one, as a flat list of tasks.
 *
 * The tasks are in an order in which they could run one by one. Each belongs to a queue. The tasks of a queue run in list order, and the
 * queues run concurrently. Before a task starts, each other queue must have finished a given task (`wait`). All waits point backwards in
 * the list, so nothing can deadlock. Every buffer has its tier, offset and size before the first step. Two buffers may share memory if
 * all uses of one precede all uses of the other in the list; the waits then keep that order at run time.
 *
 *        list:  load  embed  fetch1  layer0  fetch2  layer1 ...
 *     compute:        embed          layer0          layer1
 *   to device:  load         fetch1          fetch2
 *
 * The first buffers are the placements, which keep their contents between schedules (weights, states, waiting gradients, the batch,
 * results) and have the same address in every schedule of a plan. All other buffers are transient. A gradient's placement is empty from
 * its update to the backward pass of its block, and during an evaluation; transient buffers may use it then.
 *
 * Building a schedule has no side effects. check.h proves a schedule, the executor runs it.
 */
#ifndef PT_SCHEDULE_H
#define PT_SCHEDULE_H

#include "layer/parts.h"
#include "plan/plan.h"

typedef enum queue_kind {
    QUEUE_COMPUTE,     /* the device's ops */
    QUEUE_TO_DEVICE,   /* host to device copies */
    QUEUE_FROM_DEVICE, /* device to host copies */
    QUEUE_HOST,        /* AdamW on the host */
    QUEUE_READ,        /* disk reads */
    QUEUE_WRITE,       /* disk writes */
    QUEUE_RANKS,       /* exchanges between ranks, in the same order on all of them */
    QUEUES
} queue_kind;
extern const char *const queue_names[QUEUES];

typedef enum object_kind {
    OBJECT_WEIGHTS,     /* of chunk `index` */
    OBJECT_STATES,      /* of chunk `index`: low halves and slabs; no task touches the low halves of a frozen chunk */
    OBJECT_GRADIENT,    /* of trained chunk `index`, rounded, waiting for its update */
    OBJECT_SHARD,       /* this rank's weights of sharded chunk `index`; its OBJECT_WEIGHTS are gathered and have no placement */
    OBJECT_SAVED,       /* saved tensors of block `index`, micro-batch `micro` (for the head: its input) */
    OBJECT_ACCUMULATOR, /* fp32 gradients of block `index`, if it has trained parameters */
    OBJECT_STREAM_GRADIENT, /* gradient of the residual stream, micro-batch `micro`, if backward continues below the head */
    OBJECT_STREAM,      /* bf16 runs: the fp32 residual stream of micro-batch `micro`; from the head on its gradient */
    OBJECT_CARRIED,     /* what layers hand on beside the stream, micro-batch `micro` (model/shape.h) */
    OBJECT_CARRIED_GRADIENT, /* and its gradients */
    OBJECT_ROWS,        /* rows of the table of layers' inputs for the tokens of micro-batch `micro`, as they are in the table */
    OBJECT_OPEN,         /* workspace of layer `index`, micro-batch `micro`, from the first part of its task to the last */
    OBJECT_WORKSPACE,
    OBJECT_BATCH,       /* ids, targets, first, positions: int32, and weights: fp32 (5, batch, seq_len); where gradients are lists of
                         * rows, the place of each token's row in the list, and the rows' numbers: int32 (1 + ranks, batch, seq_len) */
    OBJECT_LOSS,        /* losses, and 1 where the target was the most probable token: fp32 (2, batch, seq_len); shape.scores of each row */
    OBJECT_SUMSQ,       /* fp64 partial sums of squares of all gradients */
    OBJECT_ROUTING,     /* models with experts, in a step: where each expert's rows end, for each unit and layer (model/shape.h) */
    OBJECT_ROPE,        /* cos and sin table, constant */
    OBJECT_ROWS_GRADIENT, /* of a trained table that is looked up: the rounded gradients of the rows of the step's tokens, by ascending
                           * numbers, waiting for the updates of its chunks on this tier; with several ranks those of this rank's shards
                           * alone are there, in the places that they have in the list of all */
    OBJECT_PARTIAL,     /* several ranks: the fp32 sums of each rank for this rank's shard of chunk `index`, block `micro` */
    OBJECT_PARTIAL_TIED, /* the same for the head's sums of a tied table, of which chunk `index` has rows */
    OBJECT_ROWS_SUMS,   /* several ranks: the fp32 sums over this rank's tokens, for the same rows as OBJECT_ROWS_GRADIENT */
    OBJECT_KINDS
} object_kind;
extern const char *const object_names[OBJECT_KINDS];
/* bytes per token of OBJECT_BATCH and, without scores, of OBJECT_LOSS */
enum { BATCH_PLANES = 5, LOSS_TOKEN_BYTES = 2 * sizeof(float) };
static inline uint64_t batch_token_bytes(const model *m, const step_shape *shape)
{
    return (uint64_t)(BATCH_PLANES + (inputs_are_trained(m) ? 1 + shape_ranks(shape) : 0)) * sizeof(int32_t);
}
static inline uint64_t loss_bytes(const step_shape *shape)
{
    return (uint64_t)(shape->batch * shape->seq_len) * (LOSS_TOKEN_BYTES + (uint64_t)shape->scores * sizeof(float));
}

typedef struct buffer {
    object_kind kind;
    int index, micro;       /* -1: none */
    tier tier;
    uint64_t offset, bytes;
    int slot;               /* buffers of a slot use one address after another in time, or lie side by side; -1: no slot */
    uint64_t within;        /* offset in the slot */
    bool placement;              /* keeps its contents between schedules */
    int first, last;        /* tasks; placements: the whole list */
    int idle, idle_end;     /* a gradient's placement is empty from task `idle` to before task `idle_end`; equal: never */
} buffer;

static inline bool buffer_can_idle(const buffer *b)
{
    return b->placement && (b->kind == OBJECT_GRADIENT || b->kind == OBJECT_ROWS_GRADIENT);
}

typedef enum task_kind {
    TASK_INPUT,          /* copies the batch from the loader's memory to the device */
    TASK_OUTPUT,         /* copies losses, sums of squares and the ends of experts' rows from the device */
    TASK_COPY,           /* between device and host */
    TASK_READ, TASK_WRITE, /* between memory and disk */
    TASK_LOOK_UP,        /* ids -> OBJECT_ROWS, from chunks on the host (queue host) or on the disk (queue read) */
    TASK_EMBED,          /* ids -> x of the first layer */
    TASK_LAYER,
    TASK_HEAD,           /* loss, gradients of the stream and of the head's parameters */
    TASK_HEAD_EVAL,      /* loss only */
    TASK_LAYER_BACKWARD,
    TASK_FINISH,         /* accumulators of `block`, or ranks' partial sums -> gradient of `chunk`, sums of squares */
    TASK_EMBED_FINISH,   /* the same for the embedding's tables, from the streams' gradients */
    TASK_ROWS_FINISH,    /* gradients of layers' inputs -> OBJECT_ROWS_GRADIENT, sums of squares; with several ranks OBJECT_ROWS_SUMS, and
                          * then for each chunk of the table TASK_SCATTER and TASK_FINISH */
    TASK_UPDATE,         /* AdamW of `chunk` */
    /* several ranks: */
    TASK_EMBED_BACKWARD, /* streams' gradients -> accumulators of the embedding */
    TASK_SCATTER,        /* sends the accumulators of `block` to the ranks of `chunk`'s shards; receives partial sums from all ranks */
    TASK_SCATTER_TIED,   /* the same with the head's accumulators of a tied table, of which `chunk` has rows */
    TASK_HEADS,          /* rows of a layer's q, k, v and the like for heads, or back, with the ranks that share the sequences */
    TASK_GATHER,         /* receives the shards of `chunk`'s weights: whole chunks in place after an update, sharded ones into a buffer */
    TASK_KINDS
} task_kind;
extern const char *const task_names[TASK_KINDS];

typedef struct operand { int buffer; bool read, write; } operand;

typedef struct task {
    task_kind kind;
    queue_kind queue;
    int block, micro, chunk;  /* -1: none */
    int part;                 /* of a layer's parts (schedule_parts); 0 for other tasks */
    double share;             /* of the layer's time that the part takes; 1 for other tasks */
    bool backward;            /* TASK_HEADS: of the layer's backward */
    uint64_t bytes;           /* of TASK_HEADS: what this rank sends, its own part included */
    bool first;               /* first micro-batch of the step for this block: overwrite the accumulators */
    int operand0, operands_n; /* copies: [0] source, [1] destination */
    int wait[QUEUES];         /* index of the task of that queue to wait for, or -1 */
} task;

typedef enum schedule_kind {
    SCHEDULE_STEP,        /* a whole step; no update waits from the step before */
    SCHEDULE_STEP_UPDATE, /* a whole step, with the waiting updates of the previous one in the order of forward */
    SCHEDULE_DRAIN,       /* only the waiting updates */
    SCHEDULE_EVAL,        /* only forward and loss */
    SCHEDULE_KINDS
} schedule_kind;

typedef struct schedule {
    schedule_kind kind;
    int tasks_n, operands_n, buffers_n, placements_n, slots_n;
    task *tasks;
    operand *operands;
    buffer *buffers;
    int micro_n;                /* micro-batches per step */
    int64_t micro_units;        /* units per micro-batch */
    uint64_t bytes[TIERS];      /* size of each tier's arena */
    uint64_t placement_bytes[TIERS]; /* the part for placements, at the beginning */
    uint64_t lasting_bytes[TIERS]; /* placements without the gradients', which are last: what must be kept if no update waits */
} schedule;

/* Everything a schedule is built from. The pointers must outlive the schedule. */
typedef struct schedule_input {
    const model *model;
    const step_shape *shape;
    const packing *packing;
    const plan *plan;
    bool training;  /* false: only weights have placements (evaluation of a model that is not trained) */
    bool host_tier; /* a host tier exists; if not, the device's memory is RAM and disk transfers go to and from it */
    const layer_set *layouts; /* NULL: computed for each schedule */
} schedule_input;

static inline bool is_of_chunk(object_kind kind) { return kind <= OBJECT_SHARD; }
/* The part of a chunk's weights that this rank keeps, all of them or its shard; and the element of the chunk where that part begins. */
static inline object_kind kept_weights(const schedule_input *in, int chunk)
{
    return in->plan->chunks[chunk].sharded ? OBJECT_SHARD : OBJECT_WEIGHTS;
}
static inline uint64_t kept_weight_bytes(const schedule_input *in, int chunk)
{
    return in->plan->chunks[chunk].sharded ? chunk_shard_bytes(in->packing, chunk) : chunk_weight_bytes(in->packing, chunk);
}
static inline int64_t kept_weight_start(const schedule_input *in, int chunk)
{
    return in->plan->chunks[chunk].sharded ? shard_start(in->packing, chunk, in->packing->rank) : 0;
}

/* Are rows looked up on this tier? Their bytes for one unit; the tier that disk transfers use. */
bool schedule_looks_up(const schedule_input *in, tier t);
uint64_t schedule_rows_bytes(const model *m, const step_shape *shape);
/* Do updates on this tier read OBJECT_ROWS_GRADIENT? Its bytes, and those of OBJECT_ROWS_SUMS. */
bool schedule_updates_rows(const schedule_input *in, tier t);
uint64_t schedule_rows_gradient_bytes(const model *m, const step_shape *shape);
uint64_t schedule_rows_sums_bytes(const model *m, const step_shape *shape);
/* The parts in which a layer is computed; of one visit, each part for all micro-batches before the next. One: the layer as a whole. */
void schedule_parts(const schedule_input *in, const layer_layout *layout, int block, bool backward, layer_parts *out);
/* The same, which most layers of a kind share: found again only for others than the last. *k begins as zeros, one for each direction. */
typedef struct kept_parts { const layer_layout *layout; int64_t up, down; layer_parts parts; } kept_parts;
const layer_parts *schedule_kept_parts(const schedule_input *in, const layer_layout *layout, int block, bool backward, kept_parts *k);
/* Does the part need a chunk that its block reads? */
bool schedule_part_reads(const schedule_input *in, const layer_part *part, int chunk);
/* Parts with steps, which are all but exchanges. */
static inline int schedule_computed_parts(const layer_parts *parts)
{
    int n = 0;
    for (int i = 0; i < parts->n; i++)
        n += parts->part[i].kind != PART_EXCHANGE;
    return n;
}
/* The workspace that a layer in parts keeps for one unit: its own, and a share of what its sequence's units have together, which is behind
 * theirs. */
static inline uint64_t schedule_own_bytes(const layer_layout *layout, bool backward)
{
    return align_up(backward ? layout->backward_workspace : layout->forward_workspace, 4096);
}
static inline uint64_t schedule_open_bytes(const layer_layout *layout, bool backward)
{
    return schedule_own_bytes(layout, backward) + (backward ? layout->backward_sequence : layout->forward_sequence);
}
static inline tier schedule_memory(const schedule_input *in) { return in->host_tier ? TIER_HOST : TIER_DEVICE; }

int schedule_build(const schedule_input *in, schedule_kind kind, schedule *out, pt_error *e);
/* The two halves of schedule_build, for callers that need less: tasks and addresses without waits (enough for `bytes`); then all waits,
 * including redundant ones (enough to simulate). */
int schedule_place(const schedule_input *in, schedule_kind kind, schedule *out, pt_error *e);
int schedule_add_waits(schedule *sched, pt_error *e);
void schedule_free(schedule *sched);

/* The bytes that the schedules in the bit set `kinds` need of each tier, with the scratch memory for loading and saving (while no update
 * waits): a window for one chunk that lives on the disk, and 8 MiB. Scratch is on the host tier, or without one on the device, which
 * is RAM then. */
int schedule_plan_bytes(const schedule_input *in, unsigned kinds, uint64_t bytes[TIERS], pt_error *e);
void schedule_raise_bytes(const schedule_input *in, const schedule *sched, uint64_t bytes[TIERS]);
uint64_t schedule_window_bytes(const schedule_input *in);
tier schedule_scratch_tier(const schedule_input *in);

/* Steps of building: addresses from lifetimes (layout.c); waits from operands, without redundant ones (link.c). */
int schedule_layout(schedule *sched, pt_error *e);
int schedule_link(schedule *sched, pt_error *e);

/* The buffer of an object among a task's operands, or -1. */
int task_find(const schedule *sched, const task *t, object_kind kind, int index, int micro);

#endif
