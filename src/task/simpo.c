/* simpo.c - simple preference optimization (Meng and others, 2024): mean log-probabilities with a target margin. */
#include "task/task.h"

static preference_rule rule(const pt_train_options *o)
{
    return (preference_rule){.kind = PREFERENCE_SIMPO, .beta = (float)o->beta, .gamma = (float)o->gamma,
                             .smoothing = (float)o->label_smoothing};
}

const train_task task_simpo = {.name = "simpo", .pairs = true, .reads = TASK_READS_BETA | TASK_READS_GAMMA | TASK_READS_SMOOTHING,
                               .lr = 1e-6, .rule = rule};
