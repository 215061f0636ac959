/* pack.h - parameters into chunks, in execution order.
 *
 * A chunk is what is moved, kept or updated as one. It is made of pieces: whole parameters, or, for the
 * tables of the vocabulary, slices of rows cut where the loss head cuts them anyway. A layer's
 * parameters stay in one chunk where they fit; tied embeddings lie at their first use.
 *
 *   chunk c:  weights  [piece 0][piece 1]...          E elements of the compute type
 *             gradient [piece 0][piece 1]...          E elements of the compute type
 *             states   [low halves (bf16 mode only)][slab 0][slab 1]...
 *
 * A slab is what the pieces' rule keeps of them (optimizer/optimizer.h), piece by piece; pieces whose values lie side by side have
 * their states side by side as well, so that one op updates them. A parameter that stays fp32 beside bf16 (param_type) takes two
 * elements a value and has no low halves.
 *
 * A chunk is trained or frozen as a whole. A frozen one has weights only, and where its parameters came in a wider type than bf16 the low
 * halves, which loading and saving alone touch: what goes out is what came in. Matrices in few bits have none: what goes out of them is
 * read again where they came from.
 *
 * Where several ranks share a run (step_shape.ranks), each has states and waiting gradient of its shard alone, which is a stretch of the
 * chunk; the weights whole, or where the plan says so (plan_chunk.sharded) the shard's. The sizes are those of the largest shard, so that
 * all ranks have the same schedule.
 *
 * E is a multiple of 2048 and the states are made up to a whole page, so that both can be read from a disk directly.
 */
#ifndef PT_PACK_H
#define PT_PACK_H

#include "optimizer/optimizer.h"

typedef struct piece {
    int param;
    int64_t row0, rows;
    int chunk;
    int64_t offset;  /* elements from the start of the chunk, a multiple of 32 */
    int64_t own_row0, own_rows; /* those in this rank's shard */
    uint64_t low, slab[OPTIMIZER_SLABS]; /* of these; bytes from the start of the chunk's states */
    int64_t partial; /* partial_floats of its block and chunk */
} piece;

typedef struct chunk_t {
    int piece0, pieces_n; /* packing.piece_of_chunk[piece0 .. piece0 + pieces_n): its pieces */
    int64_t elements;
    bool trained;          /* else it has no slabs, no gradient and no update, and its weights are only read */
    bool low;              /* it has low halves */
    bool by_device;        /* on a GPU its update has other bits than on the host */
    int64_t shard_elements; /* of the largest shard, a multiple of 2048: all of the chunk where there is one rank */
    uint64_t state_bytes;  /* of the largest shard, a multiple of 4096 */
    uint64_t update_bytes; /* workspace of its update */
} chunk_t;

typedef struct packing {
    int chunks_n, pieces_n, params_n;
    chunk_t *chunks;
    piece *pieces;        /* in order of parameter and row */
    int *piece_of_param;  /* index of the first piece of each parameter; params_n + 1 entries */
    int *piece_of_chunk;  /* indices of the pieces of chunk 0, then of chunk 1 ... */
    pt_dtype type;
    const optimizer *optimizer;
    int64_t chunk_bytes;  /* what was asked for */
    int ranks, rank;      /* that share the states of the chunks; which one this packing is of */
    int64_t *cuts;        /* (chunks_n, ranks + 1): elements where the shard of each rank begins, and the end */
} packing;

int pack(const model *m, const step_shape *s, int64_t chunk_bytes, packing *out, pt_error *e);
void packing_free(packing *p);

static inline uint64_t chunk_weight_bytes(const packing *p, int c) { return (uint64_t)p->chunks[c].elements * dtype_bytes(p->type); }
static inline uint64_t chunk_gradient_bytes(const packing *p, int c) 
{
    return p->chunks[c].trained ? (uint64_t)p->chunks[c].shard_elements * dtype_bytes(p->type) : 0;
}
static inline uint64_t chunk_shard_bytes(const packing *p, int c) { return (uint64_t)p->chunks[c].shard_elements * dtype_bytes(p->type); }
static inline uint64_t chunk_state_bytes(const packing *p, int c) { return p->chunks[c].state_bytes; }
static inline piece *chunk_piece(const packing *p, int c, int i) { return &p->pieces[p->piece_of_chunk[p->chunks[c].piece0 + i]]; }

/* Rows of a piece in a rank's shard, which is cut where partial sums of squares and blocks of 8-bit states end, and never in a matrix that
 * is updated whole. A shard may end anywhere in a matrix in few bits, whose values are not kept row by row: it has no rows. */
typedef struct piece_share { int64_t row0, rows; } piece_share;
piece_share packing_share(const packing *k, const model *m, const piece *p, int rank);
static inline int64_t shard_start(const packing *k, int chunk, int rank) { return k->cuts[chunk * (k->ranks + 1) + rank]; }
/* Ranks' partial sums of a chunk's parameters of a block come together where they are added: those of a shard, in order of rank, each so
 * many fp32 numbers, of the largest shard. 0: the block trains nothing there. */
int64_t partial_floats(const packing *k, const model *m, int block, int chunk);
/* Of the largest of them for a block, with the head's share of a tied table in the embedding's. */
uint64_t partial_bytes(const packing *k, const model *m, int block, int chunk);
/* Where a piece's rows lie in that of its shard's rank. */
int64_t partial_offset(const packing *k, const model *m, const piece *p, int rank);

/* Elements of the chunk's weights that `values` values of a parameter take: 2 each where it stays fp32 beside bf16; of one that is kept in
 * few bits (model/storage.h), which is never cut, as many as its bytes. */
int64_t piece_elements(const packing *p, const param *a, int64_t values);

/* What is updated at once: pieces of a chunk side by side, of one rule, of the compute type and decayed alike, or one that stays fp32. */
typedef struct update_span {
    const param *param;     /* the first */
    const piece *piece;     /* the same */
    const update_rule *rule;
    int64_t offset, values; /* elements from the chunk's start */
} update_span;
/* The next of chunk c at or behind piece_of_chunk[*at], which moves on; false: there is none. A frozen chunk has none. */
bool update_span_next(const model *m, const packing *p, int c, int *at, update_span *out);

/* Marks in `needed` (chunks_n flags) the chunks that a block's computation reads. */
void block_chunks(const model *m, const packing *p, int block, unsigned char *needed);

#endif
