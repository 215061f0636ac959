/* reference.h - what the model thought of the replies before training (DPO): its loss of each target, in a file beside the run.
 *
 * The reference is the model that the run starts from, with the adapter that it goes on from. Its losses are computed before the first
 * step, by the pass that an evaluation makes, so that no second model is ever in memory, and a pair's margin is 0 to the last bit before
 * the first update, since the same op computes the same window. Only windows that the run will see are computed. Where a run that is
 * resumed will see more (more steps, other data to evaluate on), the model that it started from is loaded once more before the checkpoint
 * is, and the file is completed: losses have the bits that they would have had then, whatever windows are computed beside each other.
 *
 *   byte 0   reference_header: how many samples of the run have their windows here, and of which model
 *   byte 96  fp32 (windows, seq_len): 0 where there is no target; of windows that are not there yet nothing is meant
 *
 * Losses are on the disk before the header counts them.
 */
#ifndef PT_TRAIN_REFERENCE_H
#define PT_TRAIN_REFERENCE_H

#include "run/executor.h"
#include "train/job.h"

typedef struct reference {
    int fd; /* -1: there is none */
    uint64_t samples; /* of the run, the first, whose windows are there */
    uint64_t model;   /* a sum of the model's values; 0: none is there yet */
    char path[FILE_PATH_BYTES];
} reference;

/* Windows of some data: those of the first `samples` samples. */
typedef struct reference_want { dataset *data; uint64_t samples, per_epoch; } reference_want;
reference_want reference_of_training(const job *j);
reference_want reference_of_evaluation(const job *j);

/* OUT/NAME. fresh: whatever is there counts for nothing. Else it must be there, and be of this data. */
int reference_open(reference *r, const char *out, const char *name, const reference_want *w, bool fresh, const job *j, pt_error *e);
static inline bool reference_lacks(const reference *r, const reference_want *w) { return r->samples < w->samples; }
/* Computes what is lacking with the weights that are there, of which `model` is the sum: x runs evaluations, and nothing waits in it. Of
 * several ranks all compute, and the one that `writes` has the file written. */
int reference_complete(reference *r, const reference_want *w, uint64_t model, const job *j, executor *x, bool writes, pt_error *e);
int reference_read(const reference *r, uint64_t window, int64_t seq_len, float *losses, pt_error *e);
void reference_close(reference *r);

/* The rank's part of n windows, at most as many as stand in a step of all ranks, into x; what is left of the batch computes some again.
 * counts (may be NULL): of that part. */
int reference_load(dataset *data, const uint64_t *windows, uint64_t n, executor *x, dataset_counts *counts, pt_error *e);

#endif
