/* reward.c - reward models: a score for a prompt with a reply, by the log-sigmoid of the difference of both replies (Bradley-Terry). */
#include "task/task.h"

static preference_rule rule(const pt_train_options *o)
{
    return (preference_rule){.kind = PREFERENCE_SIGMOID, .beta = 1};
}

const train_task task_reward = {.name = "reward", .pairs = true, .scores = SCORES_ONE, .rule = rule};
