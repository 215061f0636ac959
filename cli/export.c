#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

static const char usage[] = "usage: protrain export --model DIR --to gguf --out FILE [--type f32|f16|bf16|q8_0]\n\n"
                            "Writes a model with its tokenizer and chat template as one GGUF file, which llama.cpp runs.";

int command_export(int argc, char **argv)
{
    pt_export_options o;
    pt_error e = {0};
    progress bar;
    int to = -1, type = PT_EXPORT_F16;
    bool quiet = false;
    const char *adapter = NULL;
    pt_export_defaults(&o);
    const arg table[] = {
        {"--model", ARG_STRING, &o.model, "DIR", "Hugging Face folder with weights and tokenizer.json", false},
        {"--to", ARG_CHOICE, &to, "gguf", "output format", false},
        {"--out", ARG_STRING, &o.out, "FILE", "the file to write; it appears whole or not at all", false},
        {"--type", ARG_CHOICE, &type, "f32|f16|bf16|q8_0", "type of the matrices; norms and biases are always f32; default f16", false},
        {"--quiet", ARG_FLAG, &quiet, NULL, "no progress bar", false},
        {"--adapter", ARG_STRING, &adapter, "DIR", NULL, false},
    };
    int failed = args_parse(argc, argv, usage, table, sizeof table / sizeof *table, &e);
    if (failed == 1)
        return 0;
    if (!failed && adapter)
        failed = pt_fail(&e, PT_USAGE,
                         "--adapter: the file has a whole model: merge the adapter first, by protrain merge --model %.300s --adapter "
                         "%.300s --out MERGED, and export --model MERGED",
                         o.model ? o.model : "DIR", adapter);
    if (!failed && to < 0)
        failed = pt_fail(&e, PT_USAGE, "--to is missing: give --to gguf");
    o.type = (pt_export_type)type;
    o.notice = progress_notice;
    o.progress = progress_stage;
    o.arg = &bar;
    progress_open(&bar, quiet);
    if (!failed)
        failed = pt_export(&o, &e);
    progress_clear(&bar);
    if (!failed && !quiet)
        printf("exported to %s\n", o.out);
    return failed ? exit_with(&e) : 0;
}
