/* shape.h - the sizes of a step: its division into units, and the memory of the blocks at its ends. A layer's tensors: layer/program.h.
 *
 * The unit is the smallest piece of work: every op works on the rows of exactly one unit. So its shape, and every bit of its result, is the
 * same under every plan. A micro-batch is a whole number of units.
 *
 *   step = units_n units of unit_seqs sequences of seq_len tokens; unit_rows = unit_seqs * seq_len
 *
 * With more lanes than sequences, a sequence is divided into parts, neighbouring rows, and each part is a unit and a lane of its own. Ranks
 * may share a sequence: each has the rows of its parts, and in attention some of the heads, of all rows (layer/sequence.h).
 *
 *   parts 4, two ranks     rank 0: [part 0] [part 1]     rank 1: [part 2] [part 3]         of each: batch 2, seq_len: tokens of a part
 */
#ifndef PT_SHAPE_H
#define PT_SHAPE_H

#include "device/device.h"
#include "model/model.h"

/* How backward reads the tensors of a layer that may be saved: as forward made them, or rounded to codes of 8 bits (layer/program.h). */
typedef enum saved_form { SAVED_EXACT, SAVED_INT8, SAVED_FP8 } saved_form;

enum { CPU_GRADIENT_ROWS = 2048, GPU_GRADIENT_ROWS = 8192 };

typedef struct step_shape {
    pt_dtype type;          /* compute type */
    int64_t batch, seq_len; /* sequences per step, tokens per sequence */
    int64_t unit_seqs, units_n, unit_rows;
    int64_t tile_rows;      /* rows of a tile: what works row by row computes so many at a time (layer/tiles.h); whole blocks of
                             * gradient_rows() */
    int64_t whole_heads;    /* tokens of a sequence; longer ones have groups of heads in attention (layer/groups.h) */
    int64_t head_rows;      /* rows of logits at a time in the loss head */
    int64_t slice_rows;     /* rows of the vocabulary in one matmul of the head: where its table may be cut */
    bool gpu;               /* units, head_rows and slice_rows are those for a GPU */
    const struct optimizer *optimizer; /* optimizer/optimizer.h; NULL: AdamW */
    bool documents;         /* a sequence may contain several, which do not see each other */
    int lanes;              /* number of lanes in which the units' gradients are added (model/lanes.h); 0: one */
    int ranks, rank;        /* a rank's part of a step: batch, units and lanes are its own; 0 ranks: one */
    int parts;              /* a power of two: a sequence is divided into so many parts, which batch and seq_len count; 0: it is whole */
    float router_aux;       /* factor of the loss that balances routers; 0: none */
    bool weighted;          /* the batch has a weight for each target's loss */
    preference_rule compare; /* a kind other than NONE: the documents of a sequence are pairs that op_preference compares. What it is
                              * given for each target is in the batch, in place of the weights */
    float noise;            /* a step's embeddings have uniform noise from -noise to noise */
    bool linear;            /* a target's loss is minus its logit */
    int64_t scores;         /* an evaluation hands out so many values of each row's logits, head_layout.ld; 0: none */
    saved_form saved;       /* in a step; an evaluation has no backward */
    float smoothing;        /* share of the vocabulary's mean in the loss of a target (op_cross_entropy) */
} step_shape;

/* The sums of a unit's gradients of weights are accumulated over blocks of so many rows, in order. They are as long as the units of short
 * sequences (shape.c), whose sums therefore have one block. */
static inline int64_t gradient_rows(const step_shape *shape) { return shape->gpu ? GPU_GRADIENT_ROWS : CPU_GRADIENT_ROWS; }

static inline bool shape_compares(const step_shape *shape) { return shape->compare.kind != PREFERENCE_NONE; }
/* A step needs a forward pass of other sequences first, from which its baseline follows. */
static inline bool shape_has_baseline(const step_shape *shape) { return shape->compare.kind == PREFERENCE_KTO; }

static inline int shape_ranks(const step_shape *shape) { return shape->ranks > 1 ? shape->ranks : 1; }
static inline int shape_lanes(const step_shape *shape) { return shape->lanes > 1 ? shape->lanes : 1; }

/* Parts of a sequence, and its tokens. */
static inline int64_t shape_parts(const step_shape *shape) { return shape->parts > 1 ? shape->parts : 1; }
static inline int64_t shape_length(const step_shape *shape) { return shape_parts(shape) * shape->seq_len; }
/* The parts of a sequence that this rank has, which are computed together; the ranks that share it, and this rank's number among them. */
static inline int64_t shape_together(const step_shape *shape)
{
    return shape->batch < shape_parts(shape) ? shape->batch : shape_parts(shape);
}
static inline int shape_sharers(const step_shape *shape) { return (int)(shape_parts(shape) / shape_together(shape)); }
static inline int shape_sharer(const step_shape *shape) { return shape->rank % shape_sharers(shape); }
/* The position of a row of this rank in its sequence. */
static inline int64_t shape_position(const step_shape *shape, int64_t row)
{
    return (shape_sharer(shape) * shape_together(shape) * shape->seq_len + row) % shape_length(shape);
}
/* A micro-batch has a multiple of so many sequences, or of so many parts. */
static inline int64_t shape_least_micro(const step_shape *shape)
{
    return shape->parts > 1 ? shape_together(shape) : shape->unit_seqs;
}
/* Sequences of a whole step. */
static inline int64_t shape_sequences(const step_shape *shape) { return shape->batch * shape_ranks(shape) / shape_parts(shape); }

/* Bytes of one unit's fp32 residual stream (R, C), from which the inputs of blocks are rounded in bf16 runs; 0 in fp32 runs, where the
 * inputs are the stream. */
uint64_t residual_bytes(const model *m, const step_shape *shape);

/* The type of a parameter in computation: norms and magnitudes of adapters are fp32 also beside bf16, because near 1 bf16 cannot hold the
 * change of one step (measured in docs/numerics.md). */
pt_dtype param_type(const param *p, pt_dtype type);

/* unit_seqs = clamp(2048 / seq_len, 1, batch), lowered to a divisor of the batch: sizes for a CPU, and one lane. */
void step_shape_init(step_shape *shape, const model *m, pt_dtype type, int64_t batch, int64_t seq_len);
/* Divides each lane's part of the batch into units; lanes_check() accepts them. */
void step_shape_in_lanes(step_shape *shape, const model *m, int lanes);
/* If there are more lanes than sequences, divides these into parts. */
void step_shape_divide(step_shape *shape);
/* A rank's part of a whole step, divided: neighbouring lanes, a power of two of them; with one rank, all. PT_USAGE if impossible. */
int step_shape_of_rank(step_shape *out, const step_shape *whole, int ranks, int rank, pt_error *e);
/* Larger units and larger parts of the head, which a GPU needs to be busy. */
void step_shape_for_gpu(step_shape *shape, const model *m);
/* With a unit of at most `rows` rows (at least one): fewer sequences, or one shorter sequence. For measuring. */
step_shape shape_cut(const step_shape *shape, int64_t rows);
/* Another batch size with everything else alike, in as many lanes as `batch` has; of a rank's part, a rank's part. */
void step_shape_like(step_shape *out, const step_shape *shape, const model *m, int64_t batch, int64_t seq_len);

/* What layers hand on beside the residual stream, for each unit of a micro-batch: keys and values of layers that others read, side by side
 * in the compute type, of the kind with a window and of that without; and the sums of their gradients, fp32, from the last reader to the
 * maker. Also the inputs of all layers (R, L W) and their gradients, in the compute type. Offsets in bytes. */
typedef struct carried_layout { uint64_t kv[2], inputs, kv_gradient[2], inputs_gradient, bytes, gradient_bytes; } carried_layout;
void carried_layout_init(carried_layout *l, const model *m, const step_shape *shape);
/* How a block uses them: in forward; in backward; and in backward their gradients. */
enum { CARRIED_READ = 1, CARRIED_WRITE = 2 };
typedef struct carried_use { unsigned forward, backward, gradient; } carried_use;
carried_use carried_use_of(const model *m, int block);
/* Is it the first block of backward that uses the gradients? */
bool carried_begins(const model *m, int block);

/* Workspace of the head: [normed x (R,C)] [dn (R,C)] [dn32 (head_rows, C) fp32] [logits (head_rows, ld >= V) fp32], and for pairs [weights
 * (R) fp32]; the norm's scratch overlaps the logits. */
typedef struct head_layout {
    int64_t ld; /* stride of the logits: the head's rows in whole lines, which also aligns the bf16 gradients in their place */
    uint64_t normed, dn, dn32, logits, scratch, weights, bytes;
} head_layout;
void head_layout_init(head_layout *h, const model *m, const step_shape *shape);

/* Offsets (in fp32 elements) of each trained parameter's gradient accumulator in its block's buffer; a tied head's output-side accumulator
 * belongs to the head block. A block without trained parameters has none, nor has the table of layers' inputs. */
int64_t accumulator_offset(const model *m, int block, param_role role);
int64_t accumulator_elements(const model *m, int block);
/* Bytes of all accumulators with partial sums at the same time: one, or with several lanes a stack of them. */
uint64_t accumulator_bytes(const model *m, const step_shape *shape, int block);
/* Is the table of layers' inputs trained? Then its gradients, of all micro-batches, are kept to the end of a step, and their sums are a
 * list of the rows of the tokens of all ranks: so many at most. */
bool inputs_are_trained(const model *m);
int64_t listed_rows_most(const model *m, const step_shape *shape);
/* The same for the rows of the embedding's tables that are summed at once: shape.slice_rows, of the widest table that is trained. */
uint64_t embedding_sums_bytes(const model *m, const step_shape *shape);

/* Index of a trained parameter's first partial sum of squares (one per SUMSQ_ROWS rows), and their number. */
int64_t sumsq_index(const model *m, int param);
int64_t sumsq_count(const model *m);

/* What a step keeps of the choice of experts, for each unit and each layer with experts: where the rows of each expert end, int32
 * (op_dispatch); and if routers are balanced, the sums of op_route's `use` over the unit's tokens, fp32. Entries of a layer, where layer
 * 0 .. L-1 begins among those of a unit, and bytes of the rank's step; 0: no experts. */
int64_t routing_entries(const model *m, const step_shape *shape);
int64_t routing_offset(const model *m, const step_shape *shape, int layer);
uint64_t routing_bytes(const model *m, const step_shape *shape);

static inline uint64_t align_up(uint64_t n, uint64_t a) { return (n + a - 1) / a * a; }

#endif
