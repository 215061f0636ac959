/* stage.h - the kinds of stages, as a table: one file and one row for each.
 *
 * A row says what each pass of the stage reads and writes, from which everything in layout.c follows, and has the functions that submit
 * its ops. To add a kind: a constant in program.h, a file with the row, its line in stage.c, and its use in describe.c
 * (docs/adding-a-stage.md).
 */
#ifndef PT_LAYER_STAGE_H
#define PT_LAYER_STAGE_H

#include "layer/program.h"

struct layer_work;

/* A set of what a pass reads or writes. Tensors that a stage does not have do not count, and residual tensors have no gradient here. */
#define TOUCH_IN(k) (1u << (k))
#define TOUCH_OUT(k) (1u << (8 + (k)))
#define TOUCH_IN_GRADIENT(k) (1u << (12 + (k)))
#define TOUCH_OUT_GRADIENT(k) (1u << (20 + (k)))
#define TOUCH_SCRATCH(k) (1u << (24 + (k)))
#define TOUCH_OPERAND (1u << 28) /* the first input, wherever it is while the gradients of weights are computed */

/* A stage of a layer of a model. */
typedef struct stage_site {
    const model *model;
    const step_shape *shape;
    const layer_program *program;
    const layer_stage *stage;
    int layer;
} stage_site;

typedef struct stage_type {
    const char *name;
    bool rewrites; /* PASS_INPUT writes the output again, in place of its gradient */
    bool by_row;   /* a row of the output depends on the same row of the inputs alone: rows may be computed in tiles */
    bool (*whole)(const layer_stage *s); /* not this one: it reads what is not in the order of rows; NULL: all may */
    unsigned (*touches)(const layer_stage *s, step_pass pass);
    uint64_t (*scratch)(const stage_site *at, int k); /* bytes for one unit; NULL: none */
    double (*flops)(const stage_site *at);            /* of forward for one unit; NULL: too few to count */
    uint64_t (*cache)(const stage_site *at);          /* bytes that generation keeps for each token; NULL: none */
    uint64_t (*state)(const stage_site *at);          /* and for each sequence */
    void (*pass[PASSES])(const struct layer_work *work, const layer_stage *s); /* NULL: nothing to do */
} stage_type;

const stage_type *stage_type_of(stage_kind kind);

extern const stage_type stage_norm, stage_norm_add, stage_linear, stage_linear_add, stage_low, stage_gain, stage_head_norm, stage_rotate,
    stage_heads, stage_values, stage_share, stage_attention, stage_activation, stage_conv, stage_gates, stage_scan, stage_gated_norm,
    stage_mix_factors, stage_gate_factor, stage_scale, stage_make_inputs, stage_gate_inputs, stage_route, stage_dispatch,
    stage_experts_low, stage_experts_up, stage_experts_act, stage_experts_down;

/* The parameter of a stage, or NULL. */
static inline const param *stage_param(const stage_site *at, int k)
{
    return at->stage->param[k] == PARAM_NONE ? NULL : block_param(at->model, &at->model->blocks[at->layer + 1], at->stage->param[k]);
}

#endif
