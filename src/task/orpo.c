/* orpo.c - odds ratio preference optimization (Hong and others, 2024): the loss of chosen replies with their prompts, and a penalty by the
 * odds of both replies. */
#include "task/task.h"

static preference_rule rule(const pt_train_options *o)
{
    return (preference_rule){.kind = PREFERENCE_ORPO, .beta = (float)o->beta};
}

const train_task task_orpo = {.name = "orpo", .pairs = true, .plane = TASK_PLANE_OWN, .reads = TASK_READS_BETA, .lr = 1e-6, .rule = rule};
