/* steps.h - what the output folder of a run has of each step: checkpoint folders, and a file of metrics with a line per step.
 *
 *     OUT/checkpoint-STEP/    complete if it has a certain file, the mark
 *     OUT/metrics.jsonl       {"step": 1, ...} ... A resumed run cuts it back to the step from which it starts.
 */
#ifndef PT_STEPS_H
#define PT_STEPS_H

#include "io/files.h"

#include <stdint.h>
#include <stdio.h>

/* ---- checkpoint-STEP ---- */

int step_folder_path(const char *out, int64_t step, char path[FILE_PATH_BYTES], pt_error *e);
int64_t step_folder_number(const char *name); /* the STEP of a folder named checkpoint-STEP; -1: it has another name */
/* The complete one with the highest step up to `limit`; -1: none. */
int64_t step_folders_newest(const char *out, const char *mark, int64_t limit);
/* Keeps only the newest `keep` up to `limit`; 0: all. */
int step_folders_prune(const char *out, const char *mark, int64_t limit, int keep, pt_error *e);

/* ---- metrics.jsonl ---- */

typedef struct step_lines {
    FILE *file;
    char path[FILE_PATH_BYTES];
} step_lines;

/* The lines that are kept. last: the step of the last one, 0: none; has_key: it has the key; there: the file had lines, kept or not.
 * newest, least: of the key's numbers, the last and the least, with its step; 0: none. */
typedef struct step_lines_kept {
    int64_t last;
    bool has_key, there;
    double newest, least;
    int64_t least_step;
} step_lines_kept;
/* Opens the file in the folder `out` for appending, after truncating it to its leading lines of steps up to `step`. */
int step_lines_open(step_lines *l, const char *out, int64_t step, const char *key, step_lines_kept *kept, pt_error *e);
/* The length of the file in bytes; -1: unknown. */
off_t step_lines_length(const step_lines *l);
/* Writes the buffer. On failure nothing of it remains, neither in the file, which was `bytes` long (-1: unknown), nor in the buffer. */
int step_lines_flush(const step_lines *l, off_t bytes, pt_error *e);
int step_lines_sync(const step_lines *l, pt_error *e); /* syncs to disk */
void step_lines_close(step_lines *l);

#endif
