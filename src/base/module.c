#include "base/module.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* out = `folder` and `rest` joined, relative to the folder of `file`. False if there is no such file. */
static bool beside(const char *file, const char *folder, const char *rest, char out[PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    int n = slash ? snprintf(out, PATH_MAX, "%.*s/%s%s", (int)(slash - file), file, folder, rest) : PATH_MAX;
    return n < PATH_MAX && access(out, R_OK) == 0;
}

bool module_find(const char *variable, const char *file, char out[PATH_MAX])
{
    const char *given = getenv(variable);
    if (given)
        return snprintf(out, PATH_MAX, "%s", given) < PATH_MAX;
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    if (beside(program, "", file, out) || beside(program, "../" PT_LIBDIR "/", file, out))
        return true;
    Dl_info library;
    return dladdr((void *)(uintptr_t)module_find, &library) && library.dli_fname && beside(library.dli_fname, "", file, out);
}
