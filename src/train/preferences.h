/* preferences.h - direct preference optimization: what the model thought of the replies before training, and how pairs compare now.
 *
 * The reference is the model that the run starts from. Its loss of each target is computed once, before the first step, by the pass that an
 * evaluation makes, so that no second model is ever in memory; OUT/reference.bin keeps it, window after window, also for when the run is
 * resumed. Before the first update a pair's margin is 0 to the last bit, since the same op computes the same window.
 *
 *   byte 0   reference_header      byte 64   fp32 (windows, seq_len): 0 where there is no target
 */
#ifndef PT_PREFERENCES_H
#define PT_PREFERENCES_H

#include "run/executor.h"
#include "train/job.h"

typedef struct reference {
    int fd; /* -1: there is none */
    char path[FILE_PATH_BYTES];
} reference;

/* The whole file of this data; it must be there. */
int reference_open(reference *r, const char *out, const job *j, pt_error *e);
/* Makes it with the weights that are there: x runs evaluations, and nothing waits in it. */
/* Of several ranks all compute, and one writes. */
int reference_make(const char *out, const job *j, executor *x, bool writes, pt_error *e);
int reference_read(const reference *r, uint64_t window, int64_t seq_len, float *losses, pt_error *e);
void reference_close(reference *r);

/* Over the pairs of the step that x has run, of all ranks: the same sum for any number of them. */
typedef struct preference_sum { int64_t pairs, right; double loss, margin; } preference_sum; /* right: margins above 0 */
int preferences_sum(executor *x, preference_sum *sum, pt_error *e);

#endif
