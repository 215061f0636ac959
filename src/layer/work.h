/* work.h - for the files of stages: a layer that is being computed, and the addresses of its tensors. */
#ifndef PT_LAYER_WORK_H
#define PT_LAYER_WORK_H

#include "layer/block.h"
#include "layer/groups.h"
#include "layer/row_blocks.h"
#include "layer/stage.h"

typedef struct layer_work {
    const block_context *c;
    const model_config *config;
    const layer_layout *l;
    const block_weights *w;
    const block_unit *u;
    char *saved, *workspace;
    const uint64_t *at;  /* offsets of what is not saved: l->forward_at or l->backward_at */
    const bool *tiled;   /* regions that hold one tile, of forward or backward */
    step_pass pass;      /* of the step that runs */
    float *stream;       /* forward adds to it; NULL while backward recomputes */
    void *out;           /* the layer's output; backward: the gradient dx */
    float *accumulators; /* backward */
    bool *summed;        /* of each role, set where its accumulator is asked for; NULL: nobody wants to know */
    bool first;          /* backward: overwrite the accumulators */
    bool first_of_group; /* and those that only the heads of this group add to */
    int group, groups;   /* heads that are computed: this one of so many groups */
    int block, layer;
    int64_t expert0, experts; /* of a step that multiplies with the matrices of experts, those that are computed; experts 0: all */
    int64_t row, rows;   /* the rows that are computed: of the unit, or of a tile. `out`, `stream` and `u` begin with them */
    int64_t hidden;
    pt_dtype type;
    carried_layout carried;
} layer_work;

static inline int64_t columns(const layer_work *work, int t)
{
    const layer_tensor *of = &work->l->program.tensor[t];
    return of->of_heads ? of->cols / work->groups : of->cols;
}

/* Where a tensor's rows that are computed begin, in memory that holds all of its rows. */
static inline size_t row_offset(const layer_work *work, int t)
{
    const layer_tensor *of = &work->l->program.tensor[t];
    const size_t size = of->four_bytes ? sizeof(float) : dtype_bytes(work->type);
    return of->per == ROWS_TOKENS ? (size_t)(work->row * of->times * columns(work, t)) * size : 0;
}

static inline void *region(const layer_work *work, int r)
{
    return work->workspace + work->at[r] + (work->tiled[r] ? 0 : row_offset(work, r % LAYER_TENSORS));
}

static inline int kv_kind(const layer_work *work) { return !work->config->window[work->layer]; }

static inline void *tensor(const layer_work *work, int t)
{
    if (t == LAYER_OUT)
        return work->out;
    const unsigned char carried = work->l->program.tensor[t].carried;
    if (carried)
        return work->u->carried + (carried == CARRIED_KV ? work->carried.kv[kv_kind(work)] : work->carried.inputs) + row_offset(work, t);
    return layer_finds_saved(work->l, work->pass, t) ? work->saved + (t == LAYER_X ? 0 : work->l->saved_at[t]) + row_offset(work, t)
                                                      : region(work, t);
}

static inline bool is_residual(const layer_work *work, int t) { return work->l->program.tensor[t].residual; }

/* The heads that are computed, and their columns. */
static inline attention_heads heads_of(const layer_work *work) { return group_heads(model_heads(work->config, work->layer), work->groups); }
static inline qkv_columns qkv_of(const layer_work *work) { return group_columns(work->config, work->layer, work->groups); }

/* The gradient of the residual stream itself is dx. */
static inline void *gradient(const layer_work *work, int t)
{
    const layer_tensor *of = &work->l->program.tensor[t];
    return of->residual ? work->out : region(work, REGION_GRADIENT + (of->gradient_in == LAYER_NONE ? t : of->gradient_in));
}

/* Where the gradients of the layer's kind of carried keys and values are summed, of all rows of the unit. */
static inline float *carried_gradient(const layer_work *work)
{
    return (float *)(work->u->carried_gradient + work->carried.kv_gradient[kv_kind(work)]);
}

/* The gradients of all layers' inputs, from the first row that is computed on; t: the tensor of the inputs. */
static inline char *inputs_gradient(const layer_work *work, int t)
{
    return work->u->carried_gradient + work->carried.inputs_gradient + row_offset(work, t);
}

/* Has a stage that reads the tensor, too, and whose backward runs before, written its gradient? */
static inline bool gradient_begun(const layer_work *work, const layer_stage *stage, int t)
{
    for (const layer_stage *later = stage + 1; later < work->l->program.stage + work->l->program.stages_n; later++)
        if (later->in[0] == t && stage_type_of(later->kind)->pass[PASS_INPUT])
            return true;
    return false;
}

/* The first input of a stage, while the gradients of its weights are computed. */
static inline void *operand(const layer_work *work, const layer_stage *stage)
{
    return layer_is_rewritten(&work->l->program, stage->in[0]) ? gradient(work, stage->in[0]) : tensor(work, stage->in[0]);
}

static inline void *scratch(const layer_work *work, const layer_stage *stage, int k)
{
    return work->workspace + work->at[REGION_SCRATCH + (stage - work->l->program.stage) * STAGE_SCRATCH + k];
}

/* In generation, the memory of a stage that keeps something for each sequence, or NULL; and the same where earlier rows have written it. */
static inline char *state_of(const layer_work *work, const layer_stage *stage)
{
    const layer_program *program = &work->l->program;
    return work->u->cache ? work->u->cache->state +
                                layer_state_bytes(program, work->c->model, work->layer, work->c->shape, (int)(stage - program->stage))
                          : NULL;
}
static inline char *past_state_of(const layer_work *work, const layer_stage *stage)
{
    return work->u->cache && work->u->cache->all.past ? state_of(work, stage) : NULL;
}

static inline const void *weight_of(const layer_work *work, param_role role) { return role == PARAM_NONE ? NULL : work->w->param[role]; }

/* (outputs, inputs) of a linear stage's weights. */
static inline const param *matrix_of(const layer_work *work, const layer_stage *stage)
{
    return block_param(work->c->model, &work->c->model->blocks[work->block], stage->param[0]);
}

static inline float *accumulator(const layer_work *work, param_role role)
{
    const model *m = work->c->model;
    const param *p = role == PARAM_NONE ? NULL : block_param(m, &m->blocks[work->block], role);
    const bool sums = p && p->trainable;
    if (sums && work->summed)
        work->summed[role] = true;
    return sums ? work->accumulators + accumulator_offset(m, work->block, role) : NULL;
}

static inline char *column(const void *base, int64_t col, pt_dtype type) { return (char *)base + (size_t)col * dtype_bytes(type); }

/* The tensor in the compute type to which the end of a branch adds. If there is a stream, the layer's output is the stream's rounding
 * instead. */
static inline const void *residual_of(const layer_work *work, const layer_stage *stage)
{
    return stage->in[1] == LAYER_NONE || (stage->out[0] == LAYER_OUT && work->stream) ? NULL : tensor(work, stage->in[1]);
}
/* The stream to which it adds: only if its output is part of the residual stream. */
static inline float *stream_of(const layer_work *work, const layer_stage *stage)
{
    return is_residual(work, stage->out[0]) ? work->stream : NULL;
}

/* ---- kept.c ---- */

/* The step work->pass, one with a tensor in place of a stage. */
void kept_run(const layer_work *work, int tensor);

/* Scratch of attention: gradients of keys and values that are another layer's, (rows, 2 Hkv D). */
enum { ATTENTION_SCRATCH_KV = 2 };

/* ---- share.c ---- */

/* Adds the gradients of keys and values (rows, 2 Hkv D) that are computed to their sums, or with `begins` overwrites these. */
void share_add_gradient(const layer_work *work, const void *dkv, bool begins);

/* ---- adapter.c: the parts of a linear stage that an adapter has ---- */

/* Rows row0 .. row0 + rows of a linear stage's matrix; `col`: the column where their outputs begin. */
typedef struct row_range { int64_t row0, rows, col; } row_range;

/* The rows of a linear stage's matrix that are computed: all, or those of a group's queries, keys and values. */
enum { LINEAR_RANGES = 3 };
int linear_ranges(const layer_work *work, const layer_stage *stage, row_range out[LINEAR_RANGES]);
/* Their number, which is the stride of the outputs' gradient. */
int64_t linear_outputs(const layer_work *work, const layer_stage *stage);
/* The work, for accumulators to which no other group adds. */
static inline layer_work group_alone(const layer_work *work)
{
    layer_work own = *work;
    own.first = work->first_of_group;
    return own;
}

/* The module of a row of a stage's matrix, or those of its rows that are computed. */
typedef struct adapter_part {
    int64_t row0, end;     /* rows of the matrix; without an adapter, all */
    int64_t first, output; /* the module's first row; the column where the outputs of row0 begin */
    bool again;            /* earlier parts are of the same module */
    int64_t rank, column;  /* columns of the low tensor, from `column` on; rank 0: no adapter */
    int64_t width;         /* of a row of the low tensor */
    float scale;
    param_role b;
} adapter_part;
param_role adapter_a_role(const layer_stage *stage);
adapter_part adapter_part_at(const layer_work *work, const layer_stage *stage, int64_t row);

/* Of a linear stage: the gains of its columns, or NULL; the gradient of its sum, before the gains. */
float *adapter_gains(const layer_work *work, const layer_stage *stage);
const void *adapter_sum_gradient(const layer_work *work, const layer_stage *stage);
/* Computes the gradient of the low tensor, and with DoRA of the sum. Returns the low tensor's width, 0 if there is no adapter. */
int64_t adapter_input(const layer_work *work, const layer_stage *stage);
/* With dropout: adds the adapter's part of the gradient of x to dx, or to the stream of which dx is the rounding. */
void adapter_add_dropped(const layer_work *work, const layer_stage *stage, void *dx, float *stream);
/* Does dropout apply in this run? */
static inline bool adapter_drops(const layer_work *work, const layer_stage *stage) { return stage->drops && work->u->dropout; }
void adapter_weights(const layer_work *work, const layer_stage *stage);
/* Computes the gains of the modules' columns (DoRA), and the norms for them. */
void adapter_measure_gain(const layer_work *work, const layer_stage *stage, float *to);

/* ---- experts_adapter.c: the same of the stages of experts ---- */

/* The modules of a stage's matrix that may have an adapter, 0 without adapters; rows are those of each expert. */
int experts_modules(const layer_work *work, const layer_stage *stage);
adapter_part experts_module(const layer_work *work, const layer_stage *stage, int k);
/* The matmul `o` of a module's outputs with its product of the low tensor. */
op_matmul experts_add_low(const layer_work *work, const layer_stage *stage, op_matmul o, const adapter_part *a);
/* Computes the gradient of the low tensor if `anew`; returns its width, 0 if there is no adapter. */
int64_t experts_low_gradient(const layer_work *work, const layer_stage *stage, const void *dy, row_place dy_at, bool anew);
/* The gradients of A and B. weighted_low: memory for the low tensor of inputs times the weights of their slots, or NULL: the inputs have no
 * weights. */
void experts_adapter_gradients(const layer_work *work, const layer_stage *stage, const void *dy, row_place dy_at, void *weighted_low);

/* ---- matrix.c: matmuls with a layer's matrices, which may be in few bits ---- */

/* Bytes of the scratch into which a matrix in few bits is decoded, for a stage whose param[0] is the matrix. */
uint64_t matrix_scratch_bytes(const stage_site *at);
/* The matmul `o` (NT) with the stage's matrix as operand b: its o.n rows from row0 on. */
void matrix_matmul(const layer_work *work, const layer_stage *stage, int64_t row0, const op_matmul *o);
/* The matmul `o` (NN) with the rows of the stage's matrix that are computed. */
void matrix_matmul_rows(const layer_work *work, const layer_stage *stage, const op_matmul *o);
/* Decodes rows row0 .. row0 + rows of a matrix in few bits into the stage's scratch; at most matrix_rows_at_once rows. */
void matrix_decode(const layer_work *work, const layer_stage *stage, int64_t row0, int64_t rows);
int64_t matrix_rows_at_once(const layer_work *work, const param *matrix);
/* acc (+)= factor dy^T . x */
void matrix_gradient(const layer_work *work, int64_t rows, int64_t cols, int64_t ldy, int64_t ldx, const void *dy, const void *x,
                     float factor, float *acc);
/* The factor of a linear stage's matmul. */
float linear_factor(const layer_work *work, const layer_stage *stage);

/* Scratch of linear stages and of their low stages: decoded weights; with DoRA, sums and their gradients; with dropout, an input or its
 * gradient. DoRA has no dropout. */
enum { LINEAR_DECODED, LINEAR_SUMS, LINEAR_DROPPED = LINEAR_SUMS };

#endif
