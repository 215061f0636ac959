#include "args.h"
#include "commands.h"

#include "io/files.h"
#include "report/page.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct options {
    const char *folder, *out;
    bool json;
} options;

static const char usage[] =
    "usage: protrain report DIR [--out FILE.html] [--json]\n\n"
    "Makes a page of a run: what was run, its curves, step time and memory beside what was predicted. One file,\n"
    "which needs no network and no scripts.";

static int parse(options *o, int argc, char **argv, pt_error *e)
{
    const arg table[] = {
        {"DIR", ARG_OPERAND, &o->folder, NULL, "the run's folder, --out of train; it may still be running", false},
        {"--out", ARG_STRING, &o->out, "FILE", "where the page is written; default DIR/report.html", false},
        {"--json", ARG_FLAG, &o->json, NULL, "a summary as one JSON object on stdout, and no page", false},
    };
    int failed = args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
    if (!failed && !o->folder)
        failed = pt_fail(e, PT_USAGE, "no folder: protrain report DIR, the folder that train's --out named");
    if (!failed && o->json && o->out)
        failed = pt_fail(e, PT_USAGE, "--json writes no page: leave out --out, or --json");
    return failed;
}

static int print_json(const run_folder *r, pt_error *e)
{
    json_t *object = run_folder_json(r);
    if (!object)
        return pt_fail(e, PT_FAILED, "out of memory");
    json_dumpf(object, stdout, JSON_INDENT(2));
    json_decref(object);
    puts("");
    return 0;
}

static int write_page(const options *o, const run_folder *r, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    size_t n;
    int failed = o->out ? 0 : path_join(path, o->folder, "report.html", e);
    if (failed)
        return failed;
    const char *to = o->out ? o->out : path;
    char *text = page_make(r, &n);
    failed = text ? file_write_atomic(to, text, n, e) : pt_fail(e, PT_FAILED, "out of memory");
    free(text);
    if (!failed)
        printf("%s\n", to);
    return failed;
}

int command_report(int argc, char **argv)
{
    options o = {0};
    pt_error e = {0};
    run_folder *r = NULL;
    int failed = parse(&o, argc, argv, &e);
    if (failed == 1)
        return 0;
    if (!failed)
        failed = run_folder_read(o.folder, &r, &e);
    for (int i = 0; !failed && i < r->notes_n; i++)
        fprintf(stderr, "note: %s\n", r->notes[i]);
    if (!failed)
        failed = o.json ? print_json(r, &e) : write_page(&o, r, &e);
    run_folder_free(r);
    return failed ? exit_with(&e) : 0;
}
