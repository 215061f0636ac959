/* module.h - finds modules that are loaded at run time. */
#ifndef PT_MODULE_H
#define PT_MODULE_H

#include <limits.h>
#include <stdbool.h>

/* The path in the environment's `variable`, else `file` beside the program or the library, or in the place of installation. */
bool module_find(const char *variable, const char *file, char out[PATH_MAX]);

#endif
