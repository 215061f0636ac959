/* ritz_compare.c - compares sets of points: the same training with each of them and with several seeds; the errors as a table, a page
 * and JSON. */
#include "interrupt.h"
#include "ritz.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static int path_in_out(const ritz_session *s, const char *name, char path[PATH_BYTES], pt_error *e)
{
    const int n = snprintf(path, PATH_BYTES, "%s%s%s", s->o.out, slash_after(s->o.out), name);
    return n < PATH_BYTES ? 0 : pt_fail(e, PT_FAILED, "%.300s...: the path is longer than %d bytes; use a shorter one", s->o.out,
                                        PATH_BYTES - 1);
}

/* With --resume, runs that are finished stay as they are, and one that was interrupted goes on. */
static void use_set(const ritz_session *s, const ritz_set *set, pt_ritz_options *o)
{
    o->points = set->points;
    o->randomize = set->randomize || set->points != s->o.points ? set->randomize : s->o.randomize;
}

static int run_one(ritz_session *s, const ritz_set *set, int seed, pt_error *e)
{
    ritz_session one = *s;
    bool stopped;
    char name[40], folder[PATH_BYTES];
    snprintf(name, sizeof name, "%s-%d", set->name, seed);
    char *colon = strchr(name, ':');
    if (colon)
        *colon = '-';
    int failed = path_in_out(s, name, folder, e);
    if (failed)
        return failed;
    one.o.resume = s->o.resume && !access(folder, F_OK);
    one.o.out = folder;
    use_set(s, set, &one.o);
    one.o.seed = s->o.seed + (uint64_t)seed;
    one.o.arg = &s->bar;
    one.quiet = one.part = true;
    return ritz_train(&one, &stopped, e);
}

/* Fails before the first run if there is no exact solution to compare with, or if a set of points is not possible. */
static int check_run(const ritz_session *s, const ritz_set *set, pt_error *e)
{
    pt_ritz_options o = s->o;
    pt_ritz_summary m;
    pt_ritz *r;
    use_set(s, set, &o);
    o.plan_only = true;
    o.notice = NULL;
    int failed = pt_ritz_open(&o, &r, e);
    if (failed)
        return failed;
    pt_ritz_get_summary(r, &m);
    pt_ritz_close(r);
    if (m.has_exact)
        return 0;
    return pt_fail(e, PT_USAGE, "%s: --compare needs an exact solution to compute errors, and none is known; a problem file gives it as "
                                "\"exact\"", s->o.problem);
}

static void print_table(const pt_ritz_comparison *rows, int n)
{
    printf("points          L2 error (median)      least    largest       mean, and its interval of 95%%   H1 error (median)\n");
    for (int i = 0; i < n; i++) {
        char interval[48] = "unknown with one run", set[PT_RITZ_SET_BYTES];
        if (rows[i].seeds > 1)
            snprintf(interval, sizeof interval, "%.3e to %.3e", rows[i].l2_low, rows[i].l2_high);
        printf("%-14s  %17.3e  %9.3e  %9.3e  %9.3e, %22s   %17.3e\n", pt_ritz_set_name(rows[i].points, rows[i].randomize, set),
               rows[i].l2_median, rows[i].l2_least, rows[i].l2_largest, rows[i].l2_mean, interval, rows[i].h1_median);
    }
}

static int write_csv(const ritz_session *s, const pt_ritz_comparison *rows, int n, pt_error *e)
{
    FILE *out = ritz_open_table(s, "comparison.csv", e);
    if (!out)
        return PT_FAILED;
    fputs("points,seeds,steps,l2_median,l2_least,l2_largest,l2_mean,l2_low,l2_high,h1_median\n", out);
    for (int i = 0; i < n; i++) {
        char set[PT_RITZ_SET_BYTES];
        fprintf(out, "%s,%d,%lld,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n", pt_ritz_set_name(rows[i].points, rows[i].randomize, set),
                rows[i].seeds, (long long)rows[i].steps, rows[i].l2_median, rows[i].l2_least, rows[i].l2_largest, rows[i].l2_mean,
                rows[i].l2_low, rows[i].l2_high, rows[i].h1_median);
    }
    return ritz_close_table(out, "comparison.csv", e);
}

static int print_json(const char *folder, pt_error *e)
{
    char *json;
    const int found = pt_ritz_report_json(folder, &json, e);
    if (found > 0)
        puts(json);
    free(json);
    return found < 0 ? found : 0;
}

static int finish_comparison(const ritz_session *s, pt_error *e)
{
    pt_ritz_comparison rows[PT_RITZ_SETS];
    const int n = pt_ritz_compared(s->o.out, rows, e);
    int failed = n < 0 ? n : s->json ? print_json(s->o.out, e) : 0;
    if (!failed && !s->json && !s->swept)
        print_table(rows, n);
    if (!failed)
        failed = write_csv(s, rows, n, e);
    const int written = failed ? failed : pt_ritz_report(s->o.out, NULL, e);
    return written < 0 ? written : 0;
}

/* Whether the runs may be in --out. */
static int check_out(const ritz_session *s, pt_error *e)
{
    pt_ritz_comparison before[PT_RITZ_SETS];
    char path[PATH_BYTES];
    if (!s->o.out)
        return pt_fail(e, PT_USAGE, "--compare needs --out DIR, the folder for the runs and the report");
    if (!*s->o.out)
        return 0; /* pt_ritz_open refuses it */
    if (!s->o.resume && pt_ritz_compared(s->o.out, before, NULL) > 0)
        return pt_fail(e, PT_FAILED, "%.400s already holds runs of a comparison: give --resume to continue it, or another --out", s->o.out);
    int failed = path_in_out(s, "metrics.jsonl", path, e);
    return failed || access(path, F_OK) ? failed : pt_fail(e, PT_FAILED, "%.400s holds a run: give another --out", s->o.out);
}

int ritz_compare(ritz_session *s, pt_error *e)
{
    ritz_set sets[PT_RITZ_SETS];
    const int seeds = s->seeds ? (int)s->seeds : 3, n = ritz_sets(s->compare, NULL, sets, e);
    if (n < 0)
        return n;
    int failed = check_out(s, e);
    for (int i = 0; i < n && !failed; i++)
        failed = check_run(s, &sets[i], e);
    for (int i = 0; i < n && !failed; i++)
        for (int k = 0; k < seeds && !failed && !interrupt_signal(); k++)
            failed = run_one(s, &sets[i], k, e);
    return failed || interrupt_signal() ? failed : finish_comparison(s, e);
}
