/* metrics.h - the lines of metrics.jsonl (io/steps.h) in training. */
#ifndef PT_METRICS_H
#define PT_METRICS_H

#include "io/steps.h"
#include "protrain.h"
#include "train/watch.h"

/* Both write the step's warnings of `w`, too. */
int metrics_write(const step_lines *m, const pt_step *step, const pt_memory *memory, int memory_n, const watch *w, pt_error *e);
int metrics_add_evaluation(const step_lines *m, const pt_step *step, const watch *w,
                           pt_error *e); /* to the last line, which has none yet */

#endif
