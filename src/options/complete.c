/* complete.c - what options of training leave open: the run's folder, and options of a run that is resumed. */
#include "options/run_file.h"

#include "base/error.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static bool has(const char *folder, const char *name)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return !access(path, F_OK);
}

/* runs/MODEL-N with the first free N. */
static void free_folder(const char *model, char out[PATH_BYTES])
{
    char name[256];
    snprintf(name, sizeof name, "%s", model ? model : "model");
    for (size_t n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
        name[n - 1] = 0;
    const char *slash = strrchr(name, '/'), *base = slash && slash[1] ? slash + 1 : name;
    struct stat st;
    for (int i = 1; i < 100000; i++) {
        snprintf(out, PATH_BYTES, "runs/%s-%d", base[0] && strcmp(base, ".") ? base : "model", i);
        if (stat(out, &st) < 0)
            break;
    }
}

/* A run that resumes from a checkpoint writes to the checkpoint's parent folder: by the path as given if that is a run's folder, because
 * checkpoint-N may be a link to a larger disk; otherwise by the real path. */
static void folder_above(const char *checkpoint, char out[PATH_BYTES])
{
    char copy[PATH_BYTES], real[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", checkpoint);
    const bool named = strncmp(basename(copy), "checkpoint-", 11) == 0;
    snprintf(copy, sizeof copy, "%s", checkpoint);
    snprintf(out, PATH_BYTES, "%s", dirname(copy));
    if (!(named && has(out, "metrics.jsonl")) && realpath(checkpoint, real))
        snprintf(out, PATH_BYTES, "%s", dirname(real));
}

/* The folder of a run stands for its newest checkpoint, and its run.yaml for the options that are not given. */
static int resume_run(pt_options *options, pt_error *e)
{
    pt_train_options *o = pt_options_train(options);
    char out[PATH_BYTES] = "", file[PATH_BYTES + 16];
    const char *from = o->resume_from;
    if (!o->out && from && has(from, "metrics.jsonl") && !has(from, "trainer")) {
        snprintf(out, sizeof out, "%s", from);
        o->resume_from = from = NULL;
    } else if (!o->out && from) {
        folder_above(from, out);
    }
    int failed = out[0] ? pt_options_set(options, "out", out, e) : 0;
    if (failed)
        return failed;
    if (!o->out)
        return pt_fail(e, PT_USAGE, "`resume` needs the folder of the run to continue: give `resume` DIR, or `out` DIR");
    if (o->model)
        return 0;
    if (from && access(from, F_OK))
        return pt_fail(e, PT_USAGE, "`resume` %.400s: there is no such folder: give that of a run or of a checkpoint", from);
    snprintf(file, sizeof file, "%s/" RUN_FILE, o->out);
    if (access(file, F_OK))
        return pt_fail(e, PT_USAGE, "%.400s is missing, which says how the run was started: give `resume` the folder of a run, or its "
                                    "`model`, `data` and other options too", file);
    return pt_options_read(options, file, e);
}

int pt_options_complete(pt_options *o, pt_error *e)
{
    char out[PATH_BYTES];
    pt_train_options *t = pt_options_train(o);
    if (!t)
        return o ? pt_fail(e, PT_USAGE, "pt_options_complete: the options must be of train")
                 : pt_fail_null(e, "pt_options_complete", "the options");
    const int failed = t->resume ? resume_run(o, e) : 0;
    if (failed)
        return failed;
    if (pt_options_given(o, "steps") && pt_options_given(o, "epochs"))
        return pt_fail(e, PT_USAGE, "`steps` and `epochs` both say how long to train: give one of them");
    if (t->out)
        return 0;
    free_folder(t->model, out);
    return pt_options_set(o, "out", out, e);
}
