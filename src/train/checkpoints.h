/* checkpoints.h - the folders checkpoint-STEP of a training run in its output folder `out` (io/steps.h). checkpoint.h: their contents. */
#ifndef PT_CHECKPOINTS_H
#define PT_CHECKPOINTS_H

#include "io/steps.h"
#include "protrain.h"

#define CHECKPOINT_MARK "trainer/trainer.json" /* the file that a complete one has */
#define FINISHED_FILE "finished.json"          /* beside the trained model: of which run it is */

/* The complete checkpoint with the highest step up to `limit`; -1: none. */
int64_t checkpoints_newest(const char *out, int64_t limit);
int checkpoints_find_newest(const char *out, char path[FILE_PATH_BYTES], pt_error *e); /* "": none */
int checkpoints_count(const char *out, int64_t limit);
int checkpoints_present(const char *path, pt_error *e); /* else PT_FAILED with a message */
bool checkpoints_of_others(const char *out, char path[FILE_PATH_BYTES]); /* `out` has a checkpoint-N of another program */

/* Renames those with steps after `limit`, and gives a notice. */
int checkpoints_put_later_away(const char *out, int64_t limit, const pt_train_options *o, pt_error *e);
/* Keeps only the newest `keep` up to `limit`, and the one of the step `best` (0: none); keep 0: all. */
int checkpoints_prune(const char *out, int64_t limit, int keep, int64_t best, pt_error *e);
/* Adds to an error from which checkpoint --resume continues: the newest one up to `limit`. */
void checkpoints_add_advice(const char *out, int64_t limit, pt_error *e);
/* `path` cannot be read: adds the newest checkpoint before it. */
void checkpoints_add_older(const char *out, const char *path, pt_error *e);

#endif
