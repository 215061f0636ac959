/* shared_stage.h - a staged folder (io/files.h) that all ranks of a run write into, if they see it. Rank 0 makes it and gives it its name;
 * all call this. */
#ifndef PT_SHARED_STAGE_H
#define PT_SHARED_STAGE_H

#include "io/files.h"
#include "train/trainer.h"

typedef struct shared_stage {
    char path[FILE_PATH_BYTES]; /* as rank 0 has it */
    bool seen;                  /* by all ranks: else rank 0 alone writes there */
    dir_stage own; /* rank 0's */
} shared_stage;

typedef int (*shared_stage_commit)(const trainer *t, dir_stage *own, pt_error *e);

/* Where it fails it fails on all. */
int shared_stage_begin(shared_stage *s, const trainer *t, const char *final_path, pt_error *e);
/* `failed`: of what was written. agreed: the other ranks know of it. Without failure `commit` ends the work, on rank 0 alone, and where it
 * cannot all hear of it. Returns what failed; nothing is left of the staged folder then, and the others do not go on either. */
int shared_stage_end(shared_stage *s, const trainer *t, int failed, bool agreed, shared_stage_commit commit, pt_error *e);

#endif
