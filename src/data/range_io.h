/* range_io.h - reading or writing all of a range, or an error that names file and byte. */
#ifndef PT_DATA_RANGE_IO_H
#define PT_DATA_RANGE_IO_H

#include "base/error.h"

#include <errno.h>
#include <stdint.h>
#include <stddef.h>
#include <unistd.h>

static inline int read_at(int fd, const char *path, uint64_t offset, void *out, size_t n, pt_error *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pt_fail_errno(e, PT_FAILED, "%s: cannot read %zu bytes at byte %llu", path, n - done,
                                 (unsigned long long)(offset + done));
        if (got == 0)
            return pt_fail(e, PT_FAILED, "%s: ends at byte %llu, where %zu more bytes were expected: it was "
                           "changed while in use, or damaged", path, (unsigned long long)(offset + done),
                           n - done);
        done += (size_t)got;
    }
    return 0;
}

static inline int write_at(int fd, const char *path, uint64_t offset, const void *p, size_t n, pt_error *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)p + done, n - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return pt_fail_errno(e, PT_FAILED, "%s: cannot write %zu bytes at byte %llu", path, n - done,
                                 (unsigned long long)(offset + done));
        done += (size_t)put;
    }
    return 0;
}

#endif
