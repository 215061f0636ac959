/* module.h - where the modules are that are loaded at run time. */
#ifndef PT_MODULE_H
#define PT_MODULE_H

#include <limits.h>
#include <stdbool.h>

/* What the environment's `variable` names, else `file` beside the program or the library, or where they are installed. */
bool module_find(const char *variable, const char *file, char out[PATH_MAX]);

#endif
