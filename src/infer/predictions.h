/* predictions.h - what a model that scores texts says of each record: a line of JSON, in the order of the data.
 *
 * Windows hold records in another order, so the scores wait in an unnamed file: for each record 1 and its scores, fp32; zeros: left out. */
#ifndef PT_INFER_PREDICTIONS_H
#define PT_INFER_PREDICTIONS_H

#include "data/dataset.h"
#include "io/files.h"
#include "run/executor.h"

typedef struct predictions {
    const char *path;
    executor *x;
    const dataset *data;
    const label_names *names; /* of the classes; of one label: it is a score */
    file_stage file;
    int fd;
    float *row;               /* of one record; NULL: not open */
} predictions;

int predictions_may_write(const char *path, pt_error *e);
/* Sets the last three. The executor's shape must have scores. */
int predictions_open(predictions *p, pt_error *e);
/* Keeps the scores of the windows that the executor has run (evaluation_pass.ran); arg: the predictions. */
int predictions_take(void *arg, uint64_t first, uint64_t n, pt_error *e);
/* *n: the lines written. */
int predictions_write(predictions *p, int64_t *n, pt_error *e);
void predictions_close(predictions *p); /* zeroed: does nothing */

#endif
