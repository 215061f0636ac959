/* adam_mini.c - Adam-mini (Zhang et al., 2024): AdamW whose second moment is one number for each row of a matrix, in q and k for each
 * head, and for each norm. Tables of tokens, whose slices lie in several chunks, and biases use AdamW.
 *
 *   m = beta1 m + (1 - beta1) g       v = beta2 v + (1 - beta2) mean of g^2 over the rows that share it
 *   w = w (1 - lr weight_decay) - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 */
#include "optimizer/optimizer.h"

#include <math.h>
#include <string.h>

/* Blocks of values that share a second moment: (blocks, values). */
typedef struct shape { int64_t blocks, values; } shape;

static shape shape_of(const param *p, int k)
{
    const part_matrix m = part_matrix_of(p, k);
    const param_part *part = &p->part[k];
    const bool heads = p->head_rows && !part->heads && m.rows % p->head_rows == 0 &&
                       (strstr(part->name, "q_proj") || strstr(part->name, "k_proj"));
    const int64_t rows = heads ? p->head_rows : 1;
    return (shape){m.n * m.rows / rows, rows * m.cols};
}

static const update_rule by_rows;

static void submit(queue *q, const update *u)
{
    const update_params *p = u->params;
    for (int k = 0; k < u->param->parts; k++) {
        const shape s = shape_of(u->param, k);
        const int64_t first = part_first(u->param, k);
        const uint64_t at = (uint64_t)first * dtype_bytes(u->type);
        float *v = (float *)u->slab[1] + slab_first(&by_rows.slabs[1], u->param, k);
        const op_adamw a = adamw_op(u);
        queue_submit(q, &(op){OP_FACTOR_SUMS, .factor_sums = {u->type, s.blocks, s.values, (const char *)u->g + at, p->grad_scale, p->beta2,
                              0, v, NULL}});
        queue_submit(q, &(op){OP_ROW_ADAM, .row_adam = {
            u->type, s.blocks, s.values, (char *)u->hi + at, u->lo ? u->lo + first : NULL, (const char *)u->g + at, p->grad_scale,
            (float *)u->slab[0] + first, v, a.decay, p->beta1, p->eps, a.step_size, a.sqrt_correction2}});
    }
}

static int64_t blocks_of(const param *p, int k) { return shape_of(p, k).blocks; }

static const update_rule by_rows = {.title = "Adam-mini", .submit = submit, .whole = true, .passes = 1,
                                    .slabs = {{"exp_avg", PT_F32, 1}, {"row_exp_avg_sq", PT_F32, 1, blocks_of}}};

static const update_rule *rule_of(const param *p)
{
    const bool adam = p->kind->use == USE_VOCABULARY || p->kind->use == USE_BIAS || p->kind->use == USE_NORM_BIAS;
    return adam ? &adamw_rule : &by_rows;
}

const optimizer optimizer_adam_mini = {.name = "adam_mini", .rules = {&adamw_rule, &by_rows}, .rule_of = rule_of};
