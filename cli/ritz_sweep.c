/* ritz_sweep.c - --sweep: the comparison of --compare for several numbers of points, or widths, each in a folder of its own, such as
 * OUT/n-256; then how the errors fall, as a table, sweep.csv and a page. */
#include "interrupt.h"
#include "ritz.h"

#include "base/error.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { VALUES_MOST = 24, PATH_BYTES = 4096 };

typedef struct sweep {
    bool of_width;
    int n, kinds_n;
    ritz_set kinds[PT_RITZ_SETS];
    double value[VALUES_MOST], mean[PT_RITZ_SETS][VALUES_MOST], error[PT_RITZ_SETS][VALUES_MOST]; /* of L2; error: standard */
} sweep;

/* "n=256,1024" or "width=16,32" */
static int parse(const char *text, sweep *w, pt_error *e)
{
    w->of_width = !strncmp(text, "width=", 6);
    const char *at = w->of_width ? text + 6 : text + 2;
    if (!w->of_width && strncmp(text, "n=", 2))
        return pt_fail(e, PT_USAGE, "--sweep %.100s: give n=256,1024,... or width=16,32,...", text);
    for (char *end; w->n < VALUES_MOST; at = end + 1) {
        const long long value = strtoll(at, &end, 10);
        if (end == at || value < 1 || (*end && *end != ',') || (w->n && value <= w->value[w->n - 1]))
            return pt_fail(e, PT_USAGE, "--sweep %.100s: give whole numbers that rise, separated by commas", text);
        w->value[w->n++] = (double)value;
        if (!*end)
            return w->n > 1 ? 0 : pt_fail(e, PT_USAGE, "--sweep %.100s: give at least two numbers", text);
    }
    return pt_fail(e, PT_USAGE, "--sweep takes at most %d numbers", VALUES_MOST);
}

static int run_value(ritz_session *s, sweep *w, int i, pt_error *e)
{
    ritz_session one = *s;
    pt_ritz_comparison rows[PT_RITZ_SETS];
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.4000s%s%s-%.0f", s->o.out, slash_after(s->o.out), w->of_width ? "width" : "n", w->value[i]);
    one.o.out = folder;
    one.o.arg = &s->bar;
    one.quiet = true;
    one.o.n = w->of_width ? s->o.n : (int64_t)w->value[i];
    one.o.width = w->of_width ? (int64_t)w->value[i] : s->o.width;
    one.swept = true;
    int failed = ritz_compare(&one, e);
    const int n = failed || interrupt_signal() ? 0 : pt_ritz_compared(folder, rows, e);
    for (int k = 0; k < w->kinds_n; k++)
        for (int row = 0; row < n; row++)
            if (rows[row].points == w->kinds[k].points && rows[row].randomize == w->kinds[k].randomize) {
                w->mean[k][i] = rows[row].l2_mean;
                w->error[k][i] = rows[row].seeds > 1 ? rows[row].l2_mean * log(rows[row].l2_high / rows[row].l2_low) / 2 / 1.96 : 0;
            }
    return n < 0 ? n : failed;
}

static void print_sweep(const sweep *w)
{
    printf("%9s", w->of_width ? "width" : "n");
    for (int k = 0; k < w->kinds_n; k++)
        printf("  %12s +-95%%", w->kinds[k].name);
    for (int i = 0; i < w->n; i++) {
        printf("\n%9.0f", w->value[i]);
        for (int k = 0; k < w->kinds_n; k++)
            printf("  %12.3e %4.0f%%", w->mean[k][i], 196 * w->error[k][i] / w->mean[k][i]);
    }
    printf("\n    slope");
    for (int k = 0; k < w->kinds_n; k++)
        printf("  %12.2f %5.2f", pt_ritz_slope(w->n, w->value, w->mean[k]),
               1.96 * pt_ritz_slope_error(w->n, w->value, w->mean[k], w->error[k]));
    printf("\n");
}

static int write_sweep(const ritz_session *s, const sweep *w, pt_error *e)
{
    FILE *out = ritz_open_table(s, "sweep.csv", e);
    if (!out)
        return PT_FAILED;
    fprintf(out, "%s,points,l2_mean,standard_error\n", w->of_width ? "width" : "n");
    for (int k = 0; k < w->kinds_n; k++)
        for (int i = 0; i < w->n; i++)
            fprintf(out, "%.0f,%s,%.9g,%.9g\n", w->value[i], w->kinds[k].name, w->mean[k][i], w->error[k][i]);
    int failed = ritz_close_table(out, "sweep.csv", e);
    pt_ritz_variances figure = {.title = "L2 error: geometric mean over seeds", .x_title = w->of_width ? "width" : "points",
                                .about = w->of_width ? "L2 errors at the ends of the runs against the width of the network"
                                                     : "L2 errors at the ends of the runs against the number of points",
                                .sizes = w->n, .n = w->value, .kinds = w->kinds_n};
    for (int k = 0; k < w->kinds_n; k++) {
        figure.points[k] = w->kinds[k].points;
        figure.randomize[k] = w->kinds[k].randomize;
        figure.variance[k] = w->mean[k];
        figure.error[k] = w->error[k];
    }
    return failed ? failed : pt_ritz_variance_report(s->o.out, s->o.problem, &figure, 1, e);
}

int ritz_sweep(ritz_session *s, pt_error *e)
{
    static sweep w;
    int failed = parse(s->sweep, &w, e);
    w.kinds_n = failed ? 0 : ritz_sets(s->compare, NULL, w.kinds, e);
    if (failed || w.kinds_n < 0)
        return failed ? failed : w.kinds_n;
    if (!s->o.out || !*s->o.out)
        return pt_fail(e, PT_USAGE, "--sweep needs --out DIR, the folder for the runs and the report");
    if (s->json)
        return pt_fail(e, PT_USAGE, "--sweep prints no JSON: its numbers are in sweep.csv in --out");
    if (mkdir(s->o.out, 0777) && !s->o.resume)
        return pt_fail(e, PT_FAILED, "%.400s exists or cannot be made: give --resume to continue a sweep, or another --out", s->o.out);
    for (int i = 0; i < w.n && !failed && !interrupt_signal(); i++)
        failed = run_value(s, &w, i, e);
    if (failed || interrupt_signal())
        return failed;
    print_sweep(&w);
    return write_sweep(s, &w, e);
}
