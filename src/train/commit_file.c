#include "train/commit_file.h"

#include "base/json.h"
#include "base/sum.h"
#include "run/slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATES_FILE COMMITS_FOLDER "/states.json"

void commit_file_find(const char *out, char path[FILE_PATH_BYTES])
{
    char file[FILE_PATH_BYTES];
    const char *name;
    json_source src;
    path[0] = 0;
    if (path_join(file, out, STATES_FILE, NULL) || !path_exists(file) || json_source_open(&src, file, NULL))
        return;
    const bool named = !json_get_string(&src, "file", JSON_REQUIRED, &name, NULL);
    if (named && name[0] == '/')
        snprintf(path, FILE_PATH_BYTES, "%s", name);
    else if (named && path_join(path, out, name, NULL))
        path[0] = 0;
    json_source_close(&src);
}

int commit_file_record(const trainer *trainer, const char *path, pt_error *e)
{
    char folder[FILE_PATH_BYTES], file[FILE_PATH_BYTES], whole[FILE_PATH_BYTES];
    const size_t n = strlen(trainer->out.path);
    const bool below = !strncmp(path, trainer->out.path, n) && path[n] == '/';
    if (!below && path[0] != '/' && !realpath(path, whole))
        return pt_fail_errno(e, PT_FAILED, "%.400s: this path cannot be found", path);
    int failed = path_join(folder, trainer->out.path, COMMITS_FOLDER, e);
    if (!failed)
        failed = path_join(file, trainer->out.path, STATES_FILE, e);
    if (!failed)
        failed = dir_make(folder, e);
    if (failed)
        return failed;
    json_t *all = json_pack("{s:s}", "file", below ? path + n + 1 : path[0] == '/' ? path : whole);
    failed = all ? file_write_json(file, all, e) : pt_fail(e, PT_FAILED, "out of memory");
    json_decref(all);
    return failed;
}

uint64_t commits_found_bytes(const char *out)
{
    char path[FILE_PATH_BYTES];
    struct stat st;
    commit_file_find(out, path);
    return path[0] && !stat(path, &st) ? (uint64_t)st.st_blocks * 512 : 0;
}

/* The names of a run's files begin alike, because runs may share the folder. */
static void make_prefix(const trainer *trainer, char prefix[32])
{
    char whole[PATH_MAX];
    const char *out = realpath(trainer->out.path, whole) ? whole : trainer->out.path;
    snprintf(prefix, 32, "states-" "%016" PRIx64 "-", sum_bytes(0, 0, out, strlen(out)));
}

int commit_file_path(const trainer *trainer, char path[FILE_PATH_BYTES], pt_error *e)
{
    char prefix[32], name[64];
    make_prefix(trainer, prefix);
    snprintf(name, sizeof name, "%s" "%016" PRIx64, prefix, slots_layout(&trainer->planning.result.best.packing));
    return path_join(path, trainer->planning.disk_path, name, e);
}

/* Whoever has a file open holds a shared lock on it (disk_open_named). */
static void remove_unused(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (!flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK)
        unlink(path);
    close(fd);
}

/* Removes this run's files of slots in the folder, except one. */
static void remove_others(const trainer *trainer, const char *folder, const char *keep)
{
    char prefix[32], path[FILE_PATH_BYTES];
    DIR *d = opendir(folder);
    make_prefix(trainer, prefix);
    for (struct dirent *x; d && (x = readdir(d));)
        if (!strncmp(x->d_name, prefix, strlen(prefix)) && !path_join(path, folder, x->d_name, NULL) && strcmp(path, keep))
            remove_unused(path);
    if (d)
        closedir(d);
}

void commit_file_clean(const trainer *trainer)
{
    char named[FILE_PATH_BYTES], own[FILE_PATH_BYTES];
    commit_file_find(trainer->out.path, named);
    remove_others(trainer, trainer->planning.disk_path, named);
    if (!path_join(own, trainer->out.path, DISK_FOLDER, NULL))
        remove_others(trainer, own, named);
    commit_file_leave(trainer);
}

void commit_file_leave(const trainer *trainer)
{
    const char *given = trainer->job.o.disk_path;
    char own[FILE_PATH_BYTES];
    if (!path_join(own, trainer->out.path, DISK_FOLDER, NULL) && (!given || strcmp(given, own)))
        rmdir(own); /* fails, as it should, if it contains anything */
}

void commit_file_remove(const trainer *trainer, const char *file)
{
    char folder[FILE_PATH_BYTES];
    if (file[0])
        unlink(file);
    remove_others(trainer, trainer->planning.disk_path, "");
    if (!path_join(folder, trainer->out.path, COMMITS_FOLDER, NULL))
        tree_discard(folder, NULL);
}

