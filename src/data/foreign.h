/* foreign.h - compressed files that are not read as they are: they are refused with the command that unpacks them. */
#ifndef PT_DATA_FOREIGN_H
#define PT_DATA_FOREIGN_H

#include "base/error.h"

#include <stdbool.h>

/* Whether the end of a name says so, and what is inside is data: data.jsonl.xz. */
bool data_is_foreign(const char *name);
/* The error that has the command; 0 if the file is none of these. Compressed files are named whatever is inside. */
int data_refuse_foreign(const char *path, pt_error *e);

#endif
