/* temporary.c - where temporary files go, and unnamed ones (see files.h). */
#include "io/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

const char *dir_temporary(void)
{
    const char *named = getenv("TMPDIR");
    return named && *named ? named : "/var/tmp";
}

int dir_check_temporary(pt_error *e)
{
    const char *named = getenv("TMPDIR");
    if (!named || !*named || path_is_folder(named))
        return 0;
    return pt_fail(e, PT_FAILED, "TMPDIR is %.300s, but there is no such folder: set it to an existing folder, or unset it to use /var/tmp",
                   named);
}

int file_unnamed(const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    if (!folder)
        folder = dir_temporary();
    int failed = path_join(path, folder, "protrain-XXXXXX", e);
    if (failed)
        return failed;
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot write a temporary file here", folder);
    unlink(path);
    return fd;
}
