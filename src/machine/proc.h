/* proc.h - single values from files of lines of the kernel. */
#ifndef PT_PROC_H
#define PT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROC_PATH_BYTES = 1200 };

/* The rest of the line after `key` in a file of "key: value" or "key value" lines; key NULL: the first line. false: there is no such
 * line. */
bool proc_text(const char *path, const char *key, char *out, size_t n);
/* The number at its beginning; `absent` if there is none, as in "max". */
uint64_t proc_number(const char *path, const char *key, uint64_t absent);

#endif
