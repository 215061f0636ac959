/* layer.h - a decoder layer, described once: its tensors, and its stages in order.
 *
 * A stage makes one tensor from another. Everything else follows from the list: what backward reads, what is recomputed under each save
 * level, the order of backward, and where each tensor lies in the layer's memory.
 *
 *   x -> [norm] -> qkv -> attention -> linear -> [norm] -> + x  = xm
 *   xm -> [norm] -> linear -> activation -> linear -> [norm] -> + xm  = out      (parallel: from x instead of xm)
 *
 * Save levels say which tensors are saved for backward; the others live in the workspace and are recomputed. The outputs of norms and
 * activations are never saved: their backward reads their inputs anyway, and writes the outputs again for the weight gradient of the next
 * linear stage.
 *
 *   saved set of (block, micro-batch) = [unit 0: x qkv att ... ][unit 1: ...]...
 *
 * A linear stage with an adapter (adapter.h) has a stage before it, which makes the low tensor t = s x A^T. The linear stage adds t B^T to
 * its matmul, and its backward makes the gradients of t, A and B. With DoRA another stage makes the gain of its columns.
 */
#ifndef PT_LAYER_H
#define PT_LAYER_H

#include "model/shape.h"

typedef enum layer_tensor {
    LAYER_X,    /* (R, C) input */
    LAYER_N1,   /* (R, C) first norm */
    LAYER_QK,   /* (R, (H+Hkv) D) q and k before their norm, if there is one */
    LAYER_QKV,  /* (R, (H+2Hkv) D) as attention reads them: normed, rotated */
    LAYER_ATT,  /* (R, H D) */
    LAYER_LSE,  /* (R, H) fp32 */
    LAYER_A,    /* (R, C) attention's output projection, if a norm follows */
    LAYER_XM,   /* (R, C) x + attention */
    LAYER_N2,   /* (R, C) second norm */
    LAYER_UP,   /* (R, F) or (R, 2F) */
    LAYER_ACT,  /* (R, F) */
    LAYER_M,    /* (R, C) the MLP's output projection, if a norm follows */
    LAYER_OUT,  /* (R, C) the layer's output, in the caller's memory */
    LAYER_LOW_QKV, LAYER_LOW_OUT, LAYER_LOW_UP, LAYER_LOW_DOWN,     /* (R, adapter_width) */
    LAYER_GAIN_QKV, LAYER_GAIN_OUT, LAYER_GAIN_UP, LAYER_GAIN_DOWN, /* (2, outputs) fp32: gain, 1 / norm */
    LAYER_TENSORS, LAYER_NONE = LAYER_TENSORS
} layer_tensor;

/* In order of ascending memory and descending recomputation. */
typedef enum save_level {
    SAVE_INPUT,     /* x: everything is recomputed */
    SAVE_ATTENTION, /* and qkv, attention's output and statistics, the middle of the residual stream */
    SAVE_ALL,       /* and the MLP's projections */
    SAVE_LEVELS
} save_level;

typedef enum stage_kind {
    STAGE_NORM,       /* out = norm(in) */
    STAGE_NORM_ADD,   /* out = residual + norm(in) */
    STAGE_LINEAR,     /* out = in . W^T + bias */
    STAGE_LINEAR_ADD, /* out = residual + residual_scale * in . W^T + bias */
    STAGE_QKV,        /* linear, norm of q and k, rotation; side: q and k before their norm */
    STAGE_ATTENTION,  /* side: its statistics */
    STAGE_ACTIVATION,
    STAGE_LOW,        /* out = s in . A^T of the adapter of a linear stage */
    STAGE_GAIN        /* out, from weights alone: the gain by which DoRA multiplies the columns of a linear stage's sum */
} stage_kind;

typedef struct layer_stage {
    stage_kind kind;
    layer_tensor in, out, side, residual; /* LAYER_NONE: none */
    param_role weight, bias; /* of an adapter's stage: those of the linear stage */
    layer_tensor low, gain;  /* of a linear stage's adapter */
} layer_stage;

enum { LAYER_STAGES = 20, LAYER_STEPS = 4 * LAYER_STAGES, LAYER_STEP_REGIONS = 10 };

typedef struct layer_stages { int n; layer_stage of[LAYER_STAGES]; } layer_stages;
void layer_describe(layer_stages *out, const model_config *c);

/* Bytes of a tensor for one unit. */
uint64_t layer_tensor_bytes(const model_config *c, const step_shape *s, layer_tensor t);

typedef enum step_pass {
    PASS_FORWARD, /* forward, or recomputation in backward */
    PASS_INPUT,   /* the gradient of the stage's input; for a norm, those of its parameters, too */
    PASS_WEIGHTS  /* the gradients of its parameters */
} step_pass;
typedef struct layer_step { step_pass pass; int stage; } layer_step;

/* Regions of a layer's memory: tensors, their gradients, and the additional memory of each stage's backward. */
enum {
    REGION_TENSOR = 0, REGION_GRADIENT = LAYER_TENSORS, REGION_SCRATCH = 2 * LAYER_TENSORS,
    REGION_ACCUMULATORS = REGION_SCRATCH + LAYER_STAGES,
    REGION_STRIPE = REGION_ACCUMULATORS + LAYER_STAGES, /* decoded weights of a matrix in few bits */
    LAYER_REGIONS = REGION_STRIPE + LAYER_STAGES
};

/* How a layer is computed under a save level, and the offsets of everything for one unit. */
typedef struct layer_layout {
    layer_stages stages;
    layer_step backward[LAYER_STEPS];
    int again_n, backward_n;            /* steps of backward that recompute (these come first); all steps */
    bool saved[LAYER_TENSORS];
    uint64_t saved_at[LAYER_TENSORS];   /* bytes, in the saved tensors */
    uint64_t forward_at[LAYER_REGIONS]; /* bytes, in the workspace of forward */
    uint64_t backward_at[LAYER_REGIONS];
    uint64_t saved_bytes;               /* per unit, a multiple of 4096 */
    uint64_t forward_workspace, backward_workspace;
} layer_layout;
void layer_layout_init(layer_layout *l, const model *m, const step_shape *s, save_level level);

/* The output of a norm or an activation: its backward writes it again, in place of its gradient. */
bool layer_is_handed_out(const layer_stages *l, layer_tensor t);
/* The residual stream itself: its gradient is the layer's dx, not a separate tensor. */
static inline bool layer_is_residual(layer_tensor t) { return t == LAYER_X || t == LAYER_XM || t == LAYER_OUT; }
/* The regions that a step reads or writes; returns their number. */
int layer_step_regions(const layer_stages *l, layer_step step, int regions[LAYER_STEP_REGIONS]);

#endif
