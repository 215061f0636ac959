#include "args.h"
#include "commands.h"
#include "exit.h"
#include "fields.h"
#include "interrupt.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: protrain plan --model DIR|config.json [options]\n"
    "       protrain plan --model DIR --data PATH --select SIZE [options]\n"
    "       protrain plan --problem NAME|FILE.json [options of protrain ritz]\n\n"
    "Shows what training would do on this machine or another: where every byte would live, how long a step\n"
    "would take, what limits it and what would help. Trains nothing, and but for --select\n"
    "needs neither weights nor data.\n"
    "With several machines (--machine rtx4090,h100 or all) it prints one table.";

/* If nothing fits, stderr has the reason, and this prints only what would make the model fit. */
static int print(const pt_plan *p, bool json, bool fits, pt_error *e)
{
    char *text = json ? pt_plan_json(p) : pt_plan_text(p);
    const char *ways = text && !fits && !json ? strstr(text, "\nways ") : NULL;
    if (!text)
        return pt_fail(e, PT_FAILED, "out of memory");
    print_as_flags(stdout, ways ? ways + 1 : text);
    if (json)
        putchar('\n');
    free(text);
    return 0;
}

static int print_others(const pt_plan *p, pt_error *e)
{
    char *text = pt_plan_others_text(p);
    if (!text)
        return pt_fail(e, PT_FAILED, "out of memory");
    print_as_flags(stdout, text);
    free(text);
    return 0;
}

static int run_one(pt_train_options *o, progress *bar, bool json, bool others, pt_error *e)
{
    pt_plan *p = NULL;
    pt_error written = {0};
    int failed = pt_plan_open(o, &p, e);
    progress_clear(bar);
    if (p && (print(p, json, !failed, &written) || (others && !json && print_others(p, &written)))) {
        *e = written;
        failed = written.code;
    }
    pt_plan_close(p);
    return failed;
}

/* A text of the library, which it frees; NULL: none. */
static void print_whole(char *text, bool json)
{
    if (text)
        print_as_flags(stdout, text);
    if (text && json)
        putchar('\n');
    free(text);
}

static int run_machines(pt_train_options *o, progress *bar, bool json, pt_error *e)
{
    char *text = NULL;
    const int failed = pt_plan_machines(o, json, &text, e);
    progress_clear(bar);
    print_whole(text, json);
    return failed;
}

/* Several machines, or all that come with the program. */
static bool are_machines(const char *name)
{
    return name && (!strcmp(name, "all") || (strchr(name, ',') && access(name, F_OK)));
}

static int run(pt_train_options *o, bool quiet, bool json, bool others, pt_error *e)
{
    progress bar;
    o->notice = progress_notice;
    o->progress = progress_stage;
    o->arg = &bar;
    progress_open(&bar, quiet || json);
    return are_machines(o->machine_file) ? run_machines(o, &bar, json, e) : run_one(o, &bar, json, others, e);
}

static bool stops(void *arg)
{
    (void)arg;
    return interrupt_signal();
}

static int run_selection(pt_train_options *o, uint64_t memory, int64_t steps, bool quiet, bool json, pt_error *e)
{
    char *text = NULL;
    progress bar;
    o->notice = progress_notice;
    o->progress = progress_stage;
    o->stop = stops;
    o->arg = &bar;
    progress_open(&bar, quiet || json);
    interrupt_record();
    const int failed = pt_select(o, memory, steps, json, &text, e);
    progress_clear(&bar);
    print_whole(text, json);
    return failed;
}

static bool has(int argc, char **argv, const char *flag)
{
    const size_t n = strlen(flag);
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], flag, n) && (!argv[i][n] || argv[i][n] == '='))
            return true;
    return false;
}

int command_plan(int argc, char **argv)
{
    if (has(argc, argv, "--problem"))
        return command_ritz_plan(argc, argv);
    const bool selects = has(argc, argv, "--select") && !has(argc, argv, "--help"); /* then options of train have an effect */
    pt_error e = {0};
    pt_options *options;
    const char *config = NULL;
    bool quiet = false, json = false, others = false;
    uint64_t memory = 0;
    int64_t steps = 0;
    const arg own[] = {
        ARG(TEXT, "config", &config, "FILE", "Options",
            "take options from this file, in YAML or JSON, as train does; those of the\ncommand line come first"),
        ARG(SIZE, "select", &memory, "SIZE", "What is trained",
            "propose which tensors to train within this memory: measure on --data how much\neach contributes, and plan the best that fit"),
        ARG_WHOLE("select-steps", &steps, 2, 1000, "What is trained", "steps in which --select measures; default 16"),
        ARG(FLAG, "others", &others, NULL, "Output",
            "also say how much slower other plans are: with other chunks or updates, and\nas other systems plan"),
        ARG(FLAG, "quiet", &quiet, NULL, "Output", "no progress bar"),
        ARG(FLAG, "json", &json, NULL, "Output", "print one JSON object on stdout; train --plan reads it"),
    };
    int failed = args_parse(COMMAND_LINE(selects ? "train" : "plan", usage, own), &options, &e);
    if (!failed && config)
        failed = pt_options_read(options, config, &e);
    if (!failed && steps && !selects)
        failed = pt_fail(&e, PT_USAGE, "--select-steps has no effect without --select: give the memory to train in, or leave it out");
    if (!failed && others && (selects || are_machines(pt_options_train(options)->machine_file)))
        failed = pt_fail(&e, PT_USAGE, "--others does not go with %s: it compares the plans of one model on one machine; leave it out",
                         selects ? "--select" : "several machines");
    if (!failed && selects)
        failed = run_selection(pt_options_train(options), memory, steps, quiet, json, &e);
    else if (!failed)
        failed = run(pt_options_train(options), quiet, json, others, &e);
    pt_options_close(options);
    const int status = failed < 0 ? exit_with(&e) : 0;
    return status && interrupt_signal() ? 128 + interrupt_signal() : status;
}
