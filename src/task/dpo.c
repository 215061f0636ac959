/* dpo.c - direct preference optimization (Rafailov and others, 2023), IPO (Azar and others, 2023), the loss of means (Meng and others,
 * 2024), and LD-DPO (Liu and others, 2024): less weight for the tokens of a reply beyond the length of the other one. */
#include "task/task.h"

static preference_rule rule(const pt_train_options *o)
{
    static const preference_kind kinds[] = {[PT_DPO_SIGMOID] = PREFERENCE_SIGMOID, [PT_DPO_IPO] = PREFERENCE_IPO,
                                            [PT_DPO_SIGMOID_NORM] = PREFERENCE_NORM};
    return (preference_rule){.kind = kinds[o->dpo_loss], .beta = (float)o->beta, .cut = (float)(1 - o->ld_alpha),
                             .smoothing = o->dpo_loss == PT_DPO_IPO ? 0 : (float)o->label_smoothing};
}

const train_task task_dpo = {.name = "dpo", .pairs = true, .plane = TASK_PLANE_REFERENCE,
                             .reads = TASK_READS_BETA | TASK_READS_DPO_LOSS | TASK_READS_SMOOTHING, .lr = 1e-6, .rule = rule};
