/* commit_file.h - where the file with a run's slots is (train/commits.h): its names, and who may remove it. */
#ifndef PT_COMMIT_FILE_H
#define PT_COMMIT_FILE_H

#include "train/trainer.h"

#define DISK_FOLDER "disk" /* in `out`: the disk tier's folder, unless `disk_path` names another */

/* The file that states.json in the folder `out` names; "": none. */
void commit_file_find(const char *out, char path[FILE_PATH_BYTES]);
/* From now on states.json names this file. */
int commit_file_record(const trainer *trainer, const char *path, pt_error *e);
/* The path of a new file, for the plan's layout. */
int commit_file_path(const trainer *trainer, char path[FILE_PATH_BYTES], pt_error *e);
/* Removes what killed processes of this run have left of the disk tier: files with slots that states.json does not name, in `disk_path` and
 * in the run's own folder, and that folder, if it is empty. */
void commit_file_clean(const trainer *trainer);
/* Removes the run's own folder, if it is empty and not the given `disk_path`. */
void commit_file_leave(const trainer *trainer);
/* Removes `file` ("": none), states.json and all others. */
void commit_file_remove(const trainer *trainer, const char *file);

#endif
