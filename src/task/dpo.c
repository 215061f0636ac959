/* dpo.c - direct preference optimization (Rafailov and others, 2023), and IPO (Azar and others, 2023). */
#include "task/task.h"

static preference_rule rule(const pt_train_options *o)
{
    return (preference_rule){.kind = o->dpo_loss == PT_DPO_IPO ? PREFERENCE_IPO : PREFERENCE_SIGMOID, .beta = (float)o->beta,
                             .smoothing = o->dpo_loss == PT_DPO_IPO ? 0 : (float)o->label_smoothing};
}

const train_task task_dpo = {.name = "dpo", .pairs = true, .plane = TASK_PLANE_REFERENCE,
                             .reads = TASK_READS_BETA | TASK_READS_DPO_LOSS | TASK_READS_SMOOTHING, .lr = 1e-6, .rule = rule};
