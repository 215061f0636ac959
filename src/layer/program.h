/* program.h - a decoder layer as a value: its tensors, and its stages in order.
 *
 * A stage makes tensors from others. Everything else follows from the list: what backward reads, what is recomputed under each save level,
 * the order of backward, and where each tensor lies in the layer's memory. Layers of one model may differ. Each kind of layer has one
 * program, made once (layer_set) and given to the search, the schedule, the checker, the executor, the measurement and inference.
 *
 *   x -> [norm] -> linear -> [head_norm] -> [rotate] -> attention -> linear -> [norm] -> + x  = xm
 *   xm -> [norm] -> linear -> activation -> linear -> [norm] -> + xm  = out      (parallel: from x instead of xm)
 *   x -> [norm] -> linear -> conv, gates -> scan -> gated_norm -> linear -> + x  = xm                 (the gated delta rule)
 *   x -> [norm] -> linear -> conv -> linear -> + x  = xm                                              (a short convolution)
 *   x -> [norm] -> linear -> (norm -> linear) x 2 -> heads -> rotate -> attention -> values -> linear ...      (latent attention: latent.c)
 *   xm -> norm -> route -> dispatch -> experts_up -> experts_act -> experts_down -> + xm = out    (experts.c; before it the shared expert)
 *   xm -> norm -> linear -> experts -> linear -> + xm = out; the router reads the norm                (experts that read a latent)
 *   x -> norm -> linear -> head_norm -> rotate -> [share] -> attention ...      (keys and values are handed to later layers, or come so)
 *   xp -> linear -> gate_inputs -> linear -> norm -> + xp = out; in the first layer before all: x -> linear -> make_inputs    (inputs.c)
 *   x -> norm -> attention -> linear -> + x = xa; x -> norm -> scan -> linear -> + xa = xm           (attention beside a mixer)
 *   x -> norm -> a mixer, an MLP or experts -> + x = out                                              (one branch a layer)
 *   xm -> norm -> MLP -> norm; xm -> norm -> experts -> norm; their sum -> norm -> + xm = out     (with a norm before the router)
 *
 * Save levels say which tensors are saved for backward; the others live in the workspace and are recomputed. The outputs of norms and
 * activations are never saved: their backward reads their inputs anyway, and writes the outputs again for the weight gradient of the next
 * linear stage.
 *
 *   saved set of (block, micro-batch) = [unit 0: x qkv attention ... ][unit 1: ...]...
 *
 * With step_shape.saved in 8 bits, the gradients of a layer are computed from the rounding of the tensors that can be saved (`rounded`),
 * never from the tensors themselves, and forward from the tensors themselves, never from their rounding. So a plan changes no bit:
 *
 *   saved, and recomputation reads it     the tensor is saved; its rounding is made in the workspace of backward
 *   saved, and recomputation does not     its codes are saved (`coded`), when forward has made it, and decoded in backward
 *   recomputed                            rounded in place, before the first step of the gradients that reads it
 *
 * The layer before has written the input at the beginning of the saved memory. If its codes are saved, forward makes them first, and puts
 * codes of other tensors in its place when no stage reads it any more.
 *
 * The kinds of stages are rows of a table (stage.h).
 */
#ifndef PT_LAYER_PROGRAM_H
#define PT_LAYER_PROGRAM_H

#include "model/shape.h"

enum { LAYER_TENSORS = 48, LAYER_STAGES = 40, LAYER_NONE = -1 };
typedef enum carried_kind { CARRIED_NOT, CARRIED_KV, CARRIED_INPUTS } carried_kind; /* model/shape.h */

enum { LAYER_X, LAYER_OUT }; /* the first two tensors of every layer: its input; its output, in the caller's memory */

/* In order of ascending memory and descending recomputation. */
typedef enum save_level {
    SAVE_INPUT,     /* x: everything is recomputed */
    SAVE_ATTENTION, /* and qkv, attention's output and statistics, the middle of the residual stream */
    SAVE_ALL,       /* and the MLP's projections */
    SAVE_LEVELS
} save_level;

/* `times` rows for each token of a unit; `times` rows; `times` rows for each `every` tokens of a sequence but the first */
typedef enum tensor_rows { ROWS_TOKENS, ROWS_FIXED, ROWS_SEGMENTS } tensor_rows;

typedef struct layer_tensor {
    char name[24];
    tensor_rows per;
    int64_t times, cols, every;
    bool four_bytes;       /* fp32 or int32, else in the compute type */
    bool of_heads;         /* q, k and v: in a run by groups of heads it holds those of one group (groups.h) */
    bool residual;         /* the residual stream itself: its gradient is the layer's dx, not a tensor of its own */
    unsigned char carried; /* carried_kind: layers hand it on, in the caller's memory, and its gradient */
    save_level saved_from; /* the lowest level from which it is saved if backward reads it; SAVE_LEVELS: never */
    int gradient_in;       /* its gradient is the first columns of this tensor's; LAYER_NONE: it has its own */
    int exact;             /* bool: the gradients never read it rounded to 8 bits */
} layer_tensor;

typedef enum stage_kind {
    STAGE_NORM,       /* out = norm(in, or as many of its columns from `column` on); param: weight, bias */
    STAGE_NORM_ADD,   /* out = residual + norm(in) */
    STAGE_LINEAR,     /* out = in . W^T + bias; param: weight, bias */
    STAGE_LINEAR_ADD, /* out = residual + residual_scale * in . W^T + bias */
    STAGE_LOW,        /* out = s in . A^T of the adapter of a linear stage; param: that stage's weight */
    STAGE_GAIN,       /* out, from weights alone: the gain by which DoRA multiplies a linear stage's sum; param: that stage's weight */
    STAGE_HEAD_NORM,  /* the first columns of out = norm of q and k; param: weights of q, of k */
    STAGE_ROTATE,     /* q and k, in place */
    STAGE_HEADS,      /* out: q, k and v of latent attention; in: keys and values, latents, queries or none if they are among the latents */
    STAGE_VALUES,     /* out: the columns of in, attention's output, that hold values */
    STAGE_SHARE,      /* out: the keys and values of in, for later layers */
    STAGE_ATTENTION,  /* in: q, k and v, or q and another layer's k and v; out: values, statistics; param: sinks */
    STAGE_ACTIVATION,
    STAGE_CONV,       /* short convolution of the first columns of in, or in whole between its gates; param: weight, bias */
    STAGE_MIX_FACTORS, /* the columns of a mixer's first matrix times factors of the model, in place */
    STAGE_GATE_FACTOR, /* the columns of an MLP's gate, likewise */
    STAGE_GATES,      /* out: decays, steps of a scan; param: rates, bias of the steps */
    STAGE_SCAN,       /* the gated delta rule. in: q, k and v side by side, decays, steps; out: values, states */
    STAGE_SCALE,      /* out, the layer's output, times a number; param: the number */
    STAGE_MAKE_INPUTS, /* out, all layers' inputs: + norm(in) of each layer's columns; param: weight */
    STAGE_GATE_INPUTS, /* out = activation(in) * the layer's columns of the second input, which is all layers' */
    STAGE_GATED_NORM, /* out = norm(in) * silu(gates of the second input); param: weight. Without it: in * sigmoid(gates) */
    STAGE_ROUTE,        /* of experts. out: logits, ids, weights; param: the router, the correction of the choice, a bias, factors */
    STAGE_DISPATCH,     /* in: ids; out: order, places, ends */
    STAGE_EXPERTS_LOW,  /* out = s in . A^T of the adapters of experts' matrices; param: the matrices */
    STAGE_EXPERTS_UP,   /* in: rows of tokens, and by EXPERT_ORDER ...; out: rows of experts; param: matrices, biases */
    STAGE_EXPERTS_ACT,
    STAGE_EXPERTS_DOWN, /* out = residual + the weighted sum of a token's rows */
    STAGE_KINDS
} stage_kind;

enum { STAGE_INPUTS = 7, STAGE_OUTPUTS = 3, STAGE_PARAMS = 4, STAGE_SCRATCH = 3 };
/* Inputs of linear stages; low and gain are made by the stages of an adapter. */
enum { LINEAR_X, LINEAR_RESIDUAL, LINEAR_LOW, LINEAR_GAIN };
/* Inputs of the heads of latent attention, beside the first. */
enum { HEADS_LATENTS = 1, HEADS_QUERIES };
/* Inputs of a scan, beside the first. */
enum { SCAN_DECAYS = 1, SCAN_STEPS };
/* Inputs of the stages of experts, beside the first. */
enum { EXPERTS_RESIDUAL = 1, EXPERTS_ORDER, EXPERTS_PLACES, EXPERTS_ENDS, EXPERTS_WEIGHTS, EXPERTS_LOW };

typedef struct layer_stage {
    stage_kind kind;
    int in[STAGE_INPUTS], out[STAGE_OUTPUTS]; /* tensors, or LAYER_NONE */
    param_role param[STAGE_PARAMS];           /* or PARAM_NONE */
    int drops;                                /* bool: of an adapter, its input has dropout. No padding: programs are compared as bytes */
    int column;                               /* of a norm's input, where it begins */
    int begins;                               /* bool: of attention, its layer is the last that reads those k and v */
} layer_stage;

typedef struct layer_program {
    int tensors_n, stages_n;
    layer_tensor tensor[LAYER_TENSORS];
    layer_stage stage[LAYER_STAGES];
} layer_program;

/* The program of layer 0 .. L-1 of a model, with its adapters. */
void layer_describe(layer_program *out, const model *m, int layer);
/* A tensor by its name; LAYER_NONE: the layer has no such tensor. */
int layer_tensor_named(const layer_program *program, const char *name);
/* Bytes of a tensor for one unit; of its codes, and before the largest magnitudes of their groups; and of what is saved. */
uint64_t layer_tensor_bytes(const layer_program *program, const step_shape *shape, int tensor);
uint64_t layer_code_bytes(const layer_program *program, const step_shape *shape, int tensor);
struct layer_layout;
uint64_t layer_saved_bytes(const struct layer_layout *layout, const step_shape *shape, int tensor);

/* FLOPs of the forward of a layer for one unit. */
double layer_flops(const model *m, int layer, const step_shape *shape);
/* Bytes that generation keeps for each token, and for each sequence; of the latter, those of the stages before `stage`. */
uint64_t layer_cache_bytes(const layer_program *program, const model *m, int layer, const step_shape *shape);
uint64_t layer_state_bytes(const layer_program *program, const model *m, int layer, const step_shape *shape, int stage);

typedef enum step_pass {
    PASS_FORWARD, /* forward, or recomputation in backward */
    PASS_INPUT,   /* the gradient of the stage's input; for a norm, those of its parameters, too */
    PASS_WEIGHTS, /* the gradients of its parameters */
    PASSES,
    /* steps with a tensor in place of a stage: */
    PASS_KEEP = PASSES, /* forward: its codes are saved */
    PASS_READ,          /* backward: its rounding, from what was saved */
    PASS_ROUND          /* backward: its rounding, in place */
} step_pass;
typedef struct layer_step { step_pass pass; int stage; } layer_step;
static inline bool step_is_of_tensor(layer_step s) { return s.pass >= PASSES; }

enum { LAYER_STEPS = (PASSES + 1) * LAYER_STAGES + LAYER_TENSORS, /* forward may run twice in backward (groups.h) */
       LAYER_STEP_REGIONS = 3 * STAGE_INPUTS + 2 * STAGE_OUTPUTS + STAGE_SCRATCH };

/* Regions of a layer's memory: tensors, their gradients, and the scratch memory of each stage. */
enum {
    REGION_TENSOR = 0, REGION_GRADIENT = LAYER_TENSORS, REGION_SCRATCH = 2 * LAYER_TENSORS,
    LAYER_REGIONS = REGION_SCRATCH + LAYER_STAGES * STAGE_SCRATCH
};

/* The steps that run in tiles of rows, and the regions that hold one tile (tiles.h). */
typedef struct layer_tiles {
    bool group[LAYER_STEPS];    /* runs once for each group of heads, together with its neighbours that do (groups.h) */
    bool step[LAYER_STEPS];     /* runs by tiles, together with its neighbours that do */
    bool region[LAYER_REGIONS]; /* holds one tile */
} layer_tiles;

/* How a layer is computed under a save level, and the offsets of everything for one unit. */
typedef struct layer_layout {
    layer_program program;
    layer_step forward[LAYER_STEPS], backward[LAYER_STEPS];
    int forward_n;
    int groups;                         /* of heads, one after the other in attention; 1: all heads together */
    int again_n, backward_n;            /* steps of backward that recompute (these come first); all steps */
    bool saved[LAYER_TENSORS];
    bool rounded[LAYER_TENSORS];        /* the gradients read its rounding, under every level */
    bool coded[LAYER_TENSORS];          /* saved in codes */
    uint64_t saved_at[LAYER_TENSORS];   /* bytes, in the saved tensors */
    uint64_t forward_at[LAYER_REGIONS]; /* bytes, in the workspace of forward */
    uint64_t backward_at[LAYER_REGIONS];
    layer_tiles forward_tiles, backward_tiles;
    uint64_t saved_bytes;               /* per unit, a multiple of 4096 */
    uint64_t forward_workspace, backward_workspace;
    uint64_t forward_sequence, backward_sequence; /* and for each unit, if sequences are divided, for heads of all rows (sequence.h) */
} layer_layout;
void layer_layout_init(layer_layout *layout, const model *m, int layer, const step_shape *shape, save_level level);

/* Does a step find the tensor in the saved memory? */
static inline bool layer_finds_saved(const layer_layout *layout, step_pass pass, int tensor)
{
    return layout->saved[tensor] &&
           !(pass == PASS_FORWARD || pass == PASS_KEEP ? layout->coded[tensor] && tensor != LAYER_X : layout->rounded[tensor]);
}
/* The output of a norm or an activation: its backward writes it again, in place of its gradient. */
bool layer_is_rewritten(const layer_program *program, int tensor);
/* The regions that a step reads or writes; returns their number. */
int layer_step_regions(const layer_program *program, layer_step step, int regions[LAYER_STEP_REGIONS]);
/* Bytes of a region for the rows of a unit, or of another shape's. */
uint64_t layer_region_bytes(const layer_program *program, const model *m, int layer, const step_shape *shape, int region);

/* The layouts of all layers of a model for a shape: one per save level for each kind of layer, i.e. for layers with equal programs and
 * parameters of equal shape and storage. */
enum { LAYER_SET_KINDS = 64 };
typedef struct layer_set {
    int kinds_n;
    unsigned char kind[MODEL_MAX_LAYERS]; /* of each layer */
    layer_layout (*layout)[SAVE_LEVELS];  /* of each kind */
} layer_set;
int layer_set_init(layer_set *out, const model *m, const step_shape *shape, pt_error *e);
void layer_set_free(layer_set *l);
static inline const layer_layout *layer_set_layout(const layer_set *l, int layer, save_level level)
{
    return &l->layout[l->kind[layer]][level];
}

#endif
