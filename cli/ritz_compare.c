/* ritz_compare.c - compares kinds of points: the same training with each of them and with several seeds; the errors as a table, a page
 * and JSON. */
#include "interrupt.h"
#include "ritz.h"

#include "base/error.h"
#include "base/units.h"
#include "io/files.h"
#include "ritz/page.h"
#include "ritz/points.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_MOST = 4096 };

/* The errors of the runs with one kind of points. They were estimated at the same n steps in each run. */
typedef struct outcome {
    int n, seeds;
    double *step;          /* (n) */
    double *l2;            /* (seeds, CURVE_MOST), of which the first n of a row are used */
    double *median, *band; /* over seeds: (n), and (n, 2) for the least and the largest */
    double *last;          /* (seeds, 2): L2 and H1 error at the end */
} outcome;

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

/* The folder of a run, such as OUT/sobol-0. */
static int run_folder(const char *out, pt_ritz_points kind, int seed, char folder[FILE_PATH_BYTES], pt_error *e)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%d", points_names[kind], seed);
    return path_join(folder, out, name, e);
}

/* Reads the errors of a finished run. If runs differ in length, to->n becomes that of the shortest. Returns the number read. */
static int read_outcome(const char *folder, int seed, outcome *to, pt_error *e)
{
    double *l2 = NULL, *h1 = NULL;
    const int n = ritz_read_metrics(folder, "l2_error", &l2, e), m = n < 0 ? n : ritz_read_metrics(folder, "h1_error", &h1, e);
    if (m > 0) {
        const int most = seed ? to->n : (int)CURVE_MOST;
        to->n = n < most ? n : most;
        memcpy(to->step, l2, (size_t)to->n * sizeof *l2);
        memcpy(to->l2 + (size_t)seed * CURVE_MOST, l2 + n, (size_t)to->n * sizeof *l2);
        to->last[2 * seed] = l2[2 * n - 1];
        to->last[2 * seed + 1] = h1[2 * m - 1];
    }
    free(l2);
    free(h1);
    return m;
}

static int run_one(ritz_session *s, const char *out, pt_ritz_points kind, int seed, outcome *to, pt_error *e)
{
    ritz_session one = *s;
    bool stopped;
    char folder[FILE_PATH_BYTES];
    int failed = run_folder(out, kind, seed, folder, e);
    one.o.out = folder;
    one.o.points = kind;
    one.o.randomize = kind == s->o.points ? s->o.randomize : PT_RITZ_RANDOMIZE_DEFAULT;
    one.o.seed = s->o.seed + (uint64_t)seed;
    one.o.arg = &s->bar;
    one.quiet = one.part = true;
    if (!failed)
        failed = ritz_train(&one, &stopped, e);
    if (failed || stopped)
        return failed;
    const int m = read_outcome(folder, seed, to, e);
    return m < 0 ? m : m ? 0 : pt_fail(e, PT_FAILED, "%s has no errors to compare", folder);
}

static void summarize(outcome *o, double *work)
{
    for (int i = 0; i < o->n; i++) {
        for (int k = 0; k < o->seeds; k++)
            work[k] = o->l2[(size_t)k * CURVE_MOST + (size_t)i];
        o->median[i] = median_of(work, o->seeds);
        o->band[2 * i] = work[0];
        o->band[2 * i + 1] = work[o->seeds - 1];
    }
}

static bool outcome_open(outcome *o, int seeds)
{
    o->seeds = seeds;
    o->step = calloc(CURVE_MOST * (size_t)(4 + seeds) + 2 * (size_t)seeds, sizeof *o->step);
    if (!o->step)
        return false;
    o->median = o->step + CURVE_MOST;
    o->band = o->median + CURVE_MOST;
    o->l2 = o->band + 2 * CURVE_MOST;
    o->last = o->l2 + (size_t)seeds * CURVE_MOST;
    return true;
}

/* Fails before the first run if there is no exact solution to compare with. */
static int check_exact(const ritz_session *s, pt_error *e)
{
    pt_ritz_options o = s->o;
    pt_ritz_summary m;
    pt_ritz *r;
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

/* The errors at the end: the L2 error's median and range over seeds, the H1 error's median. */
typedef struct result { double l2, least, largest, h1; } result;

static result result_of(const outcome *o, double *work)
{
    result r;
    for (int k = 0; k < o->seeds; k++)
        work[k] = o->last[2 * k + 1];
    r.h1 = median_of(work, o->seeds);
    for (int k = 0; k < o->seeds; k++)
        work[k] = o->last[2 * k];
    r.l2 = median_of(work, o->seeds);
    r.least = work[0];
    r.largest = work[o->seeds - 1];
    return r;
}

/* Writes one row per kind, as text or HTML. */
static void write_table(FILE *out, bool html, const pt_ritz_points *kinds, const outcome *o, int n, double *work)
{
    fprintf(out, html ? "<table><tr><th>points</th><th>L2 error</th><th>least</th><th>largest</th><th>H1 error</th></tr>\n"
                      : "points    L2 error (median)      least    largest   H1 error (median)\n");
    for (int i = 0; i < n; i++) {
        const result r = result_of(&o[i], work);
        fprintf(out, html ? "<tr><td>%s</td><td>%.3e</td><td>%.3e</td><td>%.3e</td><td>%.3e</td></tr>\n"
                          : "%-8s  %17.3e  %9.3e  %9.3e   %17.3e\n",
                points_names[kinds[i]], r.l2, r.least, r.largest, r.h1);
    }
    if (html)
        fputs("</table>\n", out);
}

static void print_json(const pt_ritz_points *kinds, const outcome *o, int n, double *work)
{
    printf("{\"kinds\": [");
    for (int i = 0; i < n; i++) {
        const result r = result_of(&o[i], work);
        printf("%s{\"points\": \"%s\", \"seeds\": %d, \"steps\": %.0f, \"l2_error\": {\"median\": %.9g, \"least\": %.9g, "
               "\"largest\": %.9g}, \"h1_error\": {\"median\": %.9g}}",
               i ? ", " : "", points_names[kinds[i]], o[i].seeds, o[i].n ? o[i].step[o[i].n - 1] : 0, r.l2, r.least, r.largest, r.h1);
    }
    printf("]}\n");
}

/* Writes the page. `lead` is its first paragraph. */
static int write_comparison(const char *file, const char *title, const char *lead, const pt_ritz_points *kinds, const outcome *o, int n,
                            double *work, pt_error *e)
{
    ritz_figure f = {"relative L2 error: median and range over seeds", "step", false, true, n, {{0}}};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return pt_fail(e, PT_FAILED, "out of memory");
    fprintf(out, "<p>%s</p>\n", lead);
    write_table(out, true, kinds, o, n, work);
    fclose(out);
    for (int i = 0; i < n; i++)
        f.curves[i] = (ritz_curve){points_names[kinds[i]], o[i].n, o[i].step, o[i].median, o[i].band};
    int failed = ritz_page_write(file, title, text, &f, 1, e);
    free(text);
    return failed;
}

static int finish_comparison(const ritz_session *s, const pt_ritz_points *kinds, const outcome *o, int n, double *work, pt_error *e)
{
    char path[FILE_PATH_BYTES], lead[160];
    snprintf(lead, sizeof lead, "%lld point%s a step, %lld step%s, %d seed%s", (long long)s->o.n, plural((uint64_t)s->o.n),
             (long long)s->o.steps, plural((uint64_t)s->o.steps), o->seeds, plural((uint64_t)o->seeds));
    if (s->json)
        print_json(kinds, o, n, work);
    else
        write_table(stdout, false, kinds, o, n, work);
    int failed = path_join(path, s->o.out, "report.html", e);
    return failed ? failed : write_comparison(path, s->o.problem, lead, kinds, o, n, work, e);
}

int ritz_compare(ritz_session *s, pt_error *e)
{
    pt_ritz_points kinds[RITZ_KINDS];
    outcome o[RITZ_KINDS] = {{0}};
    const int seeds = s->seeds ? (int)s->seeds : 3, n = ritz_kinds(s->compare, NULL, kinds, e);
    if (n < 0)
        return n;
    if (!s->o.out)
        return pt_fail(e, PT_USAGE, "--compare needs --out DIR, the folder for the runs and the report");
    if (*s->o.out && ritz_is_comparison(s->o.out))
        return pt_fail(e, PT_FAILED, "%.400s already holds runs of a comparison: give another --out", s->o.out);
    int failed = check_exact(s, e);
    if (failed)
        return failed;
    double *work = malloc((size_t)seeds * sizeof *work);
    failed = work ? dir_make(s->o.out, e) : pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < n && !failed; i++) {
        if (!outcome_open(&o[i], seeds))
            failed = pt_fail(e, PT_FAILED, "out of memory");
        for (int k = 0; k < seeds && !failed && !interrupt_signal(); k++)
            failed = run_one(s, s->o.out, kinds[i], k, &o[i], e);
        if (!failed)
            summarize(&o[i], work);
    }
    if (!failed && !interrupt_signal())
        failed = finish_comparison(s, kinds, o, n, work, e);
    for (int i = 0; i < n; i++)
        free(o[i].step);
    free(work);
    return failed;
}

/* ---- the report of an earlier comparison ---- */

/* The number of finished runs with a kind of points: seeds 0, 1, ... without a gap. */
static int count_runs(const char *folder, pt_ritz_points kind)
{
    char run[FILE_PATH_BYTES];
    int n = 0;
    while (n < RITZ_SEEDS_MOST && !run_folder(folder, kind, n, run, NULL) && ritz_has_metrics(run, "h1_error"))
        n++;
    return n;
}

const char *ritz_first_run(const char *folder)
{
    static char name[24];
    for (int k = 0; k < RITZ_KINDS; k++)
        if (count_runs(folder, (pt_ritz_points)k)) {
            snprintf(name, sizeof name, "%s-0", points_names[k]);
            return name;
        }
    return NULL;
}

bool ritz_is_comparison(const char *folder) { return ritz_first_run(folder); }

static int read_kind(const char *folder, pt_ritz_points kind, outcome *o, double *work, pt_error *e)
{
    char run[FILE_PATH_BYTES];
    int failed = 0;
    for (int k = 0; k < o->seeds && !failed; k++) {
        failed = run_folder(folder, kind, k, run, e);
        if (!failed && read_outcome(run, k, o, e) <= 0)
            failed = PT_FAILED;
    }
    if (!failed)
        summarize(o, work);
    return failed;
}

int ritz_comparison_report(const char *folder, const char *file, pt_error *e)
{
    pt_ritz_points kinds[RITZ_KINDS];
    outcome o[RITZ_KINDS] = {{0}};
    int n = 0, failed = 0;
    char lead[96];
    double *work = malloc(RITZ_SEEDS_MOST * sizeof *work);
    for (int k = 0; k < RITZ_KINDS && !failed; k++) {
        const int seeds = count_runs(folder, (pt_ritz_points)k);
        if (!seeds)
            continue;
        kinds[n] = (pt_ritz_points)k;
        failed = work && outcome_open(&o[n], seeds) ? read_kind(folder, kinds[n], &o[n], work, e) : pt_fail(e, PT_FAILED, "out of memory");
        n++;
    }
    snprintf(lead, sizeof lead, "up to %.0f steps, %d seed%s", n && !failed && o->n ? o->step[o->n - 1] : 0, o->seeds,
             plural((uint64_t)o->seeds));
    if (!failed && !file)
        print_json(kinds, o, n, work);
    else if (!failed)
        failed = write_comparison(file, folder, lead, kinds, o, n, work, e);
    for (int i = 0; i < n; i++)
        free(o[i].step);
    free(work);
    return failed;
}
