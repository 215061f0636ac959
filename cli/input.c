#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int input_read(const char *path, size_t most, char **text, size_t *bytes, pt_error *e)
{
    bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    FILE *f = standard ? stdin : fopen(path, "rb");
    size_t capacity = 0;
    int failed = 0;
    *text = NULL;
    *bytes = 0;
    if (!f)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot open this file", path);
    while (!failed && !feof(f)) {
        if (*bytes == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            char *larger = realloc(*text, capacity);
            if (!larger) {
                failed = pt_fail(e, PT_FAILED, "%s: out of memory after %zu bytes", name, *bytes);
                break;
            }
            *text = larger;
        }
        *bytes += fread(*text + *bytes, 1, capacity - *bytes, f);
        if (ferror(f))
            failed = pt_fail_errno(e, PT_FAILED, "%s: cannot read after %zu bytes", name, *bytes);
        else if (*bytes > most)
            failed =
                pt_fail(e, PT_FAILED, "%s: the text has more than %zu MiB, the most that is read; give a shorter text", name, most >> 20);
    }
    if (!standard)
        fclose(f);
    return failed;
}

int output_finish(pt_error *e)
{
    int failed = fflush(stdout), lost = ferror(stdout);
    if (failed)
        return pt_fail_errno(e, PT_FAILED, "the result could not be written to standard output");
    if (lost) /* errno of the failed write is lost too */
        return pt_fail(
            e, PT_FAILED,
            "not all of the result could be written to standard output: the disk is full, or the program that reads it has ended");
    return 0;
}
