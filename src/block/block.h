/* block.h - forward and backward of each kind of block for one unit, written once against the device seam.
 *
 * Every function only submits ops to the queue it is given; the tensors lie where model/shape.h says. `R`
 * is the rows of a unit (unit_seqs * T), C the hidden size.
 *
 * In bf16 runs the residual stream is kept in fp32 beside the blocks' inputs, so that what many layers add is not
 * rounded many times; a layer's branches read bf16:
 *
 *     stream (fp32)  s0 ---------> s0 + a ----------> s0 + a + m = s1         a = attention(x), m = mlp(xm)
 *     x (bf16)       round(s0)     xm = round(x + a)  round(s1)
 *
 * xm comes from x, not from the stream: so a layer can be computed again from x alone. Backward, the same memory holds the
 * stream's gradient, and dx is its rounding. It is never saved or moved: forward ends with it where backward starts.
 *
 * Gradient accumulators are fp32, laid out by
 * accumulator_offset(); `first` overwrites them instead of adding.
 */
#ifndef PT_BLOCK_H
#define PT_BLOCK_H

#include "device/device.h"
#include "model/layer.h"

/* The weights that a block's op read, wherever they are at the moment. The table of the vocabulary comes in
 * slices of shape.slice_rows rows. */
typedef struct block_weights {
    const void *param[PARAM_ROLES];
    const void *const *slices; /* of PARAM_TOKENS, or PARAM_HEAD for an untied head */
    int slices_n;
    float *gains[MODEL_MATRICES]; /* of DoRA's adapters, measured before (layer_gains); NULL: forward measures them */
} block_weights;

/* Generation, where a unit is the next rows of one sequence: keys and values of one layer's rows before it. */
typedef struct block_cache {
    char *rows;   /* (capacity, 2 Hkv D): k and v of a row; forward puts the unit's own behind the past ones */
    int64_t past; /* rows that are there */
} block_cache;

/* What a unit is about. Pointers to its first row. */
typedef struct block_unit {
    const int32_t *ids, *targets, *first, *positions; /* (R); first may be NULL */
    const float *weights;                             /* (R), of the targets; NULL: all 1. Of pairs: their reference losses */
    const float *rope[MODEL_MAX_ROPES];               /* tables of positions, (T, rotated / 2, 2) */
    const block_cache *cache;                         /* NULL in training */
    float *stream;                                    /* (R, C), residual_bytes(); NULL in fp32 runs */
} block_unit;

typedef struct block_context {
    const model *model;
    const step_shape *shape;
    queue *queue;
} block_context;

/* Where each rope's table lies, in all tables for `length` positions. */
static inline void block_unit_ropes(block_unit *u, const model_config *c, const float *tables, int64_t length)
{
    for (int i = 0; i < c->ropes_n; i++)
        u->rope[i] = tables + model_rope_offset(c, i, length);
}

void embedding_forward(const block_context *c, const block_weights *w, const block_unit *u, void *x /* (R, C) */);

/* saved and workspace as layer_layout says; the input x stands in saved. out: (R, C). */
void layer_forward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                   char *saved, char *workspace, void *out);
/* Generation, where weights stay as they are: w->gains of the layer's matrices, each 2 floats an output. */
void layer_gains(const block_context *c, int block, const layer_layout *l, const block_weights *w, char *workspace);
/* What was not saved into the workspace again: the first part of backward, by itself for measuring. */
void layer_recompute(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                     char *saved, char *workspace);
/* dx: (R, C), gradient of the block's output on entry, of its input on return; so is the stream. */
void layer_backward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                    char *saved, char *workspace, void *dx, float *accumulators, bool first);

/* loss and right (R; right may be NULL) per token, as op_cross_entropy has them; with dx or accumulators also the gradients that these are
 * for, where each target token of the step counts `scale` times its weight. dx NULL: nothing before the head is trained; accumulators
 * NULL: nothing in it. */
void head_forward_backward(const block_context *c, const block_weights *w, const block_unit *u, const void *x,
                           char *workspace, float *loss, float *right, void *dx, float *accumulators, bool first, float scale);
/* Generation: what the head makes of one row x (C), before its scale and cap; normed: (C) scratch, out: (V) fp32. Then, in memory that the
 * host reaches, those too. */
void head_logits(const block_context *c, const block_weights *w, const void *x, void *normed, float *out);
void head_finish_logits(const model_config *m, float *logits);

#endif
