/* reward.c - reward models: a score for a prompt with a reply, by the log-sigmoid of the difference of both replies (Bradley-Terry), less
 * the margin of the record; `center_rewards` keeps the scores near 0. */
#include "task/task.h"

static preference_rule rule(const pt_train_options *o)
{
    return (preference_rule){.kind = PREFERENCE_REWARD, .beta = 1, .center = o ? (float)o->center_rewards : 0};
}

const train_task task_reward = {.name = "reward", .pairs = true, .scores = SCORES_ONE, .plane = TASK_PLANE_MARGIN,
                                .reads = TASK_READS_CENTER, .rule = rule};
