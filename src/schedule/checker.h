/* checker.h - what the parts of the checker share.
 *
 *   check.c           the list itself: indices, waits; objects and their sizes; budget
 *   check_memory.c    who touched each byte last, and whether that is surely over
 *   check_task.c      what each kind of task needs, and what it leaves behind
 *   check_contents.c  versions: the walk
 *   check_moves.c     the same for blocks that it knows nothing of
 */
#ifndef PT_CHECKER_H
#define PT_CHECKER_H

#include "schedule/check.h"

/* Contents of a buffer. Versions are counted per kind of object:
 *   weights, states   0 at the start of the schedule, 1 after the update; with several ranks weights have 2 when all shards are in
 *   shard             0 at the start of the schedule, 2 after the update: the weights that are gathered from it then
 *   gradient          0 the one that waits since the step before; k: the pieces of k blocks are in
 *   saved             1 the block's input is in, 2 everything that the save level keeps
 *   accumulator       number of micro-batches summed up
 *   stream            block whose input's gradient it is; it gets to the first trained block, and to the head only if it goes further
 *   residual          b: block b's input; 2 (layers + 2) - b: the gradient of block b's input
 *   partial           1 the sums of all ranks are in, 2 they are added up
 *   batch             1 the batch is in;  loss: micro-batches that are in;  sumsq: finished pieces that are in */
typedef struct content { bool alive; int version; } content;

/* A stretch of a tier that no buffer's border divides. */
typedef struct segment {
    int owner;            /* buffer whose contents are there, -1: none */
    int writer;           /* last task that wrote, -1: none */
    int reader[QUEUES];   /* latest since then that read */
} segment;

typedef struct block_facts {
    uint64_t saved_bytes, forward_bytes, backward_bytes, accumulator_bytes;
    int complete;         /* version of a complete saved set */
    int chunks0, chunks_n; /* of checker.chunk_list: chunks that its computation reads */
} block_facts;

/* What a task must have as an operand. */
typedef struct want {
    object_kind kind;
    int index, micro;
    tier tier;
    bool read, write;
    int before, after;    /* version read, version left behind */
    uint64_t bytes;       /* workspace: at least this many */
} want;

typedef struct checker {
    const schedule_input *in;
    const schedule *s;
    pt_error *e;
    int layers, micro_n, chunks_n;
    int first_trained;    /* block where backward ends */
    int64_t micro_units;
    bool waits;           /* updates wait for the next step */
    block_facts *blocks;  /* layers + 2 */
    int *chunk_list;
    unsigned char *pieces_of; /* [block][chunk]: the chunk has trained pieces of the block */
    int *chunk_blocks;    /* blocks that have trained pieces in the chunk; 0: it is frozen */

    content *contents;    /* of each buffer */
    segment *segments[TIERS];
    int *segment0, *segment1; /* of each buffer */
    int (*done)[QUEUES];  /* [task]: latest task of each queue that is over before it starts; -1: none */

    /* the newest version of each object */
    int *weights, *states, *gradient;  /* chunk */
    int *saved;                        /* [block][micro] */
    int *accumulator;                  /* block */
    int *stream;                       /* micro; layers + 2: none yet */
    unsigned char *head_done;          /* micro */
    unsigned char *finished;           /* [block][chunk] */
    unsigned char *scattered;          /* the same, of several ranks */
    int losses, sums, sums_needed, inputs, outputs;

    want *wants;
    int wants_n;
    unsigned char *used;  /* operands of the task that were asked for */
} checker;

/* Says what is wrong: "task 12 (layer_backward, block 3, micro-batch 1), buffer 4 (weights of chunk 2 on device): ...".
 * task or buffer -1: none. Returns PT_FAILED. */
int check_fail(const checker *c, int task, int buffer, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

int check_memory_open(checker *c);            /* segments, order of tasks */
int check_memory(checker *c, int task);       /* the task's accesses */

/* Fills c->wants. An error where the task has no place here. */
int check_task_wants(checker *c, int task);
void check_task_done(checker *c, int task);   /* counts it */

int check_contents_before(checker *c, int task); /* its operands and the versions it reads */
void check_contents_after(checker *c, int task); /* what it wrote */
int check_contents_end(checker *c);

int check_moves(checker *c);                  /* of any network: order, memory, and that only newest versions are read */

static inline bool is_shared(const checker *c) { return c->in->packing->ranks > 1; }
static inline int whole_weights(const checker *c) { return is_shared(c) ? 2 : 1; } /* version after an update */
static inline bool is_step(const checker *c) { return c->s->kind == SCHEDULE_STEP || c->s->kind == SCHEDULE_STEP_UPDATE; }
static inline int saved_at(const checker *c, int block, int micro) { return block * c->micro_n + micro; }
static inline int piece_at(const checker *c, int block, int chunk) { return block * c->chunks_n + chunk; }
uint64_t check_object_bytes(const checker *c, object_kind kind, int index, int micro); /* not of a workspace */

/* Layers and head, and where ranks share a run the embedding. */
static inline bool has_accumulator(const checker *c, int block)
{
    return block >= (is_shared(c) ? 0 : 1) && block <= c->layers + 1 && c->blocks[block].accumulator_bytes;
}

#endif
