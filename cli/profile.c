#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>

static const char usage[] = "usage: protrain profile --model DIR|config.json [options]\n\n"
                            "Measures what a training step costs on this machine: each kind of block, the optimizer, and transfers\n"
                            "between the memory tiers. The profile is kept, and checked before it is used again.";

static int show(const pt_profile *p, const char *out, bool json, pt_error *e)
{
    int failed = out ? pt_profile_write(p, out, e) : 0;
    if (failed)
        return failed;
    char *text = json ? pt_profile_json(p) : pt_profile_text(p);
    if (!text)
        return pt_fail(e, PT_FAILED, "out of memory");
    fputs(text, stdout);
    free(text);
    return 0;
}

int command_profile(int argc, char **argv)
{
    pt_error e = {0};
    pt_options *options;
    pt_profile *p = NULL;
    progress bar;
    const char *out = NULL;
    bool fresh = false, quiet = false, json = false;
    const arg own[] = {
        ARG(FLAG, "fresh", &fresh, NULL, "Output", "measure again, even if a kept profile could be used"),
        ARG(TEXT, "out", &out, "PATH", "Output",
            "write the profile to this file, for --profile of train and plan; into a\nfolder, write profile.json and machine.json (for "
            "--machine). A new name\nwithout an ending such as .json is a folder"),
        ARG(FLAG, "quiet", &quiet, NULL, "Output", "no progress bar"),
        ARG(FLAG, "json", &json, NULL, "Output", "print the profile as JSON on stdout instead of a table"),
    };
    int failed = args_parse(COMMAND_LINE("profile", usage, own), &options, &e);
    pt_train_options *o = pt_options_train(options);
    progress_open(&bar, quiet || json);
    if (!failed) {
        o->notice = progress_notice;
        o->progress = progress_stage;
        o->arg = &bar;
        failed = pt_profile_open(o, fresh, &p, &e);
    }
    progress_clear(&bar);
    if (!failed)
        failed = show(p, out, json, &e);
    pt_profile_close(p);
    pt_options_close(options);
    return failed < 0 ? exit_with(&e) : 0;
}
