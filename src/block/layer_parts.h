/* layer_parts.h - shared by the files of a layer's stages: a layer in progress, and the addresses of its tensors. */
#ifndef PT_LAYER_PARTS_H
#define PT_LAYER_PARTS_H

#include "block/block.h"

typedef struct layer {
    const block_context *c;
    const model_config *config;
    const layer_layout *l;
    const block_weights *w;
    const block_unit *u;
    char *saved, *workspace;
    const uint64_t *at;  /* offsets of what is not saved: l->forward_at or l->backward_at */
    float *stream;       /* forward adds to it; NULL while backward recomputes */
    void *out;           /* the layer's output; backward: the gradient dx */
    float *accumulators; /* backward */
    bool first;          /* backward: overwrite the accumulators */
    int block;
    int64_t rows, hidden, q_cols, kv_cols, qkv_cols;
    pt_dtype type;
} layer;

static inline void *tensor(const layer *y, layer_tensor t)
{
    if (t == LAYER_OUT)
        return y->out;
    return y->l->saved[t] ? y->saved + y->l->saved_at[t] : y->workspace + y->at[t];
}

/* The gradient of the residual stream itself is dx. */
static inline void *gradient(const layer *y, layer_tensor t)
{
    return layer_is_residual(t) ? y->out : y->workspace + y->at[REGION_GRADIENT + t];
}

/* The input of a linear stage, while the gradient of its weights is computed. */
static inline void *operand(const layer *y, layer_tensor t) { return layer_is_rewritten(&y->l->stages, t) ? gradient(y, t) : tensor(y, t); }

static inline void *scratch(const layer *y, const layer_stage *s) { return y->workspace + y->at[REGION_SCRATCH + (s - y->l->stages.of)]; }

/* Buffer for decoded weights of matrices in few bits. */
static inline void *stripe(const layer *y, const layer_stage *s) { return y->workspace + y->at[REGION_STRIPE + (s - y->l->stages.of)]; }

static inline const void *weight_of(const layer *y, param_role role) { return role == PARAM_NONE ? NULL : y->w->param[role]; }

static inline float *accumulator(const layer *y, param_role role)
{
    const param *p = role == PARAM_NONE ? NULL : block_param(y->c->model, &y->c->model->blocks[y->block], role);
    return p && p->trainable ? y->accumulators + accumulator_offset(y->c->model, y->block, role) : NULL;
}

static inline char *column(const void *base, int64_t col, pt_dtype type) { return (char *)base + (size_t)col * dtype_bytes(type); }

/* The tensor in the compute type to which the end of a branch adds. If there is a stream, the layer's output is the stream's rounding
 * instead. */
static inline const void *residual_of(const layer *y, const layer_stage *s)
{
    return s->out == LAYER_OUT && y->stream ? NULL : tensor(y, s->residual);
}

/* ---- linear.c: linear stages, with adapters and matrices in few bits ---- */

void linear(const layer *y, const layer_stage *s);
void linear_add(const layer *y, const layer_stage *s);     /* adds to the residual stream */
void linear_input(const layer *y, const layer_stage *s);   /* the gradient of the input */
void linear_weights(const layer *y, const layer_stage *s); /* the gradients of weights, biases and adapters */
/* The forward matmul of n outputs with stride ldc at c; and rows row0 .. row0 + o.n of the stage's matrix. */
op_matmul linear_op(const layer *y, const layer_stage *s, int64_t n, int64_t ldc, void *c);
void linear_rows(const layer *y, const layer_stage *s, op_matmul o, int64_t row0);

void adapter_low(const layer *y, const layer_stage *s); /* x A^T */
void adapter_gain(const layer *y, const layer_stage *s); /* DoRA's gains, measured unless given */
void adapter_measure_gain(const layer *y, const layer_stage *s, float *to);

#endif
