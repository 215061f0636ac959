/* reference.h - the losses of the reference model, per target token, in a file of the run's folder.
 *
 * The reference is the model from which the run starts, with the adapter that it continues. Its losses are computed before the first step
 * by the schedule of evaluations, so that there is never a second model in memory. A pair's margin is exactly 0 before the first update,
 * because the same op computes the same window. Only windows that the run will see are computed. If a resumed run will see more (more
 * steps, other evaluation data), or if the file is lost, damaged or of another run, the model that it started from is loaded once more
 * before the checkpoint, and the file is completed, with the same bits, whatever windows are computed together.
 *
 *   byte 0   reference_header: for how many samples of the run the file has the windows, and of which model; its checksum
 *   byte 96  for each window: fp32 (seq_len), 0 where there is no target; the checksum of these losses. What was not computed is undefined
 *
 * Losses are on the disk before the header counts them. Checksums are compared when the file is opened and when a step reads it.
 *
 * With several ranks, the file is rank 0's: it reads the losses of each step and sends each rank its part, so that the others need not see
 * the folder.
 */
#ifndef PT_TRAIN_REFERENCE_H
#define PT_TRAIN_REFERENCE_H

#include "run/executor.h"
#include "task/task.h"
#include "train/job.h"

static inline bool reference_is_used(const job *j) { return task_of(&j->o)->plane == TASK_PLANE_REFERENCE; }

typedef struct reference {
    int fd; /* -1: none, or rank 0 has it */
    uint64_t samples; /* number of the run's first samples whose windows are in the file */
    uint64_t model;   /* checksum of the model's values; 0: none yet */
    char path[FILE_PATH_BYTES];
} reference;

/* The windows of the first `samples` samples of some data. */
typedef struct reference_want { dataset *data; uint64_t samples, per_epoch; } reference_want;
reference_want reference_of_training(const job *j);
reference_want reference_of_evaluation(const job *j);

/* Opens OUT/NAME. fresh: ignores an existing file. Else one that is not there, damaged, or of other data or another model (`model`; 0: any)
 * is begun anew, with a notice: all losses are missing then. */
int reference_open(reference *r, const char *out, const char *name, const reference_want *w, bool fresh, uint64_t model, const job *j,
                   pt_error *e);
static inline bool reference_lacks(const reference *r, const reference_want *w) { return r->samples < w->samples; }
/* Computes missing losses with the current weights, whose checksum is `model`: x runs evaluations, and no update may wait in it. With
 * several ranks all compute, and the one that `writes` writes the file. */
int reference_complete(reference *r, const reference_want *w, uint64_t model, const job *j, executor *exec, bool writes, pt_error *e);
/* Puts the losses of this rank's part of n windows into exec, as reference_load does the windows. All ranks call it. */
int reference_fill(const reference *r, const uint64_t *windows, uint64_t n, executor *exec, pt_error *e);
void reference_close(reference *r);

/* Puts this rank's part of n windows, at most a step of all ranks, into exec; the rest of the batch repeats some. counts (may be NULL): the
 * counts of that part. */
int reference_load(dataset *data, const uint64_t *windows, uint64_t n, executor *exec, dataset_counts *counts, pt_error *e);

#endif
