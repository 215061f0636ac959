/* classify.c - classes of texts and conversations: cross entropy over labels. */
#include "task/task.h"

const train_task task_classify = {.name = "classify", .scores = SCORES_LABELS, .reads = TASK_READS_SMOOTHING};
