#include "task/task.h"

const train_task *const train_tasks[] = {&task_sft, &task_dpo, &task_orpo, &task_simpo, &task_kto, &task_reward, &task_classify};
const int train_tasks_n = sizeof train_tasks / sizeof *train_tasks;

preference_rule task_rule(const pt_train_options *o)
{
    const train_task *t = task_of(o);
    return t->rule ? t->rule(o) : (preference_rule){PREFERENCE_NONE};
}
