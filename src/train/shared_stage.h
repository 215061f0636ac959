/* shared_stage.h - a staged folder (io/files.h) that all ranks of a run write into, if they share a file system. Rank 0 creates and renames
 * it. All ranks must call these functions. */
#ifndef PT_SHARED_STAGE_H
#define PT_SHARED_STAGE_H

#include "io/files.h"
#include "train/trainer.h"

typedef struct shared_stage {
    char path[FILE_PATH_BYTES]; /* as on rank 0 */
    bool seen;                  /* all ranks see the folder; otherwise only rank 0 writes to it */
    dir_stage own;              /* on rank 0 */
} shared_stage;

typedef int (*shared_stage_commit)(const trainer *t, dir_stage *own, pt_error *e);

/* Fails on all ranks if it fails on one. */
int shared_stage_begin(shared_stage *s, const trainer *trainer, const char *final_path, pt_error *e);
/* `failed`: the result of this rank's writing. agreed: the ranks know each other's results. If all succeeded, rank 0 calls `commit`, and
 * all ranks learn whether it failed. Returns the failure; the staged folder is then removed, on all ranks. */
int shared_stage_end(shared_stage *s, const trainer *trainer, int failed, bool agreed, shared_stage_commit commit, pt_error *e);

#endif
