/* schedule.h - what will happen: one training step (or the part of one) as a flat list.
 *
 * Tasks stand in an order in which they could run one by one. Each belongs to a queue; the tasks of
 * a queue run in list order, the queues run at the same time. A task waits, for each other queue, until
 * that queue has finished a given task (`wait`); all such waits point backwards in the list, so nothing
 * can deadlock. Every buffer has its tier, offset and size before the first step: two buffers may share
 * memory if the list uses the one wholly before the other, and then the waits make it so in time too.
 *
 *        list:  load  embed  fetch1  layer0  fetch2  layer1 ...
 *     compute:        embed          layer0          layer1
 *   to device:  load         fetch1          fetch2
 *
 * The first buffers are the placements: what stays between schedules (weights, states, waiting gradients,
 * the batch, results), at the same place in every schedule of a plan. Everything else is transient. A gradient's placement
 * is empty from its update to the backward pass of its block, while that block's activations are there, and during an
 * evaluation: transient buffers lie there then.
 * Building is pure: data in, data out. check.h proves a schedule, the executor walks it.
 */
#ifndef PT_SCHEDULE_H
#define PT_SCHEDULE_H

#include "plan/plan.h"

typedef enum queue_kind {
    QUEUE_COMPUTE,     /* the device's ops */
    QUEUE_TO_DEVICE,   /* host to device copies */
    QUEUE_FROM_DEVICE, /* device to host copies */
    QUEUE_HOST,        /* AdamW on the host */
    QUEUE_READ,        /* disk reads */
    QUEUE_WRITE,       /* disk writes */
    QUEUE_RANKS,       /* what ranks send each other, in the same order on all of them */
    QUEUES
} queue_kind;
extern const char *const queue_names[QUEUES];

typedef enum object_kind {
    OBJECT_WEIGHTS,     /* of chunk `index` */
    OBJECT_STATES,      /* of chunk `index`: low halves, slabs; a frozen one's low halves no task touches */
    OBJECT_GRADIENT,    /* of trained chunk `index`, rounded, waiting for its update */
    OBJECT_SHARD,       /* weights of sharded chunk `index` that this rank keeps; its OBJECT_WEIGHTS are gathered, and have no placement */
    OBJECT_SAVED,       /* saved set of block `index`, micro-batch `micro` (the head's: its input) */
    OBJECT_ACCUMULATOR, /* fp32 gradients of block `index`, if it trains anything */
    OBJECT_STREAM_GRADIENT, /* gradient of the residual stream, micro-batch `micro`, if it leaves the head */
    OBJECT_STREAM,      /* bf16 runs: the residual stream in fp32, from the head on its gradient, micro-batch `micro` */
    OBJECT_WORKSPACE,
    OBJECT_BATCH,       /* ids, targets, first, positions: int32, and weights: fp32 (5, batch, seq_len) */
    OBJECT_LOSS,        /* losses, and 1 for each target that was the most probable: fp32 (2, batch, seq_len) */
    OBJECT_SUMSQ,       /* fp64 partial sums of squares of all gradients */
    OBJECT_ROPE,        /* cos and sin table, constant */
    OBJECT_PARTIAL,     /* several ranks: the fp32 sums of each of them for this rank's shard of chunk `index`, of block `micro` */
    OBJECT_KINDS
} object_kind;
extern const char *const object_names[OBJECT_KINDS];
/* OBJECT_BATCH and _LOSS, a token */
enum { BATCH_TOKEN_BYTES = 4 * sizeof(int32_t) + sizeof(float), LOSS_TOKEN_BYTES = 2 * sizeof(float) };

typedef struct buffer {
    object_kind kind;
    int index, micro;       /* -1 where it has none */
    tier tier;
    uint64_t offset, bytes;
    int slot;               /* buffers of one slot follow each other at one address, or lie side by side; -1: own place */
    uint64_t within;        /* offset in the slot */
    bool placement;              /* keeps its contents between schedules */
    int first, last;        /* tasks; placements: the whole list */
    int idle, idle_end;     /* a gradient's placement: from task `idle` to before `idle_end` nothing is kept there; equal: never */
} buffer;

static inline bool buffer_can_idle(const buffer *b) { return b->placement && b->kind == OBJECT_GRADIENT; }

typedef enum task_kind {
    TASK_INPUT,          /* the batch, from the loader's memory to the device */
    TASK_OUTPUT,         /* losses and sums of squares, from the device */
    TASK_COPY,           /* between device and host */
    TASK_READ, TASK_WRITE, /* between memory and disk */
    TASK_EMBED,          /* ids -> x of the first layer */
    TASK_LAYER,
    TASK_HEAD,           /* loss, gradient of the stream and of the head's parameters */
    TASK_HEAD_EVAL,      /* loss only */
    TASK_LAYER_BACKWARD,
    TASK_FINISH,         /* accumulators of `block`, or ranks' partial sums -> gradient of `chunk`, sums of squares */
    TASK_EMBED_FINISH,   /* the same for the embedding's tables, from the streams' gradients */
    TASK_UPDATE,         /* AdamW of `chunk` */
    /* several ranks: */
    TASK_EMBED_BACKWARD, /* streams' gradients -> accumulators of the embedding */
    TASK_SCATTER,        /* accumulators of `block`, to the ranks whose shards of `chunk` they belong to -> partial sums from all of them */
    TASK_GATHER,         /* the weights of `chunk`: a shard from each rank, in place behind an update; of a sharded chunk into a buffer */
    TASK_KINDS
} task_kind;
extern const char *const task_names[TASK_KINDS];

typedef struct operand { int buffer; bool read, write; } operand;

typedef struct task {
    task_kind kind;
    queue_kind queue;
    int block, micro, chunk;  /* -1 where it has none */
    bool first;               /* accumulate nothing: first micro-batch of the step for this block */
    int operand0, operands_n; /* copies: [0] source, [1] destination */
    int wait[QUEUES];         /* index of the task of that queue to wait for, or -1 */
} task;

typedef enum schedule_kind {
    SCHEDULE_STEP,        /* a whole step; no update waits from the step before */
    SCHEDULE_STEP_UPDATE, /* the same, and the updates of the step before in the order of the forward */
    SCHEDULE_DRAIN,       /* the waiting updates alone */
    SCHEDULE_EVAL,        /* forward and loss alone */
    SCHEDULE_KINDS
} schedule_kind;

typedef struct schedule {
    schedule_kind kind;
    int tasks_n, operands_n, buffers_n, placements_n, slots_n;
    task *tasks;
    operand *operands;
    buffer *buffers;
    int micro_n;                /* micro-batches a step */
    int64_t micro_units;        /* units a micro-batch */
    uint64_t bytes[TIERS];      /* arena that each tier needs */
    uint64_t placement_bytes[TIERS]; /* of it, placements; they come first */
    uint64_t lasting_bytes[TIERS]; /* of those, all but the gradients', which come last: what is kept when no update waits */
} schedule;

/* Everything a schedule is made from; the pointers outlive it. */
typedef struct schedule_input {
    const model *model;
    const step_shape *shape;
    const packing *packing;
    const plan *plan;
    bool training;  /* false: weights only (evaluation of a model that is not trained) */
    bool host_tier; /* a host tier exists; else the disk is next to the device, whose memory is RAM */
    const layer_layout *layouts; /* of each save level; NULL: computed for each schedule */
} schedule_input;

static inline bool is_of_chunk(object_kind kind) { return kind <= OBJECT_SHARD; }
/* What stays of a chunk's weights: all of them, or the rank's shard; and the element of the chunk where that begins. */
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

int schedule_build(const schedule_input *in, schedule_kind kind, schedule *out, pt_error *e);
/* The same in steps, for those who need less: tasks and addresses without waits, which is enough for `bytes`; then every wait,
 * which is enough to simulate. */
int schedule_place(const schedule_input *in, schedule_kind kind, schedule *out, pt_error *e);
int schedule_add_waits(schedule *s, pt_error *e);
void schedule_free(schedule *s);

/* What the schedules in the bit set `kinds` need of each tier together, with the scratch that loading and saving
 * need between runs, when no update waits: a window for one chunk that lives on the disk, and 8 MiB. It lies on the host tier, or
 * without one on the device, which then is RAM. */
int schedule_plan_bytes(const schedule_input *in, unsigned kinds, uint64_t bytes[TIERS], pt_error *e);
void schedule_raise_bytes(const schedule_input *in, const schedule *s, uint64_t bytes[TIERS]);
uint64_t schedule_window_bytes(const schedule_input *in);
tier schedule_scratch_tier(const schedule_input *in);

/* For building: addresses from lifetimes (layout.c); waits from operands, without those that others make needless (link.c). */
int schedule_layout(schedule *s, pt_error *e);
int schedule_link(schedule *s, pt_error *e);

/* The buffer of a given object among a task's operands, or -1. */
int task_find(const schedule *s, const task *t, object_kind kind, int index, int micro);

#endif
