/* disk_file.c - files of the disk tier. */
#include "io/disk_parts.h"

#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_room(const disk_file *f, int error, pt_error *e)
{
    uint64_t free_bytes = 0;
    char need[32], have[32];
    if (error == EFBIG)
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "%.400s: the disk tier needs a file of %s, " FILE_LIMIT_TEXT ", or give a smaller `disk_memory`",
                       f->name, size_format(need, f->bytes));
    if (error && !disk_is_full_error(error)) {
        errno = error;
        return pt_fail_errno(e, PT_FAILED, "%.400s: the scratch file of %s cannot be allocated", f->name,
                             size_format(need, f->bytes));
    }
    if (error == EDQUOT) /* a quota: the disk's free space does not matter */
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "%.400s: the disk tier needs %s, more than is left of your quota on that disk: remove files there, or give a "
                       "smaller `disk_memory` or another `disk_path`",
                       f->name, size_format(need, f->bytes));
    disk_free_bytes(f->name, &free_bytes, NULL);
    return pt_fail(e, PT_DOES_NOT_FIT,
                   "%.400s: the disk tier needs %s, but only %s are free: make room, or give a smaller `disk_memory` or another "
                   "`disk_path`",
                   f->name, size_format(need, f->bytes), size_format(have, free_bytes));
}

uint64_t disk_file_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

int disk_room_bytes(const char *folder, uint64_t *bytes, pt_error *e)
{
    const uint64_t limit = disk_file_limit();
    int failed = disk_free_bytes(folder, bytes, e);
    if (!failed && limit < *bytes)
        *bytes = limit;
    return failed;
}

/* O_TMPFILE, or create and unlink where the file system lacks it. */
static int open_nameless(const char *folder)
{
    char path[FILE_PATH_BYTES];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || path_join(path, folder, ".scratch-XXXXXX", NULL))
        return fd;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static int allocate(const disk_file *f, uint64_t from, uint64_t to)
{
    int error = 0;
    while (from < to && (error = posix_fallocate(f->fd, (off_t)from, (off_t)(to - from))) == EINTR) {}
    return error;
}

/* All blocks of the file but those of the holes. */
static int allocate_all(const disk_file *f, pt_error *e)
{
    const disk_options *o = &f->options;
    uint64_t at = 0;
    int error = 0;
    for (int i = 0; i < o->holes_n && !error; at = o->holes[i].offset + o->holes[i].bytes, i++)
        error = allocate(f, at, o->holes[i].offset);
    if (!error)
        error = allocate(f, at, f->bytes);
    if (!error && o->holes_n && ftruncate(f->fd, (off_t)f->bytes)) /* it may end with one */
        error = errno;
    return error ? no_room(f, error, e) : 0;
}

/* Creates an unnamed file. */
static int scratch_create(disk_file *f, pt_error *e)
{
    uint64_t free_bytes;
    f->made_folder = !path_exists(f->name);
    if (dir_make(f->name, e) || disk_free_bytes(f->name, &free_bytes, e))
        return PT_FAILED;
    if (f->used > free_bytes)
        return no_room(f, 0, e);
    f->fd = open_nameless(f->name);
    if (f->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot create a file for the disk tier in this folder", f->name);
    return allocate_all(f, e);
}

/* Opens the file of this name, or creates it. */
static int named_open(disk_file *f, pt_error *e)
{
    f->fd = open(f->name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot create this file of the disk tier", f->name);
    (void)flock(f->fd, LOCK_SH | LOCK_NB); /* some file systems have no locks */
    return allocate_all(f, e);
}

/* Switches to O_DIRECT, and tests it by a first transfer. */
static bool direct_try(const disk_file *f, void *block)
{
    int flags = fcntl(f->fd, F_GETFL);
    if (f->bytes < DISK_ALIGN || fcntl(f->fd, F_SETFL, flags | O_DIRECT))
        return false;
    if (pread(f->fd, block, DISK_ALIGN, 0) == DISK_ALIGN)
        return true;
    fcntl(f->fd, F_SETFL, flags);
    return false;
}

static void take_options(disk_file *f, const disk_options *options)
{
    if (options)
        f->options = *options;
    if (!f->options.piece_bytes)
        f->options.piece_bytes = 512 << 10;
    f->options.piece_bytes = disk_align(f->options.piece_bytes < 1 << 30 ? f->options.piece_bytes : 1 << 30);
    if (f->options.depth <= 0)
        f->options.depth = 16;
    if (f->options.depth > DISK_DEPTH_MAX)
        f->options.depth = DISK_DEPTH_MAX;
}

static int file_open(const char *name, bool named, uint64_t bytes, const disk_options *options, disk_file **out, pt_error *e)
{
    *out = NULL;
    if (bytes > (uint64_t)INT64_MAX - DISK_ALIGN)
        return pt_fail(e, PT_USAGE, "a scratch file of %llu bytes is more than a file can have",
                       (unsigned long long)bytes);
    disk_file *f = calloc(1, sizeof *f);
    void *block = aligned_alloc(DISK_ALIGN, DISK_ALIGN);
    if (!f || !block) {
        free(f);
        free(block);
        return pt_fail(e, PT_FAILED, "no memory for the disk tier's %d bytes of state", DISK_ALIGN);
    }
    take_options(f, options);
    f->fd = -1;
    f->bytes = f->used = disk_align(bytes);
    f->named = named;
    for (int i = 0; i < f->options.holes_n; i++)
        f->used -= f->options.holes[i].bytes;
    int status = 0;
    if (snprintf(f->name, sizeof f->name, "%s", name) >= (int)sizeof f->name)
        status = pt_fail(e, PT_FAILED, "%.200s...: the path of the disk tier is too long; use a shorter one", name);
    if (!status)
        status = named ? named_open(f, e) : scratch_create(f, e);
    if (!status && !f->options.no_direct)
        f->direct = direct_try(f, block);
    f->options.holes = NULL;
    free(block);
    if (status) {
        disk_close(f);
        return status;
    }
    *out = f;
    return 0;
}

int disk_open(const char *folder, uint64_t bytes, const disk_options *options, disk_file **out, pt_error *e)
{
    return file_open(folder, false, bytes, options, out, e);
}

int disk_open_named(const char *path, uint64_t bytes, const disk_options *options, disk_file **out, pt_error *e)
{
    return file_open(path, true, bytes, options, out, e);
}

int disk_sync(disk_file *f, pt_error *e)
{
    return fdatasync(f->fd) ? pt_fail_errno(e, PT_FAILED, "%.400s: what was written cannot be made durable: check this disk", f->name) : 0;
}

void disk_close(disk_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    if (f->made_folder)
        rmdir(f->name); /* fails, as it should, if it contains anything else */
    free(f);
}

uint64_t disk_bytes(const disk_file *f) { return f->bytes; }
bool disk_is_direct(const disk_file *f) { return f->direct; }

