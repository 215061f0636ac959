/* adamw.c - AdamW as in PyTorch: two moments in fp32 (device.h, op_adamw). */
#include "optimizer/optimizer.h"

#include <math.h>

op_adamw adamw_op(const update *u)
{
    const update_params *p = u->params;
    return (op_adamw){
        .type = u->type, .n = u->n, .hi = u->hi, .lo = u->lo, .g = u->g, .grad_scale = p->grad_scale,
        .decay = u->param->decay ? (float)(1.0 - (double)p->lr * (double)p->weight_decay) : 1.0f, .beta1 = p->beta1, .beta2 = p->beta2,
        .eps = p->eps, .step_size = (float)((double)p->lr / (1.0 - pow((double)p->beta1, (double)p->step))),
        .sqrt_correction2 = (float)sqrt(1.0 - pow((double)p->beta2, (double)p->step))};
}

static void submit(queue *q, const update *u)
{
    op_adamw o = adamw_op(u);
    o.m = u->slab[0];
    o.v = u->slab[1];
    queue_submit(q, &(op){OP_ADAMW, .adamw = o});
}

const update_rule adamw_rule = {.title = "AdamW", .slabs = {{"exp_avg", PT_F32, 1}, {"exp_avg_sq", PT_F32, 1}}, .submit = submit};

static const update_rule *rule_of(const param *p)
{
    (void)p;
    return &adamw_rule;
}

const optimizer optimizer_adamw = {.name = "adamw", .rules = {&adamw_rule}, .rule_of = rule_of};
