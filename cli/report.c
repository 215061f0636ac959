#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"
#include "protrain_ritz.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct options {
    const char *folder, *out;
    bool json;
} options;

static const char usage[] = "usage: protrain report DIR [--out FILE.html] [--json]\n\n"
                            "Makes an HTML page of a run: its settings, its curves, and step time and memory as predicted and as\n"
                            "measured. It is one file that needs no network and no scripts.";

static int parse(options *o, int argc, char **argv, pt_error *e)
{
    const arg own[] = {
        ARG_OPERAND("DIR", &o->folder, "the run's folder (--out of train or ritz); the run may still be going on"),
        ARG(TEXT, "out", &o->out, "FILE", NULL, "the page to write; default DIR/report.html"),
        ARG(FLAG, "json", &o->json, NULL, NULL, "print a summary as one JSON object on stdout instead of writing a page"),
    };
    pt_options *none;
    int failed = args_parse(COMMAND_LINE(NULL, usage, own), &none, e);
    if (!failed && !o->folder)
        failed = pt_fail(e, PT_USAGE, "the run's folder is missing: protrain report DIR, where DIR is --out of train");
    if (!failed && o->json && o->out)
        failed = pt_fail(e, PT_USAGE, "--json writes no page: leave out --out or --json");
    return failed;
}

static int print_json(const pt_report *r, pt_error *e)
{
    char *text = pt_report_json(r);
    if (!text)
        return pt_fail(e, PT_FAILED, "out of memory");
    puts(text);
    free(text);
    return 0;
}

static int write_page(const options *o, const pt_report *r, pt_error *e)
{
    const char *written;
    int failed = pt_report_write(r, o->out, &written, e);
    if (!failed)
        printf("%s\n", written);
    return failed;
}

/* The same of a folder of protrain ritz. Returns 1 if it is one, else 0. */
static int report_ritz(const options *o, pt_error *e)
{
    char *json = NULL;
    const int found = o->json ? pt_ritz_report_json(o->folder, &json, e) : pt_ritz_report(o->folder, o->out, e);
    if (found > 0 && (json || o->out))
        puts(json ? json : o->out);
    else if (found > 0)
        printf("%s%sreport.html\n", o->folder, slash_after(o->folder));
    free(json);
    return found;
}

int command_report(int argc, char **argv)
{
    options o = {0};
    pt_error e = {0};
    pt_report *r = NULL;
    int failed = parse(&o, argc, argv, &e);
    if (failed == 1)
        return 0;
    const int found = failed ? failed : report_ritz(&o, &e);
    if (found)
        return found < 0 ? exit_with(&e) : 0;
    failed = pt_report_open(o.folder, &r, &e);
    for (int i = 0; !failed && pt_report_note(r, i); i++)
        progress_notice(&(progress){0}, pt_report_note(r, i));
    if (!failed)
        failed = o.json ? print_json(r, &e) : write_page(&o, r, &e);
    pt_report_close(r);
    return failed ? exit_with(&e) : 0;
}
