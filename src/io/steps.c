#include "io/steps.h"

#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- checkpoint-STEP ---- */

int step_folder_path(const char *out, int64_t step, char path[FILE_PATH_BYTES], pt_error *e)
{
    char name[48];
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    return path_join(path, out, name, e);
}

int64_t step_folder_number(const char *name)
{
    static const char prefix[] = "checkpoint-";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return -1;
    const char *digits = name + sizeof prefix - 1;
    size_t n = strspn(digits, "0123456789");
    return n && n < 18 && !digits[n] && (n == 1 || digits[0] != '0') ? strtoll(digits, NULL, 10) : -1;
}

int64_t step_folders_newest(const char *out, const char *mark, int64_t limit)
{
    DIR *d = opendir(out);
    int64_t newest = -1;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char path[FILE_PATH_BYTES * 2];
        int64_t step = step_folder_number(entry->d_name);
        snprintf(path, sizeof path, "%s/%s/%s", out, entry->d_name, mark);
        if (step < 0 || step > limit || !path_exists(path))
            continue;
        newest = step > newest ? step : newest;
    }
    if (d)
        closedir(d);
    return newest;
}

int step_folders_prune(const char *out, const char *mark, int64_t limit, int keep, int64_t also, pt_error *e)
{
    for (int kept = 0; keep; kept++) {
        char path[FILE_PATH_BYTES];
        int64_t step = step_folders_newest(out, mark, limit);
        if (step < 0)
            break;
        limit = step - 1;
        if (kept < keep || step == also)
            continue;
        int failed = step_folder_path(out, step, path, e);
        if (!failed)
            failed = tree_discard(path, e);
        if (failed)
            return failed;
    }
    return 0;
}

/* ---- metrics.jsonl ---- */

/* Bytes of the leading lines whose step is at most `step`, without an incomplete last line. */
static int lines_until(const char *path, int64_t step, step_line_read *read, void *arg, bool *there, off_t *bytes, pt_error *e)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    *there = false;
    if (!f)
        return errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    while ((n = getline(&line, &capacity, f)) > 0) {
        *there = true;
        json_t *object = line[n - 1] == '\n' && !json_text_check(path, line, (size_t)n, NULL) ? json_loads(line, 0, NULL) : NULL;
        json_int_t at = json_integer_value(json_object_get(object, "step"));
        const bool good = object && at >= 1 && at <= step;
        if (good && read)
            read(arg, at, object);
        json_decref(object);
        if (!good)
            break;
        *bytes += n;
    }
    const bool unreadable = ferror(f);
    if (unreadable)
        pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    free(line);
    fclose(f);
    return unreadable ? PT_FAILED : 0;
}

int step_lines_open(step_lines *l, const char *out, int64_t step, step_line_read *read, void *arg, bool *there, pt_error *e)
{
    int failed = path_join(l->path, out, "metrics.jsonl", e);
    off_t bytes = 0;
    if (!failed)
        failed = lines_until(l->path, step, read, arg, there, &bytes, e);
    if (failed)
        return failed;
    l->file = fopen(l->path, "ae");
    if (!l->file)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be written", l->path);
    if (ftruncate(fileno(l->file), bytes) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot truncate the file after step %lld", l->path, (long long)step);
    return 0;
}

off_t step_lines_length(const step_lines *l)
{
    struct stat st;
    return fstat(fileno(l->file), &st) || !S_ISREG(st.st_mode) ? -1 : st.st_size;
}

int step_lines_flush(const step_lines *l, off_t bytes, pt_error *e)
{
    if (!fflush(l->file) && !ferror(l->file))
        return 0;
    int failed = pt_fail_errno(e, PT_FAILED, "%s cannot be written", l->path);
    __fpurge(l->file);
    clearerr(l->file);
    if (bytes >= 0 && ftruncate(fileno(l->file), bytes))
        return failed; /* the line is incomplete, and a resumed run removes it */
    return failed;
}

/* The file may be a pipe, which cannot be synced. */
int step_lines_sync(const step_lines *l, pt_error *e)
{
    bool failed = l->file && (fflush(l->file) || (fsync(fileno(l->file)) && errno != EINVAL && errno != EROFS));
    return failed ? pt_fail_errno(e, PT_FAILED, "%s cannot be synced to the disk", l->path) : 0;
}

void step_lines_close(step_lines *l)
{
    if (l->file)
        fclose(l->file);
    l->file = NULL;
}
