/* pack.h - packs parameters into chunks, in execution order.
 *
 * A chunk is moved, stored and updated as a whole. It consists of pieces: whole parameters, slices of rows of the vocabulary's tables, or
 * ranges of a layer's experts (cut.h). A layer's parameters stay in one chunk if they fit; tied embeddings are packed at their
 * first use. The table of layers' inputs (inputs.c) comes last, in chunks of its own, because few of its rows are read.
 *
 *   chunk c:  weights  [piece 0][piece 1]...          E elements of the compute type
 *             gradient [piece 0][piece 1]...          E elements of the compute type
 *             states   [low halves (bf16 mode only)][slab 0][slab 1]...
 *
 * A slab is what the update rule of the pieces keeps (optimizer/optimizer.h), piece by piece. Pieces whose values are adjacent have
 * adjacent states, so that one op updates them. A parameter that stays fp32 beside bf16 (param_type) takes two elements per value and
 * has no low halves.
 *
 * A chunk is trained or frozen as a whole. A frozen chunk has only weights and, if its parameters came in a wider type than bf16, low
 * halves, which only loading and saving touch, so that weights are saved as they came. Matrices in few bits have none; saving reads
 * them again from their origin.
 *
 * With several ranks (step_shape.ranks), each has the states and waiting gradients of its shard, a range of the chunk, and all weights or
 * (plan_chunk.sharded) only the shard's. Sizes are those of the largest shard, so that all ranks have the same schedule.
 *
 * E is a multiple of 2048 and states are padded to a whole page, so that both can be read from a disk directly.
 */
#ifndef PT_PACK_H
#define PT_PACK_H

#include "optimizer/optimizer.h"

typedef struct piece {
    int param;
    int64_t row0, rows;
    int chunk;
    int64_t offset;  /* elements from the start of the chunk, a multiple of 32 */
    int64_t own_row0, own_rows; /* the rows in this rank's shard */
    uint64_t low, slab[OPTIMIZER_SLABS]; /* bytes from the start of the chunk's states */
    int64_t partial; /* partial_floats of its block and chunk */
} piece;

typedef struct chunk_t {
    int piece0, pieces_n; /* packing.piece_of_chunk[piece0 .. piece0 + pieces_n): its pieces */
    int64_t elements;
    bool trained;          /* false: no slabs, no gradient, no update; its weights are only read */
    bool low;              /* it has low halves */
    bool looked_up;        /* of the table that comes last: forward reads the rows of the step's tokens, backward none. If it is trained,
                            * its gradient is a list of these rows (schedule.h), which its update writes out in its workspace */
    bool by_device;        /* on a GPU, its update has other bits than on the host */
    int64_t shard_elements; /* of the largest shard, a multiple of 2048; with one rank, all of the chunk */
    uint64_t state_bytes;  /* of the largest shard, a multiple of 4096 */
    uint64_t update_bytes; /* workspace of its update: update_gradient_bytes, then that of the rule */
} chunk_t;

typedef struct packing {
    int chunks_n, pieces_n, params_n;
    chunk_t *chunks;
    piece *pieces;        /* in order of parameter and row */
    int *piece_of_param;  /* index of the first piece of each parameter; params_n + 1 entries */
    int *piece_of_chunk;  /* indices of the pieces of chunk 0, then of chunk 1 ... */
    pt_dtype type;
    const optimizer *optimizer;
    int64_t chunk_bytes;  /* the requested size */
    int ranks, rank;      /* number of ranks that share the states, and the rank of this packing */
    int64_t rows_most;    /* listed_rows_most of the step */
    int64_t *cuts;        /* (chunks_n, ranks + 1): element where the shard of each rank begins, and the end */
} packing;

int pack(const model *m, const step_shape *shape, int64_t chunk_bytes, packing *out, pt_error *e);
void packing_free(packing *packing);

static inline uint64_t chunk_weight_bytes(const packing *packing, int c)
{
    return (uint64_t)packing->chunks[c].elements * dtype_bytes(packing->type);
}
/* Is the chunk's gradient a list of rows? */
static inline bool chunk_has_rows(const packing *packing, int c) { return packing->chunks[c].trained && packing->chunks[c].looked_up; }
static inline uint64_t chunk_gradient_bytes(const packing *packing, int c)
{
    return packing->chunks[c].trained && !packing->chunks[c].looked_up
               ? (uint64_t)packing->chunks[c].shard_elements * dtype_bytes(packing->type)
               : 0;
}
/* The gradient that an update writes out of a list of rows. */
static inline uint64_t update_gradient_bytes(const packing *packing, int c)
{
    return chunk_has_rows(packing, c) ? (uint64_t)packing->chunks[c].shard_elements * dtype_bytes(packing->type) : 0;
}
static inline uint64_t chunk_shard_bytes(const packing *packing, int c)
{
    return (uint64_t)packing->chunks[c].shard_elements * dtype_bytes(packing->type);
}
static inline uint64_t chunk_state_bytes(const packing *packing, int c) { return packing->chunks[c].state_bytes; }
static inline piece *chunk_piece(const packing *packing, int c, int i)
{
    return &packing->pieces[packing->piece_of_chunk[packing->chunks[c].piece0 + i]];
}

/* The rows of a piece in a rank's shard. Shards are cut where partial sums of squares and blocks of 8-bit states end, and never inside a
 * matrix that is updated whole. A matrix in few bits may be cut anywhere; its values are not stored by row, so it has no rows here. */
typedef struct piece_share { int64_t row0, rows; } piece_share;
piece_share packing_share(const packing *packing, const model *m, const piece *piece, int rank);
static inline int64_t shard_start(const packing *packing, int chunk, int rank)
{
    return packing->cuts[chunk * (packing->ranks + 1) + rank];
}
/* The ranks' partial sums of a chunk's parameters of a block are added together: one shard per rank, in order, each of this many fp32
 * numbers (of the largest shard; of a chunk that has rows, of as many as can be listed). 0: the block trains nothing there. */
int64_t partial_floats(const packing *packing, const model *m, int block, int chunk);
/* The bytes of these shards of all ranks. */
uint64_t partial_bytes(const packing *packing, const model *m, int block, int chunk);
/* Does the chunk have rows of a table to which the head adds its sums, too? They have partial sums of their own, laid out like those of the
 * embedding. */
bool chunk_has_tied_rows(const packing *packing, const model *m, int chunk);
/* Offset of a piece's rows in the shard of their rank. */
int64_t partial_offset(const packing *packing, const model *m, const piece *piece, int rank);

/* Elements of the chunk's weights for so many rows of a parameter: 2 per value if it stays fp32 beside bf16; for a matrix in few bits
 * (model/storage.h), as many as the bytes of a piece of these rows. */
int64_t piece_elements(const packing *packing, const param *a, int64_t row0, int64_t rows);

/* A range that one op updates: adjacent pieces of a chunk, with the same rule and weight decay, of the compute type; or one piece that
 * stays fp32. */
typedef struct update_span {
    const param *param;     /* of the first piece */
    const piece *piece;     /* the first piece */
    const update_rule *rule;
    int64_t offset, values; /* elements from the chunk's start */
} update_span;
/* The next span of chunk c at or after piece_of_chunk[*at], which advances; false: there is none. A frozen chunk has none. */
bool update_span_next(const model *m, const packing *packing, int c, int *at, update_span *out);

/* Is a matrix of experts cut? */
bool packing_cuts_experts(const packing *packing, const model *m);

/* Sets needed[c] (chunks_n flags) for the chunks that a block's computation reads whole. */
void block_chunks(const model *m, const packing *packing, int block, unsigned char *needed);

#endif
