/* module.h - finds modules that are loaded at run time. */
#ifndef PT_MODULE_H
#define PT_MODULE_H

#include <limits.h>
#include <stdbool.h>

/* The path in the environment variable `variable`; else `file` beside the program or the library, or where it is installed. False if there
 * is none. */
bool module_find(const char *variable, const char *file, char out[PATH_MAX]);

#endif
