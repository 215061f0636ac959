#include "train/options.h"

#include "comm/comm.h"
#include "data/files.h"
#include "io/files.h"
#include "optimizer/optimizer.h"
#include "task/task.h"
#include "io/files.h"
#include "profile/profile.h"
#include "device/device.h"
#include "text/utf8.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

bool options_evaluate(const pt_train_options *o)
{
    return o->eval_data_n > 0 || o->eval_split > 0 || (o->data && data_files_beside(o->data, o->data_n));
}

static int check_best(const pt_train_options *o, pt_error *e)
{
    if ((o->keep_best || o->patience) && !options_evaluate(o))
        return pt_fail(e, PT_USAGE, "`%s` is given, but there are no data to evaluate on: give `eval_data` or `eval_split` too",
                       o->keep_best ? "keep_best" : "patience");
    const bool by_accuracy = o->keep_best == PT_KEEP_BEST_ACCURACY;
    if (by_accuracy && task_of(o)->scores != SCORES_LABELS)
        return pt_fail(e, PT_USAGE, "`keep_best` %s is of `task` classify: give `keep_best` %s", best_metric(o),
                       task_of(o)->pairs ? "eval_reward_accuracy" : "eval_loss");
    if (!by_accuracy && o->keep_best > PT_KEEP_BEST_EVAL_LOSS && !task_of(o)->pairs)
        return pt_fail(e, PT_USAGE, "`keep_best` %s: `task` %s has no rewards; give `keep_best` eval_loss", best_metric(o),
                       task_of(o)->name);
    return 0;
}

optimizer_args options_args(const pt_train_options *o)
{
    optimizer_args a;
    pt_error unused = {0};
    optimizer_args_parse(optimizers[o->optimizer], o->optimizer_args, &a, &unused); /* options_check_plan has told */
    return a;
}

int options_check(const pt_train_options *o, pt_error *e)
{
    int failed = options_check_plan(o, e);
    if (failed)
        return failed;
    if (!o->data || o->data_n < 1)
        return pt_fail(e, PT_USAGE, "no data: `data` names .txt, .jsonl, .json, .csv, .npy or .bin files, or a folder of them");
    if (!o->out || !o->out[0])
        return pt_fail(e, PT_USAGE, "no output folder: give `out`");
    const char *unused = o->lr > 0                          ? "lr"
                         : o->warmup_steps                  ? "warmup_steps"
                         : o->warmup_ratio > 0              ? "warmup_ratio"
                         : o->lr_schedule != PT_LR_LINEAR   ? "lr_schedule" /* the default */
                         : o->min_lr_ratio > 0              ? "min_lr_ratio"
                                                            : NULL;
    if (options_args(o).relative_step != 0 && unused)
        return pt_fail(e, PT_USAGE, "`%s` has no effect with `optimizer_args` relative_step=true: leave one of them out", unused);
    if (o->eval_split > 0 && o->eval_data_n)
        return pt_fail(e, PT_USAGE, "`eval_split` and `eval_data` are both given: give one of them");
    for (int i = 0; i < o->sample_n; i++) {
        const size_t good = utf8_valid_prefix(o->sample[i], strlen(o->sample[i]));
        if (o->sample[i][good])
            return pt_fail(e, PT_USAGE, "`sample`: prompt %d is not UTF-8 at byte %zu", i + 1, good);
    }
    if (o->eval_every && !options_evaluate(o))
        return pt_fail(e, PT_USAGE, "`eval_every` is %lld, but there are no data to evaluate on: give `eval_data` or `eval_split` too",
                       (long long)o->eval_every);
    return check_best(o, e);
}

static int check_task(const pt_train_options *o, pt_error *e)
{
    const train_task *t = task_of(o);
    if (t->scores && (o->sample_n || o->train_on != PT_TRAIN_ON_AUTO))
        return pt_fail(e, PT_USAGE, "`task` %s trains a score of whole examples: leave out `%s`", t->name,
                       o->sample_n ? "sample" : "train_on");
    if (t->pairs && (o->loss_per != PT_LOSS_PER_TOKEN || o->train_on != PT_TRAIN_ON_AUTO))
        return pt_fail(e, PT_USAGE, "`task` %s compares whole replies: leave out %s", t->name,
                       o->train_on ? "`train_on`" : "`loss_per` example");
    return 0;
}

/* What layers by turns cannot be trained with. */
static int check_turns(const pt_train_options *o, pt_error *e)
{
    const char *adapts = o->adapter ? "adapter" : o->lora_rank ? "lora_rank" : o->lora_targets ? "lora_targets" : NULL;
    if (!o->train_blocks)
        return 0;
    if (adapts)
        return pt_fail(e, PT_USAGE, "`train_blocks` trains the model's own layers and `%s` freezes them: leave one of them out", adapts);
    if (o->plan_file)
        return pt_fail(e, PT_USAGE, "`plan_file` has the plan of one set of trained layers, and `train_blocks` changes them: leave it out");
    if (o->base >= PT_BASE_NF4)
        return pt_fail(e, PT_USAGE, "`base` keeps matrices in few bits, and `train_blocks` trains all of them in turn: leave it out");
    if (o->add_tokens || task_of(o)->scores)
        return pt_fail(e, PT_USAGE, "`train_blocks` and `%s`, which needs the %s trained, do not go together: leave one of them out",
                       o->add_tokens ? "add_tokens" : "task", o->add_tokens ? "embedding" : "head");
    return 0;
}

/* Folders that the environment names, whether this run comes to need them or not. */
static void tell_missing_folders(const pt_train_options *o)
{
    pt_error e = {0};
    const char *home = profile_cache_missing();
    if (dir_check_temporary(&e))
        options_notice(o, "%s", e.text);
    if (home && !o->machine_file)
        options_notice(o, "HOME is %.400s, but there is no such folder: what is measured is not kept for the next run", home);
}

int options_check_plan(const pt_train_options *o, pt_error *e)
{
    int failed = options_check_size(&train_table, o, e);
    if (failed)
        return failed;
    if (!o->model || !o->model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with config.json");
    gpu_list gpus;
    failed = options_check_values(&train_table, o, e);
    if (!failed)
        failed = device_numbers(o->device, &gpus, e);
    if (!failed && !o->machine_file && o->ranks > COMM_RANKS_MOST) /* ranks of a machine file are only planned for */
        failed = pt_fail(e, PT_USAGE, "`ranks` is %d: it must be from 1 to %d", o->ranks, COMM_RANKS_MOST);
    if (!failed)
        failed = check_task(o, e);
    if (!failed)
        failed = check_turns(o, e);
    if (failed)
        return failed;
    if (o->warmup_steps && o->warmup_ratio > 0)
        return pt_fail(e, PT_USAGE, "`warmup_steps` and `warmup_ratio` both say how long the learning rate rises: give one of them");
    const optimizer *by = optimizers[o->optimizer];
    if (!by->reads_momentum && (o->momentum > 0 || o->lr_adjust != PT_LR_ADJUST_AUTO))
        return pt_fail(e, PT_USAGE, "`%s` has no effect with `optimizer` %s: leave it out, or give `optimizer` %s",
                       o->momentum > 0 ? "momentum" : "lr_adjust", by->name, optimizer_muon.name);
    optimizer_args unused;
    failed = optimizer_args_parse(by, o->optimizer_args, &unused, e);
    if (failed)
        return failed;
    if (o->disk_path && !o->disk_path[0])
        return pt_fail(e, PT_USAGE, "`disk_path` is empty: name a folder, or leave the option out");
    if (o->micro_batch > o->batch_size)
        return pt_fail(e, PT_USAGE, "`micro_batch` %lld is more than `batch_size` %lld: give a divisor of the batch size, or leave it out",
                       (long long)o->micro_batch, (long long)o->batch_size);
    tell_missing_folders(o);
    return 0;
}

int options_check_tokens(const pt_train_options *o, pt_error *e)
{
    if ((double)o->seq_len * (double)o->batch_size <= (double)(1 << 28))
        return 0;
    return pt_fail(e, PT_USAGE, "`batch_size` %lld times `seq_len` %lld is more than 2^28 tokens per step: lower one of them",
                   (long long)o->batch_size, (long long)o->seq_len);
}

const char *best_metric(const pt_train_options *o)
{
    static const char *const names[] = {[PT_KEEP_BEST_NO] = "eval_loss", [PT_KEEP_BEST_EVAL_LOSS] = "eval_loss",
                                        [PT_KEEP_BEST_REWARD_ACCURACY] = "eval_reward_accuracy",
                                        [PT_KEEP_BEST_REWARD_MARGIN] = "eval_reward_margin",
                                        [PT_KEEP_BEST_ACCURACY] = "eval_accuracy"};
    return names[o->keep_best];
}

int64_t lr_warmup_steps(const pt_train_options *o, int64_t steps)
{
    return o->warmup_ratio > 0 ? (int64_t)ceil(o->warmup_ratio * (double)steps) : o->warmup_steps;
}

static double cosine(double p) { return (1 + cos(3.14159265358979323846 * p)) / 2; }

/* From 1 to 0. p: the share of the decay that is done. */
static double decay_share(pt_lr_decay form, double p)
{
    return form == PT_LR_DECAY_LINEAR ? 1 - p : form == PT_LR_DECAY_ROOT ? 1 - sqrt(p) : cosine(p);
}

/* done, span: steps after the warm-up, those before this one and all. */
static double wsd_share(const pt_train_options *o, double done, double span, int64_t steps)
{
    const double asked = o->lr_decay_steps ? (double)o->lr_decay_steps : ceil((double)steps / 10), decay = fmin(asked, span);
    const double p = (done - (span - decay)) / decay;
    return p < 0 ? 1 : decay_share(o->lr_decay, p);
}

static double lr_of_schedule(const pt_train_options *o, int64_t step, int64_t steps)
{
    const optimizer_args a = options_args(o);
    if (a.relative_step != 0)
        return optimizer_relative_lr(&a, step);
    double s = (double)step, w = (double)lr_warmup_steps(o, steps), r = o->min_lr_ratio;
    if (s <= w)
        return o->lr * s / w;
    double span = (double)steps - w, p = span > 0 ? (s - 1 - w) / span : 0;
    switch (o->lr_schedule) {
    case PT_LR_LINEAR: return o->lr * (1 - (1 - r) * p);
    case PT_LR_COSINE: return o->lr * (r + (1 - r) * cosine(p));
    case PT_LR_COSINE_RESTARTS: return o->lr * (r + (1 - r) * (p >= 1 ? 0 : cosine(fmod((double)o->lr_cycles * p, 1))));
    case PT_LR_WSD: return span > 0 ? o->lr * (r + (1 - r) * wsd_share(o, s - 1 - w, span, steps)) : o->lr;
    default: return o->lr;
    }
}

double lr_of_step(const pt_train_options *o, int64_t step, int64_t steps)
{
    const double lr = lr_of_schedule(o, step, steps);
    return o->lr_of_step ? o->lr_of_step(o->arg, step, steps, lr) : lr;
}

option_needs options_needs(const pt_train_options *o, bool chats, bool examples)
{
    const unsigned reads = task_of(o)->reads;
    return (option_needs){.unmet = {[NEED_PAIRS] = !(reads & TASK_READS_BETA), [NEED_GAMMA] = !(reads & TASK_READS_GAMMA),
                                    [NEED_DPO] = !(reads & TASK_READS_DPO_LOSS),
                                    [NEED_SMOOTHING] = !(reads & TASK_READS_SMOOTHING) ||
                                                       (o->task == PT_TASK_DPO && o->dpo_loss == PT_DPO_IPO),
                                    [NEED_LABELS] = !(reads & TASK_READS_LABEL_WEIGHTS),
                                    [NEED_CENTER] = !(reads & TASK_READS_CENTER), [NEED_CHATS] = !chats, [NEED_TEXT] = examples,
                                    [NEED_EXAMPLES] = !examples, [NEED_CONTENTS] = !examples,
                                    [NEED_DECAY] = o->lr_schedule == PT_LR_CONSTANT,
                                    [NEED_RESTARTS] = o->lr_schedule != PT_LR_COSINE_RESTARTS,
                                    [NEED_WSD] = o->lr_schedule != PT_LR_WSD,
                                    [NEED_CHECKPOINTS] = !o->save_every && !o->resume && !o->keep_best, [NEED_DISK] = !o->disk_memory,
                                    [NEED_SEARCH] = o->plan_file != NULL, [NEED_TURNS] = !o->train_blocks,
                                    [NEED_MUON] = !optimizers[o->optimizer]->reads_momentum}};
}

void options_notice(const pt_train_options *o, const char *fmt, ...)
{
    char sentence[1024];
    va_list ap;
    va_start(ap, fmt);
    text_format(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    options_pass_notice((void *)o, sentence);
}

void options_pass_notice(void *options, const char *sentence)
{
    const pt_train_options *o = options;
    if (o->notice)
        o->notice(o->arg, sentence);
}

void options_progress(const pt_train_options *o, const char *stage, uint64_t done, uint64_t total)
{
    if (o->progress)
        o->progress(o->arg, stage, done, total);
}
