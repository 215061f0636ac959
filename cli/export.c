#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

static const char usage[] = "usage: protrain export --model DIR [--adapter DIR] --to gguf --out FILE [--type TYPE]\n\n"
                            "Writes a model, with an adapter merged into it, its tokenizer and chat template as one\n"
                            "GGUF file, which llama.cpp runs.";

int command_export(int argc, char **argv)
{
    pt_error e = {0};
    pt_options *options;
    progress bar;
    int to = -1;
    bool quiet = false;
    const arg own[] = {
        ARG(CHOICE, "to", &to, "gguf", NULL, "output format"),
        ARG(FLAG, "quiet", &quiet, NULL, NULL, "no progress bar"),
    };
    int failed = args_parse(COMMAND_LINE("export", usage, own), &options, &e);
    pt_export_options *o = pt_options_export(options);
    if (!failed && to < 0)
        failed = pt_fail(&e, PT_USAGE, "--to is missing: give --to gguf");
    progress_open(&bar, quiet);
    if (!failed) {
        o->notice = progress_notice;
        o->progress = progress_stage;
        o->arg = &bar;
        failed = pt_export(o, &e);
    }
    progress_clear(&bar);
    if (!failed && !quiet)
        printf("exported to %s\n", o->out);
    pt_options_close(options);
    return failed < 0 ? exit_with(&e) : 0;
}
