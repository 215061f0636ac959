#include "train/options.h"

#include "comm/comm.h"
#include "data/files.h"
#include "data/idle_options.h"
#include "io/files.h"
#include "model/lanes.h"
#include "optimizer/optimizer.h"
#include "io/files.h"
#include "profile/profile.h"
#include "device/device.h"
#include "text/utf8.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

static const double DEFAULT_BETA = 0.1;
enum { DEFAULT_KEEP = 2 };

void pt_train_defaults(pt_train_options *o)
{
    if (!o)
        return;
    memset(o, 0, sizeof *o);
    o->epochs = 1;
    o->batch_size = 8;
    o->shuffle = true;
    o->lr_schedule = PT_LR_LINEAR;
    o->beta1 = 0.9;
    o->beta2 = 0.999;
    o->eps = 1e-8;
    o->max_grad_norm = 1;
    o->keep = DEFAULT_KEEP;
    o->beta = DEFAULT_BETA;
    o->device = "auto";
    o->device_memory = o->host_memory = o->disk_memory = PT_AUTO;
}

/* An option and its valid range. */
static int check_range(const char *name, double value, double low, double high, pt_error *e)
{
    if (value >= low && value <= high) /* false for NaN */
        return 0;
    return pt_fail(e, PT_USAGE, "%s is %.15g: it must be between %.15g and %.15g", name, value, low, high);
}

bool options_evaluate(const pt_train_options *o)
{
    return o->eval_data_n > 0 || o->eval_split > 0 || (o->data && data_files_beside(o->data, o->data_n));
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
    failed = pt_check_list("data", o->data, o->data_n, e);
    if (!failed)
        failed = pt_check_list("eval_data", o->eval_data, o->eval_data_n, e);
    if (!failed)
        failed = pt_check_list("sample", o->sample, o->sample_n, e);
    if (failed)
        return failed;
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
    return 0;
}

static int check_task(const pt_train_options *o, pt_error *e)
{
    if (o->task != PT_TASK_DPO)
        return 0;
    if (!(o->beta > 0))
        return pt_fail(e, PT_USAGE, "`beta` is %g: it must be above 0", o->beta);
    if (o->loss_per != PT_LOSS_PER_TOKEN || o->train_on != PT_TRAIN_ON_AUTO)
        return pt_fail(e, PT_USAGE, "`task` dpo compares whole replies: leave out %s",
                       o->train_on ? "`train_on`" : "`loss_per` example");
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
    if (!o->model || !o->model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with config.json");
    gpu_list gpus;
    int unknown = pt_check_list("freeze", o->freeze, o->freeze_n, e);
    if (!unknown)
        unknown = pt_check_list("train_only", o->train_only, o->train_only_n, e);
    if (!unknown)
        unknown = device_numbers(o->device, &gpus, e);
    if (unknown)
        return unknown;
    const struct { const char *name; double value, low, high; } ranges[] = {
        {"`steps`", (double)o->steps, 0, 1e15},        {"`epochs`", o->epochs, 1e-9, 1e9},
        {"`seq_len`", (double)o->seq_len, 0, 1 << 24}, {"`batch_size`", (double)o->batch_size, 1, 1 << 24},
        {"`micro_batch`", (double)o->micro_batch, 0, 1 << 24}, {"`lr`", o->lr, 0, 1e3}, {"`lanes`", o->lanes, 0, LANES_MOST},
        {"`ranks`", o->ranks, 0, o->machine_file ? LANES_MOST : COMM_RANKS_MOST}, /* ranks of a machine file are only planned for */
        {"`warmup_steps`", (double)o->warmup_steps, 0, 1e15}, {"`min_lr_ratio`", o->min_lr_ratio, 0, 1},
        {"`weight_decay`", o->weight_decay, 0, 1e3},   {"`beta1`", o->beta1, 0, 0.9999999},
        {"`beta2`", o->beta2, 0, 0.9999999},           {"`eps`", o->eps, 0, 1},
        {"`max_grad_norm`", o->max_grad_norm, 0, 1e30}, {"`threads`", o->threads, 0, 4096},
        {"`save_every`", (double)o->save_every, 0, 1e15}, {"`keep`", o->keep, 0, 1e9},
        {"`eval_every`", (double)o->eval_every, 0, 1e15}, {"`eval_split`", o->eval_split, 0, 0.99},
        {"`data_format`", o->data_format, PT_DATA_AUTO, PT_DATA_PREFERENCE}, {"`train_on`", o->train_on, PT_TRAIN_ON_AUTO, PT_TRAIN_ON_ALL},
        {"`long_examples`", o->long_examples, PT_LONG_CUT, PT_LONG_ERROR},
        {"`loss_per`", o->loss_per, PT_LOSS_PER_TOKEN, PT_LOSS_PER_EXAMPLE},
        {"`task`", o->task, PT_TASK_SFT, PT_TASK_DPO}, {"`beta`", o->beta, 0, 1e6},
        {"`dpo_loss`", o->dpo_loss, PT_DPO_SIGMOID, PT_DPO_IPO},
        {"`precision`", o->precision, PT_PRECISION_BF16, PT_PRECISION_FP32},
        {"`lr_schedule`", o->lr_schedule, PT_LR_CONSTANT, PT_LR_COSINE},
        {"`optimizer`", o->optimizer, PT_OPTIMIZER_ADAMW, PT_OPTIMIZER_MUON}, {"`base`", o->base, PT_BASE_AS_COMPUTED, PT_BASE_INT8},
        {"`momentum`", o->momentum, 0, 0.9999999}, {"`lr_adjust`", o->lr_adjust, PT_LR_ADJUST_AUTO, PT_LR_ADJUST_SPECTRAL},
        {"`save_type`", o->save_type, PT_SAVE_AS_STORED, PT_SAVE_F16}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        int failed = check_range(ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high, e);
        if (failed)
            return failed;
    }
    int wrong = check_task(o, e);
    if (wrong)
        return wrong;
    const optimizer *by = optimizers[o->optimizer];
    if (!by->reads_momentum && (o->momentum > 0 || o->lr_adjust != PT_LR_ADJUST_AUTO))
        return pt_fail(e, PT_USAGE, "`%s` has no effect with `optimizer` %s: leave it out, or give `optimizer` %s",
                       o->momentum > 0 ? "momentum" : "lr_adjust", by->name, optimizer_muon.name);
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

double lr_of_step(const pt_train_options *o, int64_t step, int64_t steps)
{
    double s = (double)step, w = (double)o->warmup_steps, r = o->min_lr_ratio;
    if (s <= w)
        return o->lr * s / w;
    double p = steps > o->warmup_steps ? (s - 1 - w) / ((double)steps - w) : 0;
    switch (o->lr_schedule) {
    case PT_LR_LINEAR: return o->lr * (1 - (1 - r) * p);
    case PT_LR_COSINE: return o->lr * (r + (1 - r) * (1 + cos(3.14159265358979323846 * p)) / 2);
    default: return o->lr;
    }
}

void options_tell_idle(const pt_train_options *o, bool chats, bool examples)
{
    const bool dpo = o->task == PT_TASK_DPO;
    const idle_option rows[] = {
        {o->beta != DEFAULT_BETA, dpo, "beta", "without `task` dpo"},
        {o->dpo_loss != PT_DPO_SIGMOID, dpo, "dpo_loss", "without `task` dpo"},
        {o->chat_template != NULL, chats, "chat_template", "on these data, which are no chats; it is saved with the model"},
        {o->plain_contents, examples, "plain_contents", "on these data: special tokens in text are tokens"},
        {o->document_mask, !examples, "document_mask", "on these data: examples never see each other"},
        {o->long_examples != PT_LONG_CUT, examples, "long_examples", "on these data: text is cut into windows"},
        {o->min_lr_ratio > 0, o->lr_schedule != PT_LR_CONSTANT, "min_lr_ratio", "with `lr_schedule` constant"},
        {o->keep != DEFAULT_KEEP, o->save_every || o->resume, "keep", "without `save_every`"},
        {o->disk_path != NULL, o->disk_memory != 0, "disk_path", "with `disk_memory` 0"},
    };
    idle_options_tell(rows, sizeof rows / sizeof *rows, o->notice, o->arg);
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
