/* checker.h - shared by the parts of the checker.
 *
 *   check.c           the list: indices, waits; objects and their sizes; budget
 *   check_memory.c    the last accesses of each byte, and whether they have surely ended
 *   check_task.c      what each kind of task reads and writes
 *   check_contents.c  the walk with versions
 *   check_moves.c     the same without knowledge of the network
 */
#ifndef PT_CHECKER_H
#define PT_CHECKER_H

#include "schedule/check.h"

/* Contents of a buffer. Versions are counted per kind of object:
 *   weights, states   0 at the start of the schedule, 1 after the update; with several ranks, weights: 2 when all shards have arrived
 *   shard             0 at the start of the schedule, 2 after the update (the version of the weights gathered from it)
 *   gradient          0: the previous step's, which waits for its update; k: the pieces of k blocks are written
 *   saved             1: the block's input; 2: everything that the save level keeps; negative: a part of it (check_partial)
 *   accumulator       number of micro-batches in the sum, each once for every part of its layer
 *   stream gradient   the block for whose input it is the gradient; backward ends at the first trained block
 *                     of both: negative: between two parts of a layer
 *   open layer        number of the layer's parts that have written it, exchanges among them
 *   stream            b: block b's input; 2 (layers + 2) - b: the gradient of block b's input
 *   carried           number of blocks that have written it; its gradient: number of blocks of backward that have used it
 *   rows              number of tiers from which they were looked up
 *   rows' gradients   0: the previous step's, which wait for their updates; 1: written; with several ranks: number of chunks written
 *   sums of rows      1: written
 *   partial, tied     1: the sums of all ranks have arrived; 2: they are added up
 *   batch             1: written;  loss: number of micro-batches written;  sumsq: number of finished pieces written
 *   routing           number of layers written, those of all micro-batches */
typedef struct content { bool alive; int version; } content;

/* A range of a tier's bytes inside which no buffer begins or ends. */
typedef struct segment {
    int owner;            /* buffer whose contents it holds, -1: none */
    int writer;           /* last task that wrote it, -1: none */
    int reader[QUEUES];   /* last task of each queue that has read it since */
} segment;

typedef struct block_facts {
    uint64_t saved_bytes, forward_bytes, backward_bytes, accumulator_bytes;
    uint64_t forward_open, backward_open; /* of a layer in parts, what is kept between them for each unit */
    int complete;         /* version of a complete saved set */
    layer_parts forward, backward; /* of a layer */
    int chunks0, chunks_n; /* range of checker.chunk_list: chunks that its computation reads */
} block_facts;

/* An operand that a task must have. */
typedef struct want {
    object_kind kind;
    int index, micro;
    tier tier;
    bool read, write;
    int before, after;    /* version read, version written */
    uint64_t bytes;       /* workspace: at least this many */
} want;

typedef struct checker {
    const schedule_input *in;
    const schedule *s;
    pt_error *e;
    int layers, micro_n, chunks_n;
    int first_trained;    /* block where backward ends */
    int64_t micro_units;
    carried_layout carries;
    bool waits;           /* updates wait for the next step */
    block_facts *blocks;  /* layers + 2 */
    int *chunk_list;
    unsigned char *pieces_of; /* [block][chunk]: the chunk has trained pieces of the block */
    int *chunk_blocks;    /* blocks that have trained pieces in the chunk; 0: it is frozen */

    content *contents;    /* of each buffer */
    segment *segments[TIERS];
    int *segment0, *segment1; /* of each buffer */
    int (*done)[QUEUES];  /* [task]: last task of each queue that has surely ended when it starts; -1: none */

    /* the newest version of each object */
    int *weights, *states, *gradient;  /* chunk */
    int *saved;                        /* [block][micro] */
    int *ahead, *back;                 /* [block][micro]: parts that have run, of forward and backward */
    int *accumulator;                  /* block */
    int *stream;                       /* micro; layers + 2: none yet */
    int *carried, *carried_gradient;   /* micro */
    int *rows;                         /* micro */
    unsigned char *head_done;          /* micro */
    unsigned char *finished;           /* [block][chunk] */
    unsigned char *scattered;          /* [block][chunk], with several ranks */
    unsigned char *tied_scattered;     /* [chunk] */
    int losses, sums, sums_needed, rows_gradient, rows_sums, rows_chunks, routed, routed_needed, inputs, outputs;

    want *wants;
    int wants_n;
    unsigned char *used;  /* [operand of the task]: one of `wants` matches it */
} checker;

/* Sets the error: "task 12 (layer_backward, block 3, micro-batch 1), buffer 4 (weights of chunk 2 on device): ...".
 * task or buffer -1: none. Returns PT_FAILED. */
int check_fail(const checker *checker, int task, int buffer, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

int check_memory_open(checker *checker);            /* computes segments and the order of tasks */
int check_memory(checker *checker, int task);       /* checks the task's accesses */

/* Fills checker->wants. Fails if the task must not be at this place. */
int check_task_wants(checker *checker, int task);
void check_task_done(checker *checker, int task);   /* counts the task */

int check_contents_before(checker *checker, int task); /* checks its operands and the versions it reads */
void check_contents_after(checker *checker, int task); /* records what it wrote */
int check_contents_end(checker *checker);

int check_moves(checker *checker);                  /* any network: order, memory, and that only newest versions are read */

static inline bool is_shared(const checker *checker) { return checker->in->packing->ranks > 1; }
static inline int whole_weights(const checker *checker) { return is_shared(checker) ? 2 : 1; } /* version after an update */
static inline bool is_step(const checker *checker) { return checker->s->kind == SCHEDULE_STEP || checker->s->kind == SCHEDULE_STEP_UPDATE; }
static inline int saved_at(const checker *checker, int block, int micro) { return block * checker->micro_n + micro; }
static inline int piece_at(const checker *checker, int block, int chunk) { return block * checker->chunks_n + chunk; }
/* Between part `part` of a layer and the next: the version of what all its parts change. */
static inline int check_partial(int block, int part, bool backward) { return -1 - (2 * block + backward) * LAYER_PARTS - part; }
static inline bool is_layer(const checker *checker, int block) { return block >= 1 && block <= checker->layers; }
static inline int parts_n(const checker *checker, int block, bool backward)
{
    return !is_layer(checker, block) ? 1 : backward ? checker->blocks[block].backward.n : checker->blocks[block].forward.n;
}
/* Those that compute: all but exchanges. Their number before one; all of backward. */
static inline int parts_before(const layer_parts *parts, int part)
{
    int n = 0;
    for (int i = 0; i < part; i++)
        n += parts->part[i].kind != PART_EXCHANGE;
    return n;
}
static inline int sums_n(const checker *checker, int block)
{
    return is_layer(checker, block) ? schedule_computed_parts(&checker->blocks[block].backward) : 1;
}
/* The accumulator's last version. */
static inline int all_sums(const checker *checker, int block) { return checker->micro_n * sums_n(checker, block); }
static inline bool is_divided(const checker *checker) { return shape_parts(checker->in->shape) > 1; }
uint64_t check_object_bytes(const checker *checker, object_kind kind, int index, int micro); /* not for workspaces */

static inline bool has_experts(const checker *checker, int block)
{
    return block >= 1 && block <= checker->layers && checker->in->model->config.sparse[block - 1];
}

/* True for layers and the head, and with several ranks for the embedding. */
static inline bool has_accumulator(const checker *checker, int block)
{
    return block >= (is_shared(checker) ? 0 : 1) && block <= checker->layers + 1 && checker->blocks[block].accumulator_bytes;
}

#endif
