/* kto.c - Kahneman-Tversky optimization (Ethayarajh and others, 2024): single replies, each labelled as desirable or not, against a
 * baseline that a forward pass of mismatched prompts and replies gives before each step. */
#include "task/task.h"

static preference_rule rule(const pt_train_options *o)
{
    return (preference_rule){.kind = PREFERENCE_KTO, .beta = (float)o->beta, .desirable = (float)o->desirable_weight,
                             .undesirable = (float)o->undesirable_weight};
}

const train_task task_kto = {.name = "kto", .pairs = true, .labels = true, .plane = TASK_PLANE_REFERENCE,
                             .reads = TASK_READS_BETA | TASK_READS_LABEL_WEIGHTS, .lr = 1e-6, .rule = rule};
