#include "task/task.h"

const train_task task_sft = {.name = "sft", .reads = TASK_READS_SMOOTHING};
