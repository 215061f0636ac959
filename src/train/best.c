#include "train/best.h"

#include "train/checkpoints.h"
#include "train/options.h"
#include "train/ranks.h"

#include <dirent.h>
#include <math.h>

double best_value(const pt_train_options *o, const pt_step *step)
{
    return o->keep_best == PT_KEEP_BEST_REWARD_ACCURACY ? step->eval_reward_accuracy
         : o->keep_best == PT_KEEP_BEST_REWARD_MARGIN   ? step->eval_reward_margin
         : o->keep_best == PT_KEEP_BEST_ACCURACY        ? step->eval_accuracy
                                                        : step->eval_loss;
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

bool best_is_now(const trainer *trainer)
{
    return trainer->job.o.keep_best && trainer->at.best_step && trainer->at.best_step == trainer->at.step &&
           isfinite(trainer->at.best_value);
}

bool best_is_earlier(const trainer *trainer)
{
    return trainer->job.o.keep_best && trainer->at.best_step && trainer->at.best_step < trainer->at.step;
}

bool best_is_past(const trainer *trainer) { return trainer->job.o.patience && trainer->at.since_best >= trainer->job.o.patience; }

int64_t best_due(const trainer *trainer)
{
    const int64_t every = trainer->job.o.eval_every;
    return trainer->job.o.keep_best && every ? trainer->job.steps / every - trainer->at.step / every : 0;
}

static void forget(trainer *trainer, const char *instead)
{
    options_notice(&trainer->job.o, "checkpoint-%lld, of the best evaluation, is not in %.600s: %s", (long long)trainer->at.best_step,
                   trainer->out.path, instead);
    trainer->at.best_step = trainer->at.since_best = 0;
}

static bool is_there(const trainer *trainer)
{
    return checkpoints_newest(trainer->out.path, trainer->at.best_step) == trainer->at.best_step;
}

void best_look_for(trainer *trainer)
{
    if (best_is_earlier(trainer) && !is_there(trainer))
        forget(trainer, "the best evaluation from here on counts");
}

int best_check(trainer *trainer, pt_error *e)
{
    if (ranks_lead(trainer) && best_is_earlier(trainer) && !is_there(trainer))
        forget(trainer, "the model of the last step is exported");
    return ranks_share(trainer, &trainer->at, sizeof trainer->at, e);
}

int best_copy(const trainer *trainer, const char *folder, pt_error *e)
{
    char from[FILE_PATH_BYTES], a[FILE_PATH_BYTES], b[FILE_PATH_BYTES];
    int failed = step_folder_path(trainer->out.path, trainer->at.best_step, from, e);
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
