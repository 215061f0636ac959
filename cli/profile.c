#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct session {
    pt_train_options o;
    int precision, base, optimizer;
    arg_strings freeze, train_only;
    const char *out;
    bool fresh, json, quiet;
    progress bar;
} session;

static const char usage[] = "usage: protrain profile --model DIR|config.json [options]\n\n"
                            "Measures what a training step costs on this machine: each kind of block, the optimizer, and transfers\n"
                            "between the memory tiers. The profile is kept, and checked before it is used again.";

static int parse(session *s, int argc, char **argv, pt_error *e)
{
    pt_train_options *o = &s->o;
    const arg table[] = {
        {NULL, ARG_HEADING, NULL, NULL, "Model and training", false},
        {"--model", ARG_STRING, &o->model, "DIR", "Hugging Face folder, or its config.json alone", false},
        {"--seq-len", ARG_COUNT, &o->seq_len, "N", "tokens per sequence; default: the model's maximum, at most 1024", false},
        {"--batch-size", ARG_INT, &o->batch_size, "N", "sequences per step; default 8", false},
        {"--dtype", ARG_CHOICE, &s->precision, "bf16|fp32", "bf16: bf16 compute, fp32 master weights; default bf16", false},
        TRAINED_ARGS(s),
        ADAPTER_ARGS(o),
        {"--base", ARG_CHOICE, &s->base, BASE_CHOICE, BASE_HELP, false},
        {"--optimizer", ARG_CHOICE, &s->optimizer, OPTIMIZER_CHOICE, OPTIMIZER_HELP, false},
        {NULL, ARG_HEADING, NULL, NULL, "Hardware", false},
        {"--device", ARG_STRING, &o->device, "NAME", "auto (a usable GPU, else the CPU), cpu, cuda or cuda:N", false},
        {"--threads", ARG_INT32, &o->threads, "N", "default: all cores available to the process", false},
        {"--device-memory", ARG_SIZE, &o->device_memory, "SIZE", "memory that measuring may take; on a CPU, of RAM", false},
        {"--host-memory", ARG_SIZE, &o->host_memory, "SIZE", "RAM that measuring may take beside a GPU; on a CPU, RAM as a second tier",
         false},
        {"--disk-memory", ARG_SIZE, &o->disk_memory, "SIZE", "disk space that measuring may take; 0: do not measure the disk", false},
        {"--disk-path", ARG_STRING, &o->disk_path, "DIR", "folder of the disk tier; default: here, or the folder for temporary files",
         false},
        {"--fresh", ARG_FLAG, &s->fresh, NULL, "measure again, even if a kept profile could be used", false},
        {NULL, ARG_HEADING, NULL, NULL, "Output", false},
        {"--out", ARG_STRING, &s->out, "PATH",
         "write the profile to this file, for --profile of train and plan; into a\n"
         "folder, write profile.json and machine.json (for --machine). A new name\n"
         "without an ending such as .json is a folder",
         false},
        {"--quiet", ARG_FLAG, &s->quiet, NULL, "no progress bar", false},
        {"--json", ARG_FLAG, &s->json, NULL, "print the profile as JSON on stdout instead of a table", false},
    };
    return args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
}

static int show(const session *s, const pt_profile *p, pt_error *e)
{
    int failed = s->out ? pt_profile_write(p, s->out, e) : 0;
    if (failed)
        return failed;
    char *text = s->json ? pt_profile_json(p) : pt_profile_text(p);
    if (!text) {
        snprintf(e->text, sizeof e->text, "out of memory");
        return e->code = PT_FAILED;
    }
    fputs(text, stdout);
    free(text);
    return 0;
}

int command_profile(int argc, char **argv)
{
    session s = {0};
    pt_error e = {0};
    pt_profile *p = NULL;
    pt_train_defaults(&s.o);
    int status = parse(&s, argc, argv, &e);
    if (status == 1)
        return 0;
    if (status)
        return exit_with(&e);
    s.o.freeze = s.freeze.v;
    s.o.freeze_n = s.freeze.n;
    s.o.train_only = s.train_only.v;
    s.o.train_only_n = s.train_only.n;
    s.o.precision = s.precision ? PT_PRECISION_FP32 : PT_PRECISION_BF16;
    s.o.base = (pt_base)s.base;
    s.o.optimizer = (pt_optimizer)s.optimizer;
    s.o.notice = progress_notice;
    s.o.progress = progress_stage;
    s.o.arg = &s.bar;
    progress_open(&s.bar, s.quiet || s.json);
    status = pt_profile_open(&s.o, s.fresh, &p, &e);
    progress_clear(&s.bar);
    if (!status)
        status = show(&s, p, &e);
    pt_profile_close(p);
    return status ? exit_with(&e) : 0;
}
