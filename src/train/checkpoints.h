/* checkpoints.h - the folders checkpoint-STEP in a run's output folder `out`: which are there, and which go. What stands in one:
 * checkpoint.h. */
#ifndef PT_CHECKPOINTS_H
#define PT_CHECKPOINTS_H

#include "io/files.h"
#include "protrain.h"

int checkpoints_path(const char *out, int64_t step, char path[FILE_PATH_BYTES], pt_error *e);
int64_t checkpoints_step(const char *name); /* of a folder named checkpoint-STEP; -1: it is not */
/* The complete one with the highest step not above `limit`; -1: none. */
int64_t checkpoints_newest(const char *out, int64_t limit);
int checkpoints_find_newest(const char *out, char path[FILE_PATH_BYTES], pt_error *e); /* "": none */
int checkpoints_count(const char *out, int64_t limit);
int checkpoints_present(const char *path, pt_error *e); /* or PT_FAILED, and says so */
bool checkpoints_of_others(const char *out, char path[FILE_PATH_BYTES]); /* `out` has a checkpoint-N that is another program's */

/* Renames those of later steps than `limit`, and says so. */
int checkpoints_put_later_away(const char *out, int64_t limit, const pt_train_options *o, pt_error *e);
/* Keeps the newest `keep` up to `limit`; 0: all. */
int checkpoints_prune(const char *out, int64_t limit, int keep, pt_error *e);
/* Adds to what went wrong from where --resume goes on: the newest one up to `limit`. */
void checkpoints_add_advice(const char *out, int64_t limit, pt_error *e);
/* `path` cannot be read: adds the newest one before it. */
void checkpoints_add_older(const char *out, const char *path, pt_error *e);

#endif
