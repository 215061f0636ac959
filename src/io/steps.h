/* steps.h - what the output folder of a run has of each step: checkpoint folders, and a file of metrics with a line per step.
 *
 *     OUT/checkpoint-STEP/    complete if it has a certain file, the mark
 *     OUT/metrics.jsonl       {"step": 1, ...} ... A resumed run cuts it back to the step from which it starts.
 */
#ifndef PT_STEPS_H
#define PT_STEPS_H

#include "io/files.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* ---- checkpoint-STEP ---- */

int step_folder_path(const char *out, int64_t step, char path[FILE_PATH_BYTES], pt_error *e);
int64_t step_folder_number(const char *name); /* the STEP of a folder named checkpoint-STEP; -1: it has another name */
/* The complete one with the highest step up to `limit`; -1: none. */
int64_t step_folders_newest(const char *out, const char *mark, int64_t limit);
/* Keeps only the newest `keep` up to `limit`, and the one of the step `also` (0: none); keep 0: all. */
int step_folders_prune(const char *out, const char *mark, int64_t limit, int keep, int64_t also, pt_error *e);

/* ---- metrics.jsonl ---- */

typedef struct step_lines {
    FILE *file;
    char path[FILE_PATH_BYTES];
} step_lines;

/* Gets each line that is kept, in turn. */
typedef void step_line_read(void *arg, int64_t step, const json_t *line);
/* Opens the file in the folder `out` for appending, after truncating it to its leading lines of steps up to `step`. read: may be NULL.
 * *there: the file had lines, kept or not. */
int step_lines_open(step_lines *l, const char *out, int64_t step, step_line_read *read, void *arg, bool *there, pt_error *e);
/* The length of the file in bytes; -1: unknown. */
off_t step_lines_length(const step_lines *l);
/* Writes the buffer. On failure nothing of it remains, neither in the file, which was `bytes` long (-1: unknown), nor in the buffer. */
int step_lines_flush(const step_lines *l, off_t bytes, pt_error *e);
int step_lines_sync(const step_lines *l, pt_error *e); /* syncs to disk */
void step_lines_close(step_lines *l);

#endif
