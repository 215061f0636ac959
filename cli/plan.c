#include "args.h"
#include "commands.h"
#include "exit.h"
#include "fields.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct session {
    pt_train_options o;
    int precision, base, optimizer, save_type, init, task;
    bool json, quiet;
    arg_strings eval_data, freeze, train_only;
    progress bar;
} session;

static const char usage[] =
    "usage: protrain plan --model DIR|config.json [options]\n"
    "       protrain plan --problem NAME|FILE.json [options of protrain ritz]\n\n"
    "Shows what training would do on this machine or another: where every byte would live, how long a step\n"
    "would take, what limits it and what would help. Trains nothing and needs neither weights nor data.";

static int parse(session *s, int argc, char **argv, pt_error *e)
{
    pt_train_options *o = &s->o;
    const arg table[] = {
        {NULL, ARG_HEADING, NULL, NULL, "Model and training", false},
        {"--model", ARG_STRING, &o->model, "DIR", "Hugging Face folder, or its config.json alone", false},
        {"--seq-len", ARG_COUNT, &o->seq_len, "N", "tokens per sequence; default: the model's maximum, at most 1024", false},
        {"--batch-size", ARG_INT, &o->batch_size, "N", "sequences per step; default 8", false},
        {"--micro-batch", ARG_INT, &o->micro_batch, "N", "sequences computed at a time; default: planned", false},
        {"--lanes", ARG_INT32, &o->lanes, "L", "number of gradient sums per step, as in train; default 1", false},
        {"--dtype", ARG_CHOICE, &s->precision, "bf16|fp32", "bf16: bf16 compute, fp32 master weights; default bf16", false},
        TRAINED_ARGS(s),
        {"--task", ARG_CHOICE, &s->task, "sft|dpo", "dpo: train on preferences, with a second pass of the head; default sft", false},
        ADAPTER_ARGS(o),
        {"--base", ARG_CHOICE, &s->base, BASE_CHOICE, BASE_HELP, false},
        {"--optimizer", ARG_CHOICE, &s->optimizer, OPTIMIZER_CHOICE, OPTIMIZER_HELP, false},
        {"--max-grad-norm", ARG_DOUBLE, &o->max_grad_norm, "X", "0: no clipping, so that updates may run during backward; default 1",
         false},
        {"--eval-split", ARG_DOUBLE, &s->o.eval_split, "X", "the run holds out this share of the data and evaluates on it", false},
        {"--eval-data", ARG_STRINGS, &s->eval_data, "PATH", "the run evaluates: plan memory for it too; the data are not read", false},
        {"--eval-every", ARG_INT, &o->eval_every, "N", "steps between evaluations; with 1, no update waits for the next step", false},
        {"--steps", ARG_INT, &o->steps, "N", "steps of the run, to compute how much it writes to the disk", false},
        {"--out", ARG_STRING, &o->out, "DIR", "folder where the run would save; default: here; nothing is written", false},
        {"--save-every", ARG_INT, &o->save_every, "N", "the run saves checkpoints: leave room on the disk for them", false},
        {"--keep", ARG_INT32, &o->keep, "N", "the run keeps the newest N checkpoints; 0: all; default 2", false},
        {"--save-dtype", ARG_CHOICE, &s->save_type, "stored|fp32|bf16|fp16", "dtype of the exported weights; default: as loaded", false},
        {"--init", ARG_CHOICE, &s->init, "stored|random", "random: start from random weights, exported as fp32", false},
        {NULL, ARG_HEADING, NULL, NULL, "Hardware (this machine's, if not given)", false},
        {"--machine", ARG_STRING, &o->machine_file, "FILE",
         "plan for the machine of this file, or for one that comes with\nthe program (rtx3090, a100-80, h100 ...)", false},
        {"--profile", ARG_STRING, &o->profile_file, "FILE", "use this profile.json of an earlier run instead of measuring", false},
        {"--plan", ARG_STRING, &o->plan_file, "FILE", "predict this plan instead of searching for the fastest", false},
        {"--device", ARG_STRING, &o->device, "NAME", "auto (usable GPUs, else the CPU), cpu, cuda, cuda:N or cuda:N,M,...", false},
        {"--ranks", ARG_INT32, &o->ranks, "N",
         "share each step between N processes of this machine, or N devices\nof the machine that --machine names", false},
        {"--threads", ARG_INT32, &o->threads, "N", "default: all cores available to the process", false},
        {"--device-memory", ARG_SIZE, &o->device_memory, "SIZE", "memory budget, such as 8GiB; on a CPU, of RAM", false},
        {"--host-memory", ARG_SIZE, &o->host_memory, "SIZE", "RAM budget beside a GPU; on a CPU, RAM as a second tier", false},
        {"--disk-memory", ARG_SIZE, &o->disk_memory, "SIZE", "budget of disk space; 0: never use the disk", false},
        {"--disk-path", ARG_STRING, &o->disk_path, "DIR", "folder of the disk tier; default: here, or the folder for temporary files",
         false},
        {NULL, ARG_HEADING, NULL, NULL, "Output", false},
        {"--quiet", ARG_FLAG, &s->quiet, NULL, "no progress bar", false},
        {"--json", ARG_FLAG, &s->json, NULL, "print one JSON object on stdout; train --plan reads it", false},
        {NULL, ARG_HEADING, NULL, NULL, "Other options of train (--data, --lr ...) are accepted and have no effect here.", false},
        {"--data", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--epochs", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--no-shuffle", ARG_IGNORED_FLAG, NULL, NULL, NULL, false},
        {"--drop-last", ARG_IGNORED_FLAG, NULL, NULL, NULL, false},
        {"--document-mask", ARG_IGNORED_FLAG, NULL, NULL, NULL, false},
        {"--data-format", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--train-on", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--chat-template", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--plain-contents", ARG_IGNORED_FLAG, NULL, NULL, NULL, false},
        {"--no-packing", ARG_IGNORED_FLAG, NULL, NULL, NULL, false},
        {"--long", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--loss-per", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--beta", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--dpo-loss", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--lr", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--lr-schedule", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--warmup-steps", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--min-lr-ratio", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--weight-decay", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--beta1", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--beta2", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--eps", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--momentum", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--lr-adjust", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--seed", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--resume", ARG_IGNORED, NULL, NULL, NULL, true},
        {"--sample", ARG_IGNORED, NULL, NULL, NULL, false},
        {"--tensorboard", ARG_IGNORED_FLAG, NULL, NULL, NULL, false},
        {"--trace", ARG_IGNORED_FLAG, NULL, NULL, NULL, false},
    };
    return args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
}

/* If nothing fits, stderr has the reason, and this prints only what would make the model fit. */
static int print(const session *s, const pt_plan *p, bool fits, pt_error *e)
{
    char *text = s->json ? pt_plan_json(p) : pt_plan_text(p);
    const char *ways = text && !fits && !s->json ? strstr(text, "\nways ") : NULL;
    if (!text) {
        snprintf(e->text, sizeof e->text, "out of memory");
        return e->code = PT_FAILED;
    }
    print_as_flags(stdout, ways ? ways + 1 : text);
    if (s->json)
        putchar('\n');
    free(text);
    return 0;
}

static int run(session *s, pt_error *e)
{
    pt_plan *p = NULL;
    pt_error written = {0};
    s->o.precision = s->precision ? PT_PRECISION_FP32 : PT_PRECISION_BF16;
    s->o.base = (pt_base)s->base;
    s->o.task = (pt_task)s->task;
    s->o.optimizer = (pt_optimizer)s->optimizer;
    s->o.save_type = (pt_save_type)s->save_type;
    s->o.init_random = s->init == 1;
    s->o.freeze = s->freeze.v;
    s->o.freeze_n = s->freeze.n;
    s->o.train_only = s->train_only.v;
    s->o.train_only_n = s->train_only.n;
    s->o.eval_data = s->eval_data.v;
    s->o.eval_data_n = s->eval_data.n;
    s->o.notice = progress_notice;
    s->o.progress = progress_stage;
    s->o.arg = &s->bar;
    progress_open(&s->bar, s->quiet || s->json);
    int failed = pt_plan_open(&s->o, &p, e);
    progress_clear(&s->bar);
    if (p && print(s, p, !failed, &written)) {
        *e = written;
        failed = written.code;
    }
    pt_plan_close(p);
    return failed;
}

static bool has_problem(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--problem", 9) && (!argv[i][9] || argv[i][9] == '='))
            return true;
    return false;
}

int command_plan(int argc, char **argv)
{
    if (has_problem(argc, argv))
        return command_ritz_plan(argc, argv);
    session s = {0};
    pt_error e = {0};
    pt_train_defaults(&s.o);
    int status = parse(&s, argc, argv, &e);
    if (status == 1)
        return 0;
    return status || run(&s, &e) ? exit_with(&e) : 0;
}
