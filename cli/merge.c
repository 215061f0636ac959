#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>

static const char usage[] = "usage: protrain merge --model DIR --adapter DIR --out DIR\n\n"
                            "Merges an adapter (written by protrain or PEFT) into its base model and writes a Hugging Face folder.";

int command_merge(int argc, char **argv)
{
    pt_error e = {0};
    pt_options *options;
    progress bar;
    bool quiet = false;
    const arg own[] = {ARG(FLAG, "quiet", &quiet, NULL, NULL, "no progress bar")};
    int failed = args_parse(COMMAND_LINE("merge", usage, own), &options, &e);
    pt_merge_options *o = pt_options_merge(options);
    progress_open(&bar, quiet);
    if (!failed) {
        o->notice = progress_notice;
        o->progress = progress_stage;
        o->arg = &bar;
        failed = pt_merge(o, &e);
    }
    progress_clear(&bar);
    if (!failed && !quiet)
        printf("merged into %s\n", o->out);
    pt_options_close(options);
    return failed < 0 ? exit_with(&e) : 0;
}
