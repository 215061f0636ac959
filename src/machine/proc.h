/* proc.h - single values of the kernel's files of lines. */
#ifndef PT_PROC_H
#define PT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROC_PATH_BYTES = 1200 };

/* What follows `key` in a file of "key: value" or "key value" lines, to the line's end; key NULL: the first line. false: it is not
 * there. */
bool proc_text(const char *path, const char *key, char *out, size_t n);
/* The number it begins with; `absent` where there is none, as of "max". */
uint64_t proc_number(const char *path, const char *key, uint64_t absent);

#endif
