#include "train/checkpoints.h"

#include "train/options.h"

#include <dirent.h>
#include <string.h>

int64_t checkpoints_newest(const char *out, int64_t limit) { return step_folders_newest(out, CHECKPOINT_MARK, limit); }

int checkpoints_prune(const char *out, int64_t limit, int keep, int64_t best, pt_error *e)
{
    return step_folders_prune(out, CHECKPOINT_MARK, limit, keep, best, e);
}

/* Renames checkpoint-STEP to a name that is not a checkpoint's: checkpoint-STEP.old, or .old-2 ... */
static int put_away(const char *out, int64_t step, char name[64], pt_error *e)
{
    char from[FILE_PATH_BYTES], to[FILE_PATH_BYTES];
    int failed = step_folder_path(out, step, from, e);
    for (int i = 1; !failed; i++) {
        snprintf(name, 64, i == 1 ? "checkpoint-%lld.old" : "checkpoint-%lld.old-%d", (long long)step, i);
        failed = path_join(to, out, name, e);
        if (!failed && !path_exists(to))
            break;
    }
    if (!failed && rename(from, to))
        failed = pt_fail_errno(e, PT_FAILED, "%.400s: this checkpoint, of a later step than the one to resume from, cannot be renamed",
                               from);
    return failed;
}

int checkpoints_put_later_away(const char *out, int64_t limit, const pt_train_options *o, pt_error *e)
{
    char name[64];
    for (int64_t step = checkpoints_newest(out, INT64_MAX); step > limit; step = checkpoints_newest(out, INT64_MAX)) {
        int failed = put_away(out, step, name, e);
        if (failed)
            return failed;
        options_notice(o, "checkpoint-%lld is of a later step of the run that is resumed, which this run computes again: it is renamed to "
                          "%s", (long long)step, name);
    }
    return 0;
}

bool checkpoints_of_others(const char *out, char path[FILE_PATH_BYTES])
{
    DIR *d = opendir(out);
    bool found = false;
    for (struct dirent *entry; d && !found && (entry = readdir(d));) {
        char file[FILE_PATH_BYTES];
        found = step_folder_number(entry->d_name) >= 0 && !path_join(path, out, entry->d_name, NULL) &&
                !path_join(file, path, CHECKPOINT_MARK, NULL) && !path_exists(file);
    }
    if (d)
        closedir(d);
    return found;
}

int checkpoints_count(const char *out, int64_t limit)
{
    int n = 0;
    for (int64_t step = checkpoints_newest(out, limit); step >= 0; step = checkpoints_newest(out, step - 1))
        n++;
    return n;
}

void checkpoints_add_advice(const char *out, int64_t limit, pt_error *e)
{
    int64_t step = checkpoints_newest(out, limit);
    size_t n = e ? strlen(e->text) : 0;
    if (!e)
        return;
    if (step >= 0)
        snprintf(e->text + n, sizeof e->text - n, "; checkpoint-%lld is complete: continue from it with `resume`", (long long)step);
    else
        snprintf(e->text + n, sizeof e->text - n, "; the run has no checkpoint yet");
}

int checkpoints_find_newest(const char *out, char path[FILE_PATH_BYTES], pt_error *e)
{
    DIR *d = opendir(out);
    path[0] = 0;
    if (!d) /* an unreadable folder does not mean that there is none */
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot list the checkpoints in this folder", out);
    closedir(d);
    int64_t step = checkpoints_newest(out, INT64_MAX);
    return step < 0 ? 0 : step_folder_path(out, step, path, e);
}

int checkpoints_present(const char *path, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    int failed = path_join(file, path, CHECKPOINT_MARK, e);
    if (!failed && !path_exists(file))
        failed = pt_fail(e, PT_FAILED,
                         "%s is not a checkpoint: it has no trainer/trainer.json; give the folder checkpoint-STEP of a run, or `out` and "
                         "`resume`",
                         path);
    return failed;
}

void checkpoints_add_older(const char *out, const char *path, pt_error *e)
{
    const char *slash = strrchr(path, '/');
    const int64_t step = step_folder_number(slash ? slash + 1 : path), older = step > 0 ? checkpoints_newest(out, step - 1) : -1;
    const size_t n = e ? strlen(e->text) : 0;
    if (e && older >= 0)
        snprintf(e->text + n, sizeof e->text - n, "; continue from an older one with `resume_from` '%.300s/checkpoint-%lld'", out,
                 (long long)older);
}
