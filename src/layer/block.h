/* block.h - forward and backward of each kind of block for one unit, written once against the device seam.
 *
 * Every function only submits ops to the queue that it is given; model/shape.h says where the tensors lie. `R` is the number of rows of a
 * unit (unit_seqs * T), C the hidden size.
 *
 * In bf16 runs the residual stream is kept in fp32 beside the inputs of the blocks, so that the sum over many layers is not rounded at
 * every layer. The branches of a layer read bf16:
 *
 *     stream (fp32)  s0 ---------> s0 + a ----------> s0 + a + m = s1         a = attention(x), m = mlp(xm)
 *     x (bf16)       round(s0)     xm = round(x + a)  round(s1)
 *
 * xm is made from x, not from the stream, so that x is enough to recompute the layer. In backward, the same memory holds the gradient of
 * the stream, and dx is its rounding. The stream is never saved or moved: forward ends with it where backward starts.
 *
 * Gradient accumulators are fp32, laid out by accumulator_offset(); `first` overwrites them instead of adding.
 */
#ifndef PT_LAYER_BLOCK_H
#define PT_LAYER_BLOCK_H

#include "device/device.h"
#include "layer/parts.h"

/* The matrices of a layer's experts, cut into pieces of `each` experts (the last may have fewer). */
typedef struct expert_pieces { const void *const *piece; int64_t each; } expert_pieces;

/* The addresses of the weights that a block's ops read. A table of tokens comes in slices of shape.slice_rows rows. */
typedef struct block_weights {
    const void *param[PARAM_ROLES];
    const void *const *slices; /* of PARAM_TOKENS, or PARAM_HEAD if untied */
    const void *const *input_slices; /* of PARAM_LAYER_TOKENS; NULL for slices whose rows come by block_unit.rows */
    int slices_n, input_slices_n;
    expert_pieces up, down;    /* of PARAM_EXPERTS_UP, PARAM_EXPERTS_DOWN; each 0: they are not cut */
    float *gains[MODEL_LINEAR_MATRICES]; /* gains of DoRA's adapters, computed before (layer_gains); NULL: forward computes them */
} block_weights;

/* K and V of a unit's sequence (capacity, 2 Hkv D): k and v of each row, of all heads or of some. Forward appends the unit's own rows, or
 * finds them where another layer's are read. past: number of earlier rows; with a window, of those that the unit sees at least. */
typedef struct cache_rows { char *rows; int64_t past; } cache_rows;

/* Rows that come in `n` parts, one for each n-th of the heads, in order. enter: where a part is when the queue of the context comes to what
 * follows; leave: all that reads and appends to it was given to the queue. */
typedef struct cache_parts {
    int n;
    cache_rows (*enter)(void *arg);
    void (*leave)(void *arg);
    void *arg;
} cache_parts;

/* For generation, where a unit is the next rows of one sequence: the KV cache of one layer. */
typedef struct block_cache {
    cache_rows all;     /* of all heads; past also without rows */
    char *state;        /* layer_state_bytes(): what the earlier rows leave behind; forward changes it */
    cache_parts parts;  /* n 0: `all` has the rows */
} block_cache;

/* The inputs of a unit. Pointers are to its first row. */
typedef struct block_unit {
    const int32_t *ids, *targets, *first, *positions; /* (R); first may be NULL */
    const float *weights;                             /* (R), of the targets; NULL: all 1. With pairs: what op_preference is given */
    float baseline;                                   /* of op_preference, in this step */
    uint64_t dropout;                                 /* key of this step's dropout; 0: none */
    bool no_backward;                                 /* in an evaluation: forward makes no codes for backward */
    int64_t row;                                      /* the number of the unit's first row in the whole step */
    const float *rope[MODEL_MAX_ROPES];               /* tables for all positions, (T, rotated / 2, 2) */
    const block_cache *cache;                         /* NULL in training */
    float *stream;                                    /* (R, C), residual_bytes(); NULL in fp32 runs */
    char *carried, *carried_gradient;                 /* what layers hand on (carried_layout); NULL where they hand nothing on */
    const char *rows;                                 /* (R, L W): rows of PARAM_LAYER_TOKENS that were looked up before; NULL: none */
    int32_t *routing;                                 /* what the unit keeps of the choice of experts (model/shape.h); NULL: nothing. */
                                                      /* Forward writes a layer's part, backward reads all of it */
    char *heads;                                      /* divided sequences: what their units share in a layer (sequence.h) */
    int64_t part;                                     /* and the unit's number among its sequence's on this rank */
} block_unit;

typedef struct block_context {
    const model *model;
    const step_shape *shape;
    queue *queue;
} block_context;

/* The offset of each rope's table in the tables of all ropes, for `length` positions. */
static inline void block_unit_ropes(block_unit *u, const model_config *config, const float *tables, int64_t length)
{
    for (int i = 0; i < config->ropes_n; i++)
        u->rope[i] = tables + model_rope_offset(config, i, length);
}

void embedding_forward(const block_context *ctx, const block_weights *w, const block_unit *u, void *x /* (R, C) */);

/* saved and workspace as in layer_layout; saved holds the input x. out: (R, C). */
void layer_forward(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, const block_unit *u,
                   char *saved, char *workspace, void *out);
/* One part of it, after those before it, with the same workspace. out: NULL but in the last part. */
void layer_forward_part(const block_context *ctx, int block, const layer_layout *layout, const layer_part *part, const block_weights *w,
                        const block_unit *u, char *saved, char *workspace, void *out);
/* For generation, where weights do not change: computes w->gains of the layer's matrices, 2 floats per output. */
void layer_gains(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, char *workspace);
/* Recomputes into the workspace what was not saved: the first part of backward, callable alone for measuring. */
void layer_recompute(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, const block_unit *u,
                     char *saved, char *workspace);
/* dx: (R, C), on entry the gradient of the block's output, on return of its input; the stream gradient likewise. */
void layer_backward(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, const block_unit *u,
                    char *saved, char *workspace, void *dx, float *accumulators, bool first);
/* One part of it. summed: the roles are set whose gradients it has summed, each in one part alone; may be NULL. */
void layer_backward_part(const block_context *ctx, int block, const layer_layout *layout, const layer_part *part, const block_weights *w,
                         const block_unit *u, char *saved, char *workspace, void *dx, float *accumulators, bool first,
                         bool summed[PARAM_ROLES]);

/* Computes loss and right (R; right may be NULL) per token, as op_cross_entropy does; with dx or accumulators also the gradients, in which
 * each target token counts `scale` times its weight. dx NULL: nothing before the head is trained; accumulators NULL: nothing in the head
 * is. scores: (R, shape.scores), for the rows of logits; NULL: not wanted. */
typedef struct head_output { float *loss, *right, *scores; } head_output;
void head_forward_backward(const block_context *ctx, const block_weights *w, const block_unit *u, const void *x,
                           char *workspace, head_output result, void *dx, float *accumulators, bool first, float scale);
/* For generation: the head's output for one row x (C), before scale and soft cap; normed: (C) scratch, out: (V) fp32. The second function
 * applies scale and cap, in memory that the host can read. */
void head_logits(const block_context *ctx, const block_weights *w, const void *x, void *normed, float *out);
void head_finish_logits(const model_config *m, float *logits);

#endif
