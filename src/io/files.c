#include "io/files.h"

#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

int path_join(char out[FILE_PATH_BYTES], const char *folder, const char *name, pt_error *e)
{
    int used = snprintf(out, FILE_PATH_BYTES, "%s%s%s", folder, slash_after(folder), name);
    if (used >= FILE_PATH_BYTES)
        return pt_fail(e, PT_FAILED, "%.300s...: the path is longer than %d bytes; use a shorter one", folder,
                       FILE_PATH_BYTES - 1);
    return 0;
}

bool path_is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool path_exists(const char *path)
{
    struct stat st;
    return !stat(path, &st);
}

bool disk_is_full_error(int error_number) { return error_number == ENOSPC || error_number == EDQUOT; }

/* After EFBIG. */
static int too_large(const char *path, const char *another, uint64_t bytes, pt_error *e)
{
    char need[32];
    struct rlimit limit;
    const bool limited = !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY;
    return pt_fail(e, PT_FAILED, "%.400s: takes %s%s, %s", path, another, size_format(need, bytes),
                   limited ? FILE_LIMIT_TEXT : "more than its file system allows in one file: choose another folder");
}

int file_no_room(const char *path, uint64_t bytes, pt_error *e)
{
    const int error = errno;
    char need[32];
    if (error == EFBIG)
        return too_large(path, "", bytes, e);
    size_format(need, bytes);
    errno = error;
    return pt_fail_errno(e, PT_FAILED, "%.400s: no room for its %s: make room, or choose another folder", path, need);
}

/* at = the path, or its nearest existing parent. */
static int find_existing(const char *path, char at[FILE_PATH_BYTES], struct stat *st, pt_error *e)
{
    snprintf(at, FILE_PATH_BYTES, "%s", path);
    while (stat(at, st)) {
        char parent[FILE_PATH_BYTES];
        memcpy(parent, at, sizeof parent);
        char *up = dirname(parent);
        if (errno != ENOENT || !strcmp(up, at))
            return pt_fail_errno(e, PT_FAILED, "%.400s: cannot find out how much space is free there", path);
        memmove(at, up, strlen(up) + 1);
    }
    return 0;
}

static int file_system_of(const char *path, struct statfs *fs, pt_error *e)
{
    char at[FILE_PATH_BYTES];
    struct stat st;
    int failed = find_existing(path, at, &st, e);
    while (!failed && statfs(at, fs))
        if (errno != EINTR)
            return pt_fail_errno(e, PT_FAILED, "%.400s: cannot find out how much space is free there", path);
    return failed;
}

bool disk_is_same(const char *a, const char *b)
{
    char at[FILE_PATH_BYTES];
    struct stat of_a, of_b;
    return !find_existing(a, at, &of_a, NULL) && !find_existing(b, at, &of_b, NULL) && of_a.st_dev == of_b.st_dev;
}

bool dir_find_existing(const char *path, char at[FILE_PATH_BYTES])
{
    struct stat st;
    return !find_existing(path, at, &st, NULL);
}

int disk_free_bytes(const char *path, uint64_t *bytes, pt_error *e)
{
    struct statfs fs;
    int failed = file_system_of(path, &fs, e);
    if (!failed)
        *bytes = (uint64_t)fs.f_bavail * (uint64_t)(fs.f_frsize ? fs.f_frsize : fs.f_bsize);
    return failed;
}

bool disk_is_memory(const char *path)
{
    struct statfs fs;
    if (file_system_of(path, &fs, NULL))
        return false;
    const uint32_t type = (uint32_t)fs.f_type;
    return type == TMPFS_MAGIC || type == RAMFS_MAGIC || type == HUGETLBFS_MAGIC;
}

/* Reports a failed write, from errno. left: bytes that were not yet written. */
static int write_failed(int fd, const char *path, uint64_t left, pt_error *e)
{
    int error = errno;
    char need[32], have[32];
    struct statvfs fs;
    if (error == EFBIG)
        return too_large(path, "another ", left, e);
    if (disk_is_full_error(error) && !fstatvfs(fd, &fs)) {
        uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        char only[48] = "";
        if (free_bytes < left) /* else a quota, or not a disk */
            snprintf(only, sizeof only, ", but only %s are free", size_format(have, free_bytes));
        return pt_fail(e, PT_FAILED, "%.400s: the disk is full: %s were still to be written%s: make room, or choose another folder", path,
                       size_format(need, left), only);
    }
    errno = error;
    return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be written", path);
}

int fd_write_all(int fd, const void *data, size_t n, const char *path, pt_error *e)
{
    for (const char *p = data; n;) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return write_failed(fd, path, n, e);
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

int fd_pwrite_all(int fd, const void *data, size_t n, uint64_t offset, const char *path, pt_error *e)
{
    for (const char *p = data; n;) {
        ssize_t done = pwrite(fd, p, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return write_failed(fd, path, n, e);
        p += done;
        n -= (size_t)done;
        offset += (uint64_t)done;
    }
    return 0;
}

int fd_pread_all(int fd, void *data, size_t n, uint64_t offset, const char *path, pt_error *e)
{
    for (char *p = data; n;) {
        ssize_t done = pread(fd, p, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be read at byte %llu", path,
                                 (unsigned long long)offset);
        if (!done)
            return pt_fail(e, PT_FAILED, "%.400s: the file ends at byte %llu, but %zu more bytes were expected: it is cut off or was "
                                         "changed while in use; get another copy", path, (unsigned long long)offset, n);
        p += done;
        n -= (size_t)done;
        offset += (uint64_t)done;
    }
    return 0;
}

/* Reads up to `capacity` bytes from the current offset, fewer at the end of the file. */
static int fd_read_up_to(int fd, char *data, size_t capacity, size_t *n, const char *path, pt_error *e)
{
    for (*n = 0; *n < capacity;) {
        ssize_t done = read(fd, data + *n, capacity - *n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be read", path);
        if (!done)
            break;
        *n += (size_t)done;
    }
    return 0;
}

int file_open_regular(const char *path, struct stat *st, pt_error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed = 0;
    if (fd < 0 || fstat(fd, st))
        failed = pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", path);
    else if (!S_ISREG(st->st_mode))
        failed = pt_fail(e, PT_FAILED, "%.400s: is %s, but a file is needed", path,
                         S_ISDIR(st->st_mode) ? "a folder" : "no regular file");
    if (failed && fd >= 0)
        close(fd);
    return failed ? -1 : fd;
}

int file_read_all(const char *path, uint64_t limit, char **data, size_t *n, pt_error *e)
{
    *data = NULL;
    struct stat st;
    int fd = file_open_regular(path, &st, e), status = 0;
    if (fd < 0)
        return PT_FAILED;
    if ((uint64_t)st.st_size > limit)
        status = pt_fail(e, PT_FAILED, "%.400s: has %llu bytes; at most %llu are read", path,
                         (unsigned long long)st.st_size, (unsigned long long)limit);
    size_t capacity = status ? 0 : (size_t)st.st_size + 1;
    char *text = status ? NULL : malloc(capacity);
    if (!status && !text)
        status = pt_fail(e, PT_FAILED, "%.400s: no memory for its %zu bytes", path, capacity);
    if (!status)
        status = fd_read_up_to(fd, text, capacity, n, path, e);
    if (!status && *n == capacity)
        status = pt_fail(e, PT_FAILED, "%.400s: grew while it was read; try again", path);
    close(fd);
    if (status) {
        free(text);
        return status;
    }
    text[*n] = 0;
    *data = text;
    return 0;
}

int file_may_replace(const char *path, const char *option, const char *begin, const char *what, pt_error *e)
{
    enum { MOST = 64 };
    char start[MOST];
    struct stat st;
    const size_t n = strlen(begin);
    size_t has = 0;
    if (path_is_folder(path))
        return pt_fail(e, PT_USAGE, "`%s` %.400s: this is a folder, but a file is to be written: name a file in it", option, path);
    if (stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size)
        return 0;
    const int fd = file_open_regular(path, &st, e);
    if (fd < 0)
        return PT_FAILED;
    int failed = fd_read_up_to(fd, start, n < MOST ? n : MOST, &has, path, e);
    close(fd);
    if (failed || (has == n && !memcmp(start, begin, n)))
        return failed;
    return pt_fail(e, PT_FAILED, "%.400s: this file exists and is not a %s: give a new `%s`", path, what, option);
}

int dir_sync(const char *path, pt_error *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", path);
    int failed = fsync(fd) && errno != EINVAL && errno != EROFS; /* some file systems cannot sync folders */
    if (failed)
        pt_fail_errno(e, PT_FAILED, "%.400s: cannot be synced to the disk", path);
    close(fd);
    return failed ? PT_FAILED : 0;
}

static int parent_sync(const char *path, pt_error *e)
{
    char copy[FILE_PATH_BYTES];
    snprintf(copy, sizeof copy, "%s", path);
    return dir_sync(dirname(copy), e);
}

/* Opens `path` for writing, locks it, and checks that the name still refers to the locked file (the previous holder may have renamed it).
 * Returns the descriptor, or -1 with errno. */
static int open_locked(const char *path, int lock_flags)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
        int locked;
        while ((locked = flock(fd, lock_flags)) && errno == EINTR) {}
        if (locked && errno == EWOULDBLOCK) {
            close(fd);
            errno = EWOULDBLOCK;
            return -1;
        }
        struct stat mine, named;
        if (!fstat(fd, &mine) && !stat(path, &named) && mine.st_ino == named.st_ino && mine.st_dev == named.st_dev)
            return fd;
        close(fd);
    }
}

/* Syncs the staged file `temporary`, open as `fd`, and renames it to `path`. */
static int file_publish(int fd, const char *temporary, const char *path, pt_error *e)
{
    if (fsync(fd))
        return write_failed(fd, path, 0, e);
    if (rename(temporary, path))
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be replaced", path);
    return parent_sync(path, e);
}

/* A pipe, a terminal or a name in /dev (/dev/stdout may be a regular file): written to, not replaced. A block device is not a stream. */
static bool is_stream(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return false;
    const bool named_there = !strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9);
    return S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) || (S_ISREG(st.st_mode) && named_there);
}

int file_stage_begin(file_stage *s, const char *path, pt_error *e)
{
    s->fd = -1;
    s->stream = is_stream(path);
    if (snprintf(s->path, sizeof s->path, "%s", path) >= FILE_PATH_BYTES ||
        snprintf(s->temporary, sizeof s->temporary, "%s.tmp", path) >= FILE_PATH_BYTES)
        return pt_fail(e, PT_FAILED, "%.300s...: the path is too long; use a shorter one", path);
    s->fd = s->stream ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY) : open_locked(s->temporary, LOCK_EX);
    if (s->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be %s", s->stream ? path : s->temporary, s->stream ? "opened" : "created");
    if (!s->stream && ftruncate(s->fd, 0)) {
        pt_fail_errno(e, PT_FAILED, "%.400s: cannot be written", s->temporary);
        file_stage_abort(s);
        return PT_FAILED;
    }
    return 0;
}

int file_stage_write(file_stage *s, const void *data, size_t n, pt_error *e) { return fd_write_all(s->fd, data, n, s->path, e); }

int file_stage_commit(file_stage *s, pt_error *e)
{
    const int status = s->stream ? 0 : file_publish(s->fd, s->temporary, s->path, e);
    if (!status) {
        close(s->fd);
        s->fd = -1;
    }
    return status;
}

void file_stage_abort(file_stage *s)
{
    if (s->fd < 0)
        return;
    if (!s->stream)
        unlink(s->temporary);
    close(s->fd);
    s->fd = -1;
}

int file_write_atomic(const char *path, const void *data, size_t n, pt_error *e)
{
    file_stage s;
    int status = file_stage_begin(&s, path, e);
    if (!status)
        status = file_stage_write(&s, data, n, e);
    if (!status)
        status = file_stage_commit(&s, e);
    file_stage_abort(&s);
    return status;
}

int file_copy_atomic(const char *from, const char *to, pt_error *e)
{
    struct stat st;
    int source = file_open_regular(from, &st, e);
    if (source < 0)
        return PT_FAILED;
    file_stage s;
    char buffer[65536];
    int status = file_stage_begin(&s, to, e);
    size_t n = sizeof buffer;
    while (!status && n == sizeof buffer) {
        status = fd_read_up_to(source, buffer, sizeof buffer, &n, from, e);
        if (!status)
            status = file_stage_write(&s, buffer, n, e);
    }
    close(source);
    if (!status)
        status = file_stage_commit(&s, e);
    file_stage_abort(&s);
    return status;
}

int file_write_json(const char *path, const json_t *value, pt_error *e)
{
    char *text = json_dumps(value, JSON_INDENT(2));
    if (!text)
        return pt_fail(e, PT_FAILED, "%.400s: the JSON for it cannot be put in text: no memory, or a number that "
                       "is not finite", path);
    size_t n = strlen(text);
    text[n] = '\n'; /* in place of the NUL */
    int status = file_write_atomic(path, text, n + 1, e);
    free(text);
    return status;
}

int dir_lock_take(dir_lock *l, const char *folder, pt_error *e)
{
    l->fd = -1;
    if (path_join(l->path, folder, ".lock", e))
        return PT_FAILED;
    l->fd = open_locked(l->path, LOCK_EX | LOCK_NB);
    char text[32] = "";
    if (l->fd < 0 && errno == EWOULDBLOCK) {
        int fd = open(l->path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        text[n > 0 ? n : 0] = 0;
        if (fd >= 0)
            close(fd);
        const long pid = strtol(text, NULL, 10); /* 0: not yet written */
        snprintf(text, sizeof text, pid > 0 ? " (pid %ld)" : "", pid);
        return pt_fail(e, PT_FAILED, "%.400s: another run%s is writing here: wait until it ends, or choose another `out`", folder, text);
    }
    if (l->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot write into this folder", folder);
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(l->fd, 0) || fd_pwrite_all(l->fd, text, (size_t)n, 0, l->path, e)) {
        pt_fail_errno(e, PT_FAILED, "%.400s: cannot be written", l->path);
        dir_lock_release(l);
        return PT_FAILED;
    }
    return 0;
}

void dir_lock_release(dir_lock *l)
{
    if (l->fd < 0)
        return;
    unlink(l->path);
    close(l->fd);
    l->fd = -1;
}
