/* evaluation.h - the loss over all windows of some data, by the forward schedule. */
#ifndef PT_EVALUATION_H
#define PT_EVALUATION_H

#include "data/dataset.h"
#include "run/executor.h"

typedef struct evaluation_sum {
    double loss;         /* of all targets, nats */
    int64_t tokens, learned; /* as dataset_counts has them: learned are targets */
    int64_t right;       /* targets that were the most probable token */
    int64_t bad_window;  /* the loss of one of the batch that begins there is not finite, and the sum ends with it; -1: none */
    bool stopped;        /* progress said so: not all is in the sum */
} evaluation_sum;

/* The executor has SCHEDULE_EVAL, and nothing waits in it; where its shape has documents, the data keep them apart. `progress` is told of
 * windows; false: to stop. */
int evaluation_run(executor *x, dataset *data, bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                   evaluation_sum *out, pt_error *e);

#endif
