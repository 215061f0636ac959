/* evaluation.h - the loss over all windows of a data set, by the forward schedule. */
#ifndef PT_EVALUATION_H
#define PT_EVALUATION_H

#include "data/dataset.h"
#include "run/executor.h"

typedef struct evaluation_sum {
    double loss;         /* mean over all targets, nats */
    int64_t tokens, learned; /* as in dataset_counts; learned: targets */
    int64_t right;       /* targets that were the most probable token */
    int64_t bad_window;  /* first window of a batch with a loss that is not finite, where the evaluation ended; -1: none */
    bool stopped;        /* progress returned false; the sums are incomplete */
} evaluation_sum;

typedef struct evaluation_pass {
    bool (*progress)(void *arg, uint64_t done, uint64_t total); /* of windows; false: stop */
    int (*ran)(void *arg, uint64_t first, uint64_t n, pt_error *e); /* these windows are what the executor has run; NULL: not wanted */
    void *arg;
} evaluation_pass;
/* The executor must have SCHEDULE_EVAL and no waiting update. If its shape has documents, the data must mark them. */
int evaluation_run(executor *exec, dataset *data, const evaluation_pass *pass, evaluation_sum *out, pt_error *e);
int evaluation_add_ranks(const executor *exec, int64_t *tokens, pt_error *e); /* sums *tokens over the ranks */

#endif
