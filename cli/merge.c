#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>

static const char usage[] = "usage: protrain merge --model DIR --adapter DIR --out DIR\n\n"
                            "Merges an adapter (written by protrain or PEFT) into its base model and writes a Hugging Face folder.";

int command_merge(int argc, char **argv)
{
    pt_merge_options o;
    pt_error e = {0};
    progress bar;
    int save_type = PT_SAVE_AS_STORED;
    bool quiet = false;
    pt_merge_defaults(&o);
    const arg table[] = {
        {"--model", ARG_STRING, &o.model, "DIR", "Hugging Face folder with weights", false},
        {"--adapter", ARG_STRING, &o.adapter, "DIR", "folder with adapter_config.json and adapter_model.safetensors", false},
        {"--out", ARG_STRING, &o.out, "DIR", "the new folder to write; it appears whole or not at all", false},
        {"--save-dtype", ARG_CHOICE, &save_type, "stored|fp32|bf16|fp16", "dtype of the written weights; default: as loaded", false},
        {"--quiet", ARG_FLAG, &quiet, NULL, "no progress bar", false},
    };
    int failed = args_parse(argc, argv, usage, table, sizeof table / sizeof *table, &e);
    if (failed == 1)
        return 0;
    o.save_type = (pt_save_type)save_type;
    o.notice = progress_notice;
    o.progress = progress_stage;
    o.arg = &bar;
    progress_open(&bar, quiet);
    if (!failed)
        failed = pt_merge(&o, &e);
    progress_clear(&bar);
    if (!failed && !quiet)
        printf("merged into %s\n", o.out);
    return failed ? exit_with(&e) : 0;
}
