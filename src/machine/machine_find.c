/* machine_find.c - the machine files that come with the program:
 *
 *   PROGRAM/machines/                     in a build folder, which has a link to the source tree's
 *   PROGRAM/../machines/                  in the source tree
 *   PROGRAM/../share/protrain/machines/   in an installation, wherever it was moved
 *
 * and the same beside the library, for programs that link it; then
 *
 *   PT_MACHINES                           the place of installation
 */
#include "io/files.h"
#include "machine/machine_file.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS_UP = 3 };
static const char *const beside[] = {"machines", "share/protrain/machines"};

typedef struct finding { const char *name; char *path; char known[MACHINE_NAMES_BYTES]; bool found; } finding;

/* The names of the files, for the message. */
static void list_names(const char *folder, char *out, size_t n)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name, *end = strstr(name, ".json");
        if (end && used + (size_t)(end - name) + 3 < n)
            used += (size_t)snprintf(out + used, n - used, "%s%.*s", used ? ", " : "", (int)(end - name), name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static void look_in(finding *f, const char *folder)
{
    const char *end = strrchr(f->name, '.');
    bool has = end && !strcmp(end, ".json");
    if (f->found || !path_is_folder(folder))
        return;
    int n = snprintf(f->path, MACHINE_PATH_BYTES, "%s/%s%s", folder, f->name, has ? "" : ".json");
    f->found = n < MACHINE_PATH_BYTES && path_exists(f->path);
    if (!f->found && !f->known[0])
        list_names(folder, f->known, sizeof f->known);
}

/* In the file's folder and its parents. */
static void look_beside(finding *f, char *file)
{
    char folder[MACHINE_PATH_BYTES];
    for (int up = 0; up <= LEVELS_UP && !f->found; up++) {
        char *slash = strrchr(file, '/');
        if (!slash)
            return;
        *slash = 0;
        for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
            snprintf(folder, sizeof folder, "%s/%s", file, beside[i]);
            look_in(f, folder);
        }
    }
}

static void look_beside_program(finding *f)
{
    char program[MACHINE_PATH_BYTES - 64];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n < 0 ? 0 : n] = 0;
    look_beside(f, program);
}

static void look_beside_library(finding *f)
{
    char file[MACHINE_PATH_BYTES - 64];
    Dl_info library;
    if (!dladdr((void *)(uintptr_t)machine_file_find, &library) || !library.dli_fname || strlen(library.dli_fname) >= sizeof file)
        return;
    strcpy(file, library.dli_fname);
    look_beside(f, file);
}

static void look_everywhere(finding *f)
{
    look_beside_program(f);
    look_beside_library(f);
    look_in(f, PT_MACHINES);
}

void machine_file_names(char names[MACHINE_NAMES_BYTES])
{
    char path[MACHINE_PATH_BYTES];
    finding f = {.name = "", .path = path};
    look_everywhere(&f);
    strcpy(names, f.known);
}

int machine_file_find(const char *name, char path[MACHINE_PATH_BYTES], pt_error *e)
{
    finding f = {.name = name, .path = path};
    if (path_exists(name) || strchr(name, '/')) {
        if (strlen(name) >= MACHINE_PATH_BYTES)
            return pt_fail(e, PT_FAILED, "the machine file's path has %zu bytes; at most %d are possible", strlen(name),
                           MACHINE_PATH_BYTES - 1);
        strcpy(path, name);
        return 0;
    }
    look_everywhere(&f);
    if (f.found)
        return 0;
    return pt_fail(e, PT_FAILED, "there is no machine file \"%.200s\": give the path of a machine file, or one of the names that come "
                                 "with the program (%s)", name, f.known[0] ? f.known : "none are installed");
}
