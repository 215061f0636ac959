/* commit_file.h - where the file with a run's slots is (train/commits.h): its names, and who may remove it. */
#ifndef PT_COMMIT_FILE_H
#define PT_COMMIT_FILE_H

#include "train/trainer.h"

/* The file that states.json in the folder `out` names; "": none. */
void commit_file_find(const char *out, char path[FILE_PATH_BYTES]);
/* From now on states.json names this file. */
int commit_file_record(const trainer *trainer, const char *path, pt_error *e);
/* The path of a new file, for the plan's layout. */
int commit_file_path(const trainer *trainer, char path[FILE_PATH_BYTES], pt_error *e);
/* Removes what this run's processes have left in the disk tier's folder, except these two files: one that was killed before its first
 * commit leaves one. */
void commit_file_remove_others(const trainer *trainer, const char *keep, const char *keep_too);
/* Removes `file` ("": none), states.json and all others. */
void commit_file_remove(const trainer *trainer, const char *file);

#endif
