/* shape.h - the sizes of a step: how it is cut into units, and what the blocks at its ends need. A layer's tensors: model/layer.h.
 *
 * The unit is the atom of computation: every op works on the rows of exactly one unit, so its shape -
 * and with it every bit of its result - is the same under every plan. A micro-batch is a whole number of units.
 *
 *   step = units_n units of unit_seqs sequences of seq_len tokens; unit_rows = unit_seqs * seq_len
 */
#ifndef PT_SHAPE_H
#define PT_SHAPE_H

#include "model/model.h"

typedef struct step_shape {
    pt_dtype type;          /* compute type */
    int64_t batch, seq_len; /* sequences a step, tokens a sequence */
    int64_t unit_seqs, units_n, unit_rows;
    int64_t head_rows;      /* rows of logits at a time in the loss head */
    int64_t slice_rows;     /* rows of the vocabulary that are one matmul of the head: where it may be cut */
    bool gpu;               /* units, and these two, are a GPU's */
    const struct optimizer *optimizer; /* optimizer/optimizer.h; NULL: AdamW */
    bool documents;         /* a sequence may hold several, which do not see each other */
    int lanes;              /* in which the units' gradients are added (model/lanes.h); 0: one */
    int ranks, rank;        /* a rank's part of a step: batch, units and lanes are its own; 0 ranks: one */
    bool weighted;          /* what each target's loss counts in the gradient comes with the batch */
    float beta; bool ipo;   /* above 0: the documents of a sequence are pairs that op_preference compares, and what comes with the batch
                               is the loss of each target under the reference model */
} step_shape;

static inline int shape_ranks(const step_shape *s) { return s->ranks > 1 ? s->ranks : 1; }
static inline int shape_lanes(const step_shape *s) { return s->lanes > 1 ? s->lanes : 1; }

/* Bytes of one unit's residual stream in fp32, from which in bf16 runs the inputs of the blocks are rounded: (R, C), and 0 in
 * fp32 runs, where the inputs are the stream themselves. */
uint64_t residual_bytes(const model *m, const step_shape *s);

/* How a parameter is kept for compute: norms, and magnitudes of adapters, stay fp32, also beside bf16 (their weights are near 1, where bf16
 * cannot hold what a step changes; measured in docs/numerics.md). */
pt_dtype param_type(const param *p, pt_dtype type);

/* unit_seqs = clamp(2048 / seq_len, 1, batch), lowered to a divisor of the batch: a CPU's sizes, and one lane. */
void step_shape_init(step_shape *s, const model *m, pt_dtype type, int64_t batch, int64_t seq_len);
/* The units of each lane are such of its part of the batch, which `lanes` divides. */
void step_shape_in_lanes(step_shape *s, const model *m, int lanes);
/* A rank's part of a whole step: neighbouring lanes, a power of two of them. PT_USAGE where there are no such. */
int step_shape_of_rank(step_shape *out, const step_shape *whole, int ranks, int rank, pt_error *e);
/* Larger units and larger parts of the head, for small ones leave a GPU idle. */
void step_shape_for_gpu(step_shape *s, const model *m);
/* Like it in all but its size, and in as many lanes as `batch` has; of a rank's part, a rank's part. */
void step_shape_like(step_shape *out, const step_shape *s, const model *m, int64_t batch, int64_t seq_len);

/* Workspace of the head: [normed x (R,C)] [dn (R,C)] [dn32 (head_rows, C) fp32] [logits (head_rows, ld >= V) fp32], and where pairs are
 * compared [weights (R) fp32]; the norm's scratch lies over the logits. */
typedef struct head_layout {
    int64_t ld; /* stride of the logits: the vocabulary in whole lines, so that all rows are aligned, the bf16 gradients on them too */
    uint64_t normed, dn, dn32, logits, scratch, weights, bytes;
} head_layout;
void head_layout_init(head_layout *h, const model *m, const step_shape *s);

/* Offsets (in fp32 elements) of each trained parameter's gradient accumulator in its block's buffer; a tied head's
 * output-side accumulator counts as the head block's. A block that trains nothing has no elements. */
int64_t accumulator_offset(const model *m, int block, param_role role);
int64_t accumulator_elements(const model *m, int block);
/* Of all that hold partial sums at the same time: one, and with several lanes a stack of such, one behind the other. */
uint64_t accumulator_bytes(const model *m, const step_shape *s, int block);
/* The same of rows of the embedding's tables that are summed up at once: shape.slice_rows. */
uint64_t embedding_sums_bytes(const model *m, const step_shape *s);

/* Index of a trained parameter's first partial sum of squares (one for every SUMSQ_ROWS rows), and their number. */
int64_t sumsq_index(const model *m, int param);
int64_t sumsq_count(const model *m);

static inline uint64_t align_up(uint64_t n, uint64_t a) { return (n + a - 1) / a * a; }

#endif
