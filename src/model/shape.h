/* shape.h - the sizes of a step: how it is cut into units, and where each tensor of a block lies in
 * the memory that the block is given.
 *
 * The unit is the atom of computation: every op works on the rows of exactly one unit, so its shape -
 * and with it every bit of its result - is the same under every plan. A micro-batch is a whole number of units.
 *
 *   step = units_n units of unit_seqs sequences of seq_len tokens; unit_rows = unit_seqs * seq_len
 *
 * What a decoder layer computes on its way forward is a fixed list of tensors (layer_tensor). Its
 * save level says which of them stay in the block's saved set for backward; the others live in the workspace
 * and are computed again. What norms and activations make is never saved: their backward reads what they were made from, and hands
 * them out once more beside its gradients, where those were read.
 *
 *   saved set of (block, micro-batch) = [unit 0: x qkv att ... ][unit 1: ...]...
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
} step_shape;

/* Bytes of one unit's residual stream in fp32, from which in bf16 runs the inputs of the blocks are rounded: (R, C), and 0 in
 * fp32 runs, where the inputs are the stream themselves. */
uint64_t residual_bytes(const model *m, const step_shape *s);

/* How a parameter is kept for compute: norms stay fp32, also beside bf16 (their weights are near 1, where bf16 cannot
 * hold what a step changes; measured in docs/numerics.md). */
pt_dtype param_type(const param *p, pt_dtype type);

/* unit_seqs = clamp(2048 / seq_len, 1, batch), lowered to a divisor of the batch: a CPU's sizes. */
void step_shape_init(step_shape *s, const model *m, pt_dtype type, int64_t batch, int64_t seq_len);
/* Larger units and larger parts of the head, for small ones leave a GPU idle. */
void step_shape_for_gpu(step_shape *s, const model *m);
/* Of the same type and optimizer, and for the same kind of device. */
void step_shape_like(step_shape *out, const step_shape *s, const model *m, int64_t batch, int64_t seq_len);

typedef enum layer_tensor {
    LAYER_X,    /* (R, C) input */
    LAYER_N1,   /* (R, C) first norm; never saved */
    LAYER_QK,   /* (R, (H+Hkv) D) q and k before their norm: only where there is one, else empty */
    LAYER_QKV,  /* (R, (H+2Hkv) D) as attention takes them: normed, rotated */
    LAYER_ATT,  /* (R, H D) */
    LAYER_LSE,  /* (R, H) fp32 */
    LAYER_XM,   /* (R, C) x + attention */
    LAYER_N2,   /* (R, C) second norm; never saved */
    LAYER_UP,   /* (R, F) or (R, 2F) */
    LAYER_ACT,  /* (R, F); never saved */
    LAYER_TENSORS
} layer_tensor;

/* Ascending memory, descending recompute. */
typedef enum save_level {
    SAVE_INPUT,     /* x: everything is computed again */
    SAVE_ATTENTION, /* and qkv, attention's output, its statistics, the middle of the residual stream */
    SAVE_ALL,       /* and the MLP's up projection */
    SAVE_LEVELS
} save_level;

/* Temporaries of a layer's backward, in the workspace. The gradients of what norms and activations made become that itself. */
typedef enum layer_temp {
    TEMP_DACT, TEMP_DUP, TEMP_DN, TEMP_DATT, TEMP_DQKV, TEMP_SUMS, TEMP_SCRATCH,
    TEMP_NORM1, TEMP_NORM2, /* sums of the norms' backward */
    LAYER_TEMPS
} layer_temp;

/* Byte offsets of one unit. Tensors that are not saved have their offset in the workspace. */
typedef struct layer_layout {
    uint64_t tensor[LAYER_TENSORS]; /* in the saved set where saved[t], else in the workspace */
    bool saved[LAYER_TENSORS];
    bool again[LAYER_TENSORS];      /* backward begins with computing it */
    uint64_t temp[LAYER_TEMPS];     /* in the workspace, backward only */
    uint64_t saved_bytes;           /* of one unit, a multiple of 4096 */
    uint64_t forward_workspace, backward_workspace;
} layer_layout;
void layer_layout_init(layer_layout *l, const model *m, const step_shape *s, save_level level);

/* Workspace of the head: [normed x (R,C)] [dn (R,C)] [dn32 (head_rows, C) fp32] [logits (head_rows, ld >= V) fp32]; the norm's scratch
 * lies over the logits. */
typedef struct head_layout {
    int64_t ld; /* stride of the logits: the vocabulary in whole lines, so that all rows are aligned, the bf16 gradients on them too */
    uint64_t normed, dn, dn32, logits, scratch, bytes;
} head_layout;
void head_layout_init(head_layout *h, const model *m, const step_shape *s);

/* Offsets (in fp32 elements) of each parameter's gradient accumulator in its block's buffer; a tied head's
 * output-side accumulator counts as the head block's. */
int64_t accumulator_offset(const model *m, int block, param_role role);
int64_t accumulator_elements(const model *m, int block);

/* Index of a parameter's first partial sum of squares (one for every SUMSQ_ROWS rows), and their number. */
int64_t sumsq_index(const model *m, int param);
int64_t sumsq_count(const model *m);

static inline uint64_t align_up(uint64_t n, uint64_t a) { return (n + a - 1) / a * a; }

#endif
