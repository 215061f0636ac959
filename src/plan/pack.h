/* pack.h - parameters into chunks, in execution order.
 *
 * A chunk is what is moved, kept or updated as one. It is made of pieces: whole parameters, or, for the
 * tables of the vocabulary, slices of rows cut where the loss head cuts them anyway. A layer's
 * parameters stay in one chunk where they fit; tied embeddings lie at their first use.
 *
 *   chunk c:  weights  [piece 0][piece 1]...          E elements of the compute type
 *             states   [low halves (bf16 mode only)][first moments][second moments]   all E elements
 *             gradient [piece 0][piece 1]...          E elements of the compute type
 *
 * A parameter that stays fp32 beside bf16 (param_type) takes two elements a value: its weights and gradient are fp32, its
 * low halves unused.
 *
 * A chunk is trained or frozen as a whole. A frozen one has weights only, and where its parameters came in a wider type than bf16 the low
 * halves, which loading and saving alone touch: what goes out is what came in.
 *
 * E is the same for all parts of a chunk and a multiple of 2048, so that every part is a whole number of
 * pages and can be read from a disk directly.
 */
#ifndef PT_PACK_H
#define PT_PACK_H

#include "model/shape.h"

typedef struct piece {
    int param;
    int64_t row0, rows;
    int chunk;
    int64_t offset;  /* elements from the start of the chunk, a multiple of 32 */
} piece;

typedef struct chunk_t {
    int piece0, pieces_n; /* packing.piece_of_chunk[piece0 .. piece0 + pieces_n): its pieces */
    int64_t elements;
    bool trained;         /* else it has no moments, no gradient and no update, and its weights are only read */
    bool low;             /* it has low halves */
} chunk_t;

typedef struct packing {
    int chunks_n, pieces_n, params_n;
    chunk_t *chunks;
    piece *pieces;        /* in order of parameter and row */
    int *piece_of_param;  /* index of the first piece of each parameter; params_n + 1 entries */
    int *piece_of_chunk;  /* indices of the pieces of chunk 0, then of chunk 1 ... */
    pt_dtype type;
    int64_t chunk_bytes;  /* what was asked for */
} packing;

int pack(const model *m, const step_shape *s, int64_t chunk_bytes, packing *out, pt_error *e);
void packing_free(packing *p);

static inline uint64_t chunk_weight_bytes(const packing *p, int c) { return (uint64_t)p->chunks[c].elements * dtype_bytes(p->type); }
static inline uint64_t chunk_gradient_bytes(const packing *p, int c) { return p->chunks[c].trained ? chunk_weight_bytes(p, c) : 0; }
static inline uint64_t chunk_low_bytes(const packing *p, int c) { return p->chunks[c].low ? (uint64_t)p->chunks[c].elements * 2 : 0; }
static inline uint64_t chunk_moment_bytes(const packing *p, int c) { return p->chunks[c].trained ? (uint64_t)p->chunks[c].elements * 8 : 0; }
static inline uint64_t chunk_state_bytes(const packing *p, int c) { return chunk_low_bytes(p, c) + chunk_moment_bytes(p, c); }
static inline const piece *chunk_piece(const packing *p, int c, int i) { return &p->pieces[p->piece_of_chunk[p->chunks[c].piece0 + i]]; }

/* Elements of the chunk's weights that `values` values of a parameter take: 2 each where it stays fp32 beside bf16. */
int64_t piece_elements(const packing *p, const param *a, int64_t values);

/* What one op updates: pieces of a chunk side by side, of the compute type and decayed alike, or one that stays fp32. */
typedef struct update_span {
    const param *param;     /* the first */
    int64_t offset, values; /* elements from the chunk's start */
} update_span;
/* The next of chunk c at or behind piece_of_chunk[*at], which moves on; false: there is none. A frozen chunk has none. */
bool update_span_next(const model *m, const packing *p, int c, int *at, update_span *out);

/* Marks in `needed` (chunks_n flags) the chunks that a block's computation reads. */
void block_chunks(const model *m, const packing *p, int block, unsigned char *needed);

#endif
