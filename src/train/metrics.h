/* metrics.h - metrics.jsonl, one line per step. A resumed run cuts it back to the step from which it starts. */
#ifndef PT_METRICS_H
#define PT_METRICS_H

#include "io/files.h"
#include "protrain.h"

#include <stdio.h>

typedef struct metrics {
    FILE *file;
    char path[FILE_PATH_BYTES];
} metrics;

/* In the folder `out`, cut back to `step`. *last: the step of its last line, 0: none; *evaluated: that line has a loss on the evaluation
 * data; *there: the file had lines, kept or not. */
typedef struct metrics_kept { int64_t last; bool evaluated, there; } metrics_kept;
int metrics_open(metrics *m, const char *out, int64_t step, metrics_kept *kept, pt_error *e);
int metrics_write(const metrics *m, const pt_step *s, const pt_memory *memory, int memory_n, pt_error *e);
int metrics_add_evaluation(const metrics *m, const pt_step *s, pt_error *e); /* to the last line, which has none yet */
int metrics_sync(const metrics *m, pt_error *e); /* syncs to disk */
void metrics_close(metrics *m);

#endif
