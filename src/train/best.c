#include "train/best.h"

#include "train/checkpoints.h"
#include "train/options.h"
#include "train/ranks.h"

#include <dirent.h>
#include <math.h>

double best_value(const pt_train_options *o, const pt_step *s)
{
    return o->keep_best == PT_KEEP_BEST_REWARD_ACCURACY ? s->eval_reward_accuracy
         : o->keep_best == PT_KEEP_BEST_REWARD_MARGIN   ? s->eval_reward_margin
         : o->keep_best == PT_KEEP_BEST_ACCURACY        ? s->eval_accuracy
                                                        : s->eval_loss;
}

/* A value that is not finite is worse than any. */
static bool is_better(const pt_train_options *o, double value, double than)
{
    if (!isfinite(value) || !isfinite(than))
        return isfinite(value);
    return o->keep_best > PT_KEEP_BEST_EVAL_LOSS ? value > than : value < than;
}

void best_note(counters *at, const pt_train_options *o, int64_t step, double eval_loss, double value)
{
    at->eval_loss = eval_loss;
    at->since_best++;
    if (at->best_step && !is_better(o, value, at->best_value))
        return;
    at->best_value = value;
    at->best_eval = eval_loss;
    at->best_step = step;
    at->since_best = 0;
}

bool best_is_now(const trainer *t)
{
    return t->job.o.keep_best && t->at.best_step && t->at.best_step == t->at.step && isfinite(t->at.best_value);
}

bool best_is_earlier(const trainer *t) { return t->job.o.keep_best && t->at.best_step && t->at.best_step < t->at.step; }

bool best_is_past(const trainer *t) { return t->job.o.patience && t->at.since_best >= t->job.o.patience; }

int64_t best_due(const trainer *t)
{
    const int64_t every = t->job.o.eval_every;
    return t->job.o.keep_best && every ? t->job.steps / every - t->at.step / every : 0;
}

static void forget(trainer *t, const char *instead)
{
    options_notice(&t->job.o, "checkpoint-%lld, of the best evaluation, is not in %.600s: %s", (long long)t->at.best_step, t->out.path,
                   instead);
    t->at.best_step = t->at.since_best = 0;
}

static bool is_there(const trainer *t) { return checkpoints_newest(t->out.path, t->at.best_step) == t->at.best_step; }

void best_look_for(trainer *t)
{
    if (best_is_earlier(t) && !is_there(t))
        forget(t, "the best evaluation from here on counts");
}

int best_check(trainer *t, pt_error *e)
{
    if (ranks_lead(t) && best_is_earlier(t) && !is_there(t))
        forget(t, "the model of the last step is exported");
    return ranks_share(t, &t->at, sizeof t->at, e);
}

int best_copy(const trainer *t, const char *folder, pt_error *e)
{
    char from[FILE_PATH_BYTES], a[FILE_PATH_BYTES], b[FILE_PATH_BYTES];
    int failed = step_folder_path(t->out.path, t->at.best_step, from, e);
    DIR *d = failed ? NULL : opendir(from);
    if (!failed && !d)
        return pt_fail_errno(e, PT_FAILED, "%.400s cannot be read", from);
    for (struct dirent *entry; !failed && (entry = readdir(d));) {
        failed = path_join(a, from, entry->d_name, e);
        if (!failed)
            failed = path_join(b, folder, entry->d_name, e);
        if (!failed && !path_is_folder(a))
            failed = file_copy_atomic(a, b, e);
    }
    if (d)
        closedir(d);
    return failed;
}
