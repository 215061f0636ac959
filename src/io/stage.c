/* stage.c - folders: creating, removing, syncing, and staging them (see files.h). */
#include "io/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int dir_make(const char *path, pt_error *e)
{
    char part[FILE_PATH_BYTES];
    if (path_join(part, path, "", e))
        return PT_FAILED;
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        int failed = mkdir(part, 0777) && errno != EEXIST, why = errno;
        if (failed && !path_is_folder(part)) { /* if the parent is read-only, errno is not EEXIST for an existing folder */
            errno = why;
            return pt_fail_errno(e, PT_FAILED, "%.400s: the folder cannot be made", part);
        }
        *p = '/';
    }
    if (!path_is_folder(path))
        return pt_fail(e, PT_FAILED, "%.400s: is a file, but a folder is needed", path);
    return 0;
}

static bool is_dot_name(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* Empties the folder open as `fd` (and closes it). Returns 0 or -1 with errno. */
static int folder_empty(int fd)
{
    DIR *folder = fdopendir(fd);
    if (!folder) {
        close(fd);
        return -1;
    }
    int failed = 0;
    struct dirent *entry;
    while (!failed && (errno = 0, entry = readdir(folder))) {
        if (is_dot_name(entry->d_name))
            continue;
        if (!unlinkat(fd, entry->d_name, 0) || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM) { /* unlink of a folder */
            failed = -1;
            break;
        }
        int below = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        failed = below < 0 || folder_empty(below) || unlinkat(fd, entry->d_name, AT_REMOVEDIR) ? -1 : 0;
    }
    if (!failed && errno)
        failed = -1;
    int error = errno;
    closedir(folder);
    errno = error;
    return failed;
}

int tree_remove(const char *path, pt_error *e)
{
    struct stat st;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%.400s: cannot be examined", path);
    if (S_ISDIR(st.st_mode)) {
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && !folder_empty(fd) && !rmdir(path))
            return 0;
    } else if (!unlink(path)) {
        return 0;
    }
    return errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%.400s: cannot be removed", path);
}

/* PATH MARK N for a number that no other writer has: containers that share a folder may have the same process numbers. */
static int temporary_name(char out[FILE_PATH_BYTES], const char *path, const char *mark, pt_error *e)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return pt_fail_errno(e, PT_FAILED, "%.400s: the system has no random number for a temporary name", path);
    if (snprintf(out, FILE_PATH_BYTES, "%s%s%llu", path, mark, (unsigned long long)number) >= FILE_PATH_BYTES)
        return pt_fail(e, PT_FAILED, "%.300s...: the path is too long; use a shorter one", path);
    return 0;
}

int tree_discard(const char *path, pt_error *e)
{
    char stage[FILE_PATH_BYTES];
    int failed = temporary_name(stage, path, ".tmp-", e);
    if (failed)
        return failed;
    if (rename(path, stage))
        failed = errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%.400s: cannot be removed", path);
    return failed ? failed : tree_remove(stage, e);
}

/* Syncs every file and folder below `path`, then `path` itself. */
static int tree_sync(const char *path, pt_error *e)
{
    DIR *folder = opendir(path);
    if (!folder)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", path);
    int status = 0;
    struct dirent *entry;
    while (!status && (entry = readdir(folder))) {
        char below[FILE_PATH_BYTES];
        struct stat st;
        if (is_dot_name(entry->d_name))
            continue;
        if ((status = path_join(below, path, entry->d_name, e)) || lstat(below, &st))
            break;
        if (S_ISDIR(st.st_mode))
            status = tree_sync(below, e);
        if (!S_ISREG(st.st_mode))
            continue;
        int fd = open(below, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fsync(fd))
            status = pt_fail_errno(e, PT_FAILED, "%.400s: cannot be synced to the disk", below);
        if (fd >= 0)
            close(fd);
    }
    closedir(folder);
    return status ? status : dir_sync(path, e);
}

/* Opens and locks a folder; -1 if another process holds the lock, or if the folder is gone. Without flock on the file system *locked is
 * false. */
static int folder_lock(const char *path, bool *locked)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    *locked = !flock(fd, LOCK_EX | LOCK_NB);
    struct stat mine, named;
    bool held_by_other = !*locked && errno == EWOULDBLOCK;
    if (held_by_other || fstat(fd, &mine) || stat(path, &named) || mine.st_ino != named.st_ino) {
        close(fd);
        return -1;
    }
    return fd;
}

static size_t digits_at_end(const char *s, size_t n)
{
    size_t digits = 0;
    while (digits < n && s[n - 1 - digits] >= '0' && s[n - 1 - digits] <= '9')
        digits++;
    return digits;
}

/* True if `name` is BASE MARK N, where digits at the end of BASE may differ from those of `base`. mark: ".tmp-" for staged folders. */
static bool is_marked_name(const char *name, const char *mark, const char *base)
{
    size_t n = strlen(name), number = digits_at_end(name, n), mark_n = strlen(mark);
    if (!number || n < number + mark_n || strncmp(name + n - number - mark_n, mark, mark_n))
        return false;
    n -= number + mark_n;
    size_t base_n = strlen(base), base_digits = digits_at_end(base, base_n);
    size_t digits = base_digits ? digits_at_end(name, n) : 0;
    size_t prefix = base_n - base_digits;
    return (digits != 0) == (base_digits != 0) && n - digits == prefix && !strncmp(name, base, prefix);
}

/* Renames a folder that was moved aside back, or removes it if its name is taken. */
static void put_back(const char *parent, const char *name)
{
    char aside[FILE_PATH_BYTES], path[FILE_PATH_BYTES];
    const char *mark = strstr(name, ".before-");
    if (!mark || path_join(aside, parent, name, NULL) || path_join(path, parent, name, NULL))
        return;
    path[strlen(path) - strlen(mark)] = 0;
    if (path_exists(path))
        tree_remove(aside, NULL);
    else
        (void)!rename(aside, path);
}

void dir_stages_put_back(const char *parent, const char *base)
{
    DIR *folder = opendir(parent);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (is_marked_name(entry->d_name, ".before-", base))
            put_back(parent, entry->d_name);
    if (folder)
        closedir(folder);
}

void dir_stages_clean(const char *parent, const char *base)
{
    dir_stages_put_back(parent, base);
    DIR *folder = opendir(parent);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[FILE_PATH_BYTES];
        bool locked;
        if (!is_marked_name(entry->d_name, ".tmp-", base) || path_join(path, parent, entry->d_name, NULL))
            continue;
        int fd = folder_lock(path, &locked);
        if (fd < 0)
            continue;
        if (locked)
            tree_remove(path, NULL);
        close(fd);
    }
    if (folder)
        closedir(folder);
}

int dir_stage_begin(dir_stage *s, const char *final_path, pt_error *e)
{
    s->lock = -1;
    char copy[FILE_PATH_BYTES], parent[FILE_PATH_BYTES], base[FILE_PATH_BYTES];
    size_t n = strlen(final_path);
    while (n > 1 && final_path[n - 1] == '/')
        n--;
    if (n + 32 >= FILE_PATH_BYTES)
        return pt_fail(e, PT_FAILED, "%.300s...: the path is too long; use a shorter one", final_path);
    snprintf(s->final_path, sizeof s->final_path, "%.*s", (int)n, final_path);
    memcpy(copy, s->final_path, sizeof copy);
    snprintf(base, sizeof base, "%s", basename(copy));
    memcpy(copy, s->final_path, sizeof copy);
    snprintf(parent, sizeof parent, "%s", dirname(copy));
    int status = dir_make(parent, e);
    if (status)
        return status;
    dir_stages_clean(parent, base);
    bool locked;
    for (int tries = 0; tries < 3 && s->lock < 0; tries++) { /* another writer may remove it before it is locked */
        status = temporary_name(s->path, s->final_path, ".tmp-", e);
        if (status)
            return status;
        if (mkdir(s->path, 0777))
            return pt_fail_errno(e, PT_FAILED, "%.400s: the folder cannot be made", s->path);
        s->lock = folder_lock(s->path, &locked);
    }
    if (s->lock < 0)
        return pt_fail(e, PT_FAILED, "%.400s: another process works on this folder: wait until it ends", s->path);
    return 0;
}

/* For file systems that cannot exchange two names (NFS, some of FUSE): renames the old folder to NAME.before-N for a moment. After a
 * crash in between, the next writer renames it back (dir_stages_clean). */
static int replace_in_two(const dir_stage *s)
{
    char aside[FILE_PATH_BYTES];
    if (temporary_name(aside, s->final_path, ".before-", NULL)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (rename(s->final_path, aside))
        return -1;
    if (rename(s->path, s->final_path)) {
        int error = errno;
        (void)!rename(aside, s->final_path);
        errno = error;
        return -1;
    }
    tree_remove(aside, NULL);
    return 0;
}

/* Renames the staged folder to its final name; an existing folder of that name gets the staged name. */
static int stage_rename(dir_stage *s, pt_error *e)
{
    int failed = 0;
    if (!path_is_folder(s->final_path)) {
        failed = rename(s->path, s->final_path);
    } else if (!renameat2(AT_FDCWD, s->path, AT_FDCWD, s->final_path, RENAME_EXCHANGE)) {
        tree_remove(s->path, NULL);
    } else {
        bool cannot = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM;
        failed = cannot ? replace_in_two(s) : -1;
    }
    if (!failed)
        return 0;
    return pt_fail_errno(e, PT_FAILED, "%.400s: the finished folder cannot be given this name: remove the existing one", s->final_path);
}

int dir_stage_commit(dir_stage *s, pt_error *e)
{
    int status = tree_sync(s->path, e);
    if (!status)
        status = stage_rename(s, e);
    if (status) {
        dir_stage_abort(s);
        return status;
    }
    close(s->lock);
    s->lock = -1;
    char copy[FILE_PATH_BYTES];
    memcpy(copy, s->final_path, sizeof copy);
    return dir_sync(dirname(copy), e);
}

void dir_stage_abort(dir_stage *s)
{
    if (s->lock < 0)
        return;
    tree_remove(s->path, NULL);
    close(s->lock);
    s->lock = -1;
}
