/* foreign.h - files that are refused with the command that makes data files of them: Arrow, and compressed files that are not read
 * as they are. */
#ifndef PT_DATA_FOREIGN_H
#define PT_DATA_FOREIGN_H

#include "base/error.h"

#include <stdbool.h>

/* Whether the end of a name says so. Of a compressed file, also what is inside: data.jsonl.gz. */
bool data_is_foreign(const char *name);
/* The error that has the command; 0 if the file is none of these. Compressed files are named whatever is inside. */
int data_refuse_foreign(const char *path, pt_error *e);
/* PT_FAILED for a folder that save_to_disk of the library datasets wrote. */
int data_refuse_saved(const char *folder, pt_error *e);

#endif
