/* layer.h - a decoder layer, described once: its tensors, and its stages in order.
 *
 * A stage makes one tensor from another. Everything else follows from the list: what backward reads, what is computed again under each
 * save level, the order of backward, and where each tensor lies in the memory that the layer is given.
 *
 *   x -> [norm] -> qkv -> attention -> linear -> [norm] -> + x  = xm
 *   xm -> [norm] -> linear -> activation -> linear -> [norm] -> + xm  = out      (parallel: from x instead of xm)
 *
 * Save levels say which tensors stay in the layer's saved set for backward; the others live in the workspace and are computed again. What
 * norms and activations make is never saved: their backward reads the same inputs anyway, and also writes the output again, which the
 * weight gradient of the next linear stage reads.
 *
 *   saved set of (block, micro-batch) = [unit 0: x qkv att ... ][unit 1: ...]...
 *
 * A linear stage that has an adapter (adapter.h) has a stage before it, which makes the low tensor t = s x A^T; the stage itself adds t B^T
 * to its matmul, and its backward makes the gradients of t, A and B. With DoRA another stage makes the gain of its columns.
 */
#ifndef PT_LAYER_H
#define PT_LAYER_H

#include "model/shape.h"

typedef enum layer_tensor {
    LAYER_X,    /* (R, C) input */
    LAYER_N1,   /* (R, C) first norm */
    LAYER_QK,   /* (R, (H+Hkv) D) q and k before their norm, where there is one */
    LAYER_QKV,  /* (R, (H+2Hkv) D) as attention takes them: normed, rotated */
    LAYER_ATT,  /* (R, H D) */
    LAYER_LSE,  /* (R, H) fp32 */
    LAYER_A,    /* (R, C) attention's output projection, where a norm comes behind it */
    LAYER_XM,   /* (R, C) x + attention */
    LAYER_N2,   /* (R, C) second norm */
    LAYER_UP,   /* (R, F) or (R, 2F) */
    LAYER_ACT,  /* (R, F) */
    LAYER_M,    /* (R, C) the MLP's output projection, where a norm comes behind it */
    LAYER_OUT,  /* (R, C) the layer's output: lies where the caller says */
    LAYER_LOW_QKV, LAYER_LOW_OUT, LAYER_LOW_UP, LAYER_LOW_DOWN,     /* (R, adapter_width) */
    LAYER_GAIN_QKV, LAYER_GAIN_OUT, LAYER_GAIN_UP, LAYER_GAIN_DOWN, /* (2, outputs) fp32: gain, 1 / norm */
    LAYER_TENSORS, LAYER_NONE = LAYER_TENSORS
} layer_tensor;

/* Ascending memory, descending recompute. */
typedef enum save_level {
    SAVE_INPUT,     /* x: everything is computed again */
    SAVE_ATTENTION, /* and qkv, attention's output, its statistics, the middle of the residual stream */
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
    STAGE_GAIN        /* out, from weights alone: what DoRA multiplies the columns of a linear stage's sum by */
} stage_kind;

typedef struct layer_stage {
    stage_kind kind;
    layer_tensor in, out, side, residual; /* LAYER_NONE where there is none */
    param_role weight, bias; /* of a stage of an adapter: the linear stage's */
    layer_tensor low, gain;  /* of a linear stage's adapter */
} layer_stage;

enum { LAYER_STAGES = 20, LAYER_STEPS = 4 * LAYER_STAGES, LAYER_STEP_REGIONS = 10 };

typedef struct layer_stages { int n; layer_stage of[LAYER_STAGES]; } layer_stages;
void layer_describe(layer_stages *out, const model_config *c);

/* Bytes of a tensor for one unit. */
uint64_t layer_tensor_bytes(const model_config *c, const step_shape *s, layer_tensor t);

typedef enum step_pass {
    PASS_FORWARD, /* forward, or again in backward */
    PASS_INPUT,   /* the gradient of what the stage reads; of a norm, those of its parameters too */
    PASS_WEIGHTS  /* the gradients of its parameters */
} step_pass;
typedef struct layer_step { step_pass pass; int stage; } layer_step;

/* Places in a layer's memory: tensors, their gradients, and for each stage what its backward needs beside them. */
enum {
    REGION_TENSOR = 0, REGION_GRADIENT = LAYER_TENSORS, REGION_SCRATCH = 2 * LAYER_TENSORS,
    REGION_ACCUMULATORS = REGION_SCRATCH + LAYER_STAGES,
    REGION_STRIPE = REGION_ACCUMULATORS + LAYER_STAGES, /* weights that are kept in few bits, decoded */
    LAYER_REGIONS = REGION_STRIPE + LAYER_STAGES
};

/* How a layer is computed under a save level, and where everything of one unit lies. */
typedef struct layer_layout {
    layer_stages stages;
    layer_step backward[LAYER_STEPS];
    int again_n, backward_n;            /* steps of backward that compute again, which come first; all */
    bool saved[LAYER_TENSORS];
    uint64_t saved_at[LAYER_TENSORS];   /* bytes, in the saved set */
    uint64_t forward_at[LAYER_REGIONS]; /* bytes, in the workspace of forward */
    uint64_t backward_at[LAYER_REGIONS];
    uint64_t saved_bytes;               /* of one unit, a multiple of 4096 */
    uint64_t forward_workspace, backward_workspace;
} layer_layout;
void layer_layout_init(layer_layout *l, const model *m, const step_shape *s, save_level level);

/* A norm or an activation made it: its backward writes it again, in place of its gradient. */
bool layer_is_handed_out(const layer_stages *l, layer_tensor t);
/* It is the residual stream itself: its gradient is the layer's dx, not a tensor of its own. */
static inline bool layer_is_residual(layer_tensor t) { return t == LAYER_X || t == LAYER_XM || t == LAYER_OUT; }
/* The places that a step reads or writes; returns how many. */
int layer_step_regions(const layer_stages *l, layer_step step, int regions[LAYER_STEP_REGIONS]);

#endif
