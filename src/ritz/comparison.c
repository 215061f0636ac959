/* comparison.c - a folder with runs of one problem, which differ in their sets of points and in their seed: the errors at their ends as
 * rows and as JSON, and the page with the curves of errors and energies. */
#include "base/median.h"
#include "base/units.h"
#include "io/files.h"
#include "ritz/config.h"
#include "ritz/energy.h"
#include "ritz/page.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_MOST = 4096 };
enum { OF_L2, OF_H1, OF_ENERGY, CURVES };
static const char *const keys[CURVES] = {"l2_error", "h1_error", NULL}; /* NULL: ritz_loss_key */

/* The runs with one set of points. Their errors were estimated at the same n steps in each run; their energies are of the same steps. */
typedef struct outcome {
    pt_ritz_points points; pt_ritz_randomize randomize;
    char name[PT_RITZ_SET_BYTES];
    int n, seeds;
    double *step;                          /* (n) */
    double *values[CURVES];                /* (seeds, CURVE_MOST), of which the first n of a row are used */
    double *median[CURVES], *band[CURVES]; /* over seeds: (n), and (n, 2) for the least and the largest */
    double *last;                          /* (seeds, CURVES): at the end */
    double *work;                          /* (seeds) */
} outcome;

static bool outcome_open(outcome *o, int seeds)
{
    const size_t rows = (size_t)seeds;
    o->seeds = seeds;
    o->step = calloc(CURVE_MOST * (1 + CURVES * (3 + rows)) + (CURVES + 1) * rows, sizeof *o->step);
    if (!o->step)
        return false;
    double *at = o->step + CURVE_MOST;
    for (int c = 0; c < CURVES; c++) {
        o->median[c] = at;
        o->band[c] = at + CURVE_MOST;
        o->values[c] = at + 3 * CURVE_MOST;
        at += CURVE_MOST * (3 + rows);
    }
    o->last = at;
    o->work = at + CURVES * rows;
    return true;
}

static void summarize(outcome *o)
{
    for (int c = 0; c < CURVES; c++)
        for (int i = 0; i < o->n; i++) {
            for (int k = 0; k < o->seeds; k++)
                o->work[k] = o->values[c][(size_t)k * CURVE_MOST + (size_t)i];
            o->median[c][i] = median(o->work, o->seeds);
            o->band[c][2 * i] = o->work[0];
            o->band[c][2 * i + 1] = o->work[o->seeds - 1];
        }
}

/* The median at the end; o->work is then in order. */
static double last_median(const outcome *o, int curve)
{
    for (int k = 0; k < o->seeds; k++)
        o->work[k] = o->last[CURVES * k + curve];
    return median(o->work, o->seeds);
}

static pt_ritz_comparison row_of(const outcome *o)
{
    pt_ritz_comparison row = {.points = o->points, .randomize = o->randomize, .seeds = o->seeds,
                              .steps = o->n ? (int64_t)o->step[o->n - 1] : 0};
    row.h1_median = last_median(o, OF_H1);
    row.l2_median = last_median(o, OF_L2);
    row.l2_least = o->work[0];
    row.l2_largest = o->work[o->seeds - 1];
    for (int k = 0; k < o->seeds; k++)
        o->work[k] = log(o->work[k]);
    const ritz_mean m = ritz_mean_of(o->work, o->seeds);
    row.l2_mean = exp(m.mean);
    row.l2_low = exp(m.mean - ritz_student(o->seeds) * m.error);
    row.l2_high = exp(m.mean + ritz_student(o->seeds) * m.error);
    return row;
}

/* ---- reading ---- */

/* The folder of a run, such as FOLDER/sobol-0. */
static int run_folder(const char *folder, const outcome *o, int seed, char path[FILE_PATH_BYTES], pt_error *e)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%d", o->name, seed);
    char *colon = strchr(name, ':');
    if (colon)
        *colon = '-';
    return path_join(path, folder, name, e);
}

/* Whether there is the run of this seed, with its network, whose config.json is written last, and its errors. */
static bool is_finished(const char *folder, const outcome *o, int seed)
{
    char run[FILE_PATH_BYTES], config[FILE_PATH_BYTES];
    return !run_folder(folder, o, seed, run, NULL) && !path_join(config, run, "config.json", NULL) && path_exists(config) &&
           ritz_has_metrics(run, "h1_error");
}

enum { RANDOMIZATIONS = PT_RITZ_RANDOMIZE_TENT + 1, SETS_NAMED = PT_RITZ_KINDS * RANDOMIZATIONS };

/* Set number i of all that have a name. */
static outcome set_of(int i)
{
    outcome o = {.points = (pt_ritz_points)(i / RANDOMIZATIONS), .randomize = (pt_ritz_randomize)(i % RANDOMIZATIONS)};
    pt_ritz_set_name(o.points, o.randomize, o.name);
    return o;
}

bool ritz_is_comparison(const char *folder)
{
    for (int i = 0; i < SETS_NAMED; i++) {
        const outcome o = set_of(i);
        if (is_finished(folder, &o, 0))
            return true;
    }
    return false;
}

/* Of two columns of n numbers, the second at the steps of `step`, which are among those of the first. */
static void take_at(const double *step, int steps_n, const double *columns, int n, double *out)
{
    for (int i = 0, at = 0; i < steps_n; i++) {
        while (at < n - 1 && columns[at] < step[i])
            at++;
        out[i] = columns[n + at];
    }
}

/* Reads the errors and energies of a run. If runs differ in length, to->n becomes that of the shortest. */
static int read_run(const char *folder, int seed, outcome *to, pt_error *e)
{
    char run[FILE_PATH_BYTES];
    int failed = run_folder(folder, to, seed, run, e);
    for (int c = 0; c < CURVES && !failed; c++) {
        double *columns = NULL;
        const char *key = keys[c] ? keys[c] : ritz_loss_key(run);
        const int n = ritz_read_metrics(run, key, &columns, e), most = c || seed ? to->n : (int)CURVE_MOST;
        failed = n > 0 ? 0 : n < 0 ? n : pt_fail(e, PT_FAILED, "%s has no errors to compare", run);
        if (n > 0) {
            if (c == 0) {
                to->n = n < most ? n : most;
                memcpy(to->step, columns, (size_t)to->n * sizeof *columns);
            }
            take_at(to->step, to->n, columns, n, to->values[c] + (size_t)seed * CURVE_MOST);
            to->last[CURVES * seed + c] = columns[2 * n - 1];
        }
        free(columns);
    }
    return failed;
}

static void close_all(outcome o[PT_RITZ_SETS])
{
    for (int i = 0; i < PT_RITZ_SETS; i++)
        free(o[i].step);
}

/* Returns the number of sets. The caller closes them, also on error. */
static int read_all(const char *folder, outcome o[PT_RITZ_SETS], pt_error *e)
{
    int n = 0, failed = 0;
    memset(o, 0, PT_RITZ_SETS * sizeof *o);
    for (int k = 0; k < SETS_NAMED && !failed; k++) {
        const outcome set = set_of(k);
        int seeds = 0;
        while (seeds < PT_RITZ_SEEDS && is_finished(folder, &set, seeds))
            seeds++;
        if (!seeds)
            continue;
        if (n == PT_RITZ_SETS)
            return pt_fail(e, PT_FAILED, "%.400s holds runs with more than %d sets of points: remove those of some, such as %s",
                           folder, PT_RITZ_SETS, set.name);
        outcome *next = &o[n++];
        *next = set;
        failed = outcome_open(next, seeds) ? 0 : pt_fail(e, PT_FAILED, "out of memory");
        for (int i = 0; i < seeds && !failed; i++)
            failed = read_run(folder, i, next, e);
        if (!failed)
            summarize(next);
    }
    return failed ? failed : n;
}

int pt_ritz_compared(const char *folder, pt_ritz_comparison out[PT_RITZ_SETS], pt_error *e)
{
    outcome o[PT_RITZ_SETS];
    if (!folder || !out)
        return pt_fail_null(e, "pt_ritz_compared", folder ? "out" : "folder");
    const int n = read_all(folder, o, e);
    for (int i = 0; i < n; i++)
        out[i] = row_of(&o[i]);
    close_all(o);
    return n;
}

/* ---- writing ---- */

/* From the first run's folder: the problem's name, and "4096 points a step, 2000 steps, 3 seeds". */
static void describe(const char *folder, const outcome *first, char *title, size_t title_bytes, char *lead, size_t lead_bytes)
{
    char run[FILE_PATH_BYTES];
    pt_ritz_options o;
    problem problem = {0};
    int64_t n, steps;
    int failed = run_folder(folder, first, 0, run, NULL);
    const bool named = !failed && !ritz_config_read(run, &o, &problem, NULL) && problem.name[0];
    snprintf(title, title_bytes, "%s", named ? problem.name : folder);
    problem_close(&problem);
    const char *seeds = plural((uint64_t)first->seeds);
    if (!failed && !ritz_newest_size(run, &n, &steps))
        snprintf(lead, lead_bytes, "%lld point%s a step, %lld step%s, %d seed%s", (long long)n, plural((uint64_t)n), (long long)steps,
                 plural((uint64_t)steps), first->seeds, seeds);
    else
        snprintf(lead, lead_bytes, "up to %.0f steps, %d seed%s", first->n ? first->step[first->n - 1] : 0, first->seeds, seeds);
}

static const char *interval_of(const pt_ritz_comparison *row, char text[64])
{
    snprintf(text, 64, row->seeds > 1 ? "%.3e (%.3e to %.3e)" : "%.3e", row->l2_mean, row->l2_low, row->l2_high);
    return text;
}

static void write_table(FILE *out, const outcome *o, int n)
{
    char interval[64];
    fputs("<table><tr><th>points</th><th>L2 error, median</th><th>mean and its interval of 95%</th><th>least</th><th>largest</th>"
          "<th>H1 error</th></tr>\n", out);
    for (int i = 0; i < n; i++) {
        const pt_ritz_comparison row = row_of(&o[i]);
        fprintf(out, "<tr><td>%s</td><td>%.3e</td><td>%s</td><td>%.3e</td><td>%.3e</td><td>%.3e</td></tr>\n",
                o[i].name, row.l2_median, interval_of(&row, interval), row.l2_least, row.l2_largest, row.h1_median);
    }
    fputs("</table>\n", out);
}

static ritz_figure figure_of(const outcome *o, int n, int curve, const char *title)
{
    ritz_figure f = {title, "step", false, curve != OF_ENERGY, n, {{0}}};
    for (int i = 0; i < n; i++)
        f.curves[i] = (ritz_curve){o[i].name, o[i].n, o[i].step, o[i].median[curve], o[i].band[curve]};
    return f;
}

static bool is_residual(const char *folder, const outcome *first)
{
    char run[FILE_PATH_BYTES];
    return !run_folder(folder, first, 0, run, NULL) && !strcmp(ritz_loss_key(run), "residual");
}

static bool are_absolute(const char *folder, const outcome *first)
{
    char run[FILE_PATH_BYTES];
    return !run_folder(folder, first, 0, run, NULL) && ritz_has_metrics(run, "absolute_errors");
}

static int write_page(const char *folder, const char *file, const outcome *o, int n, pt_error *e)
{
    static const char *const titles[2][CURVES] = {
        {"relative L2 error: median and range over seeds", "relative H1 error: median and range over seeds",
         "energy: median and range over seeds"},
        {"L2 error: median and range over seeds", "H1 error: median and range over seeds", "energy: median and range over seeds"}};
    ritz_figure figures[CURVES];
    char *text = NULL, lead[160], title[FILE_PATH_BYTES];
    size_t bytes;
    describe(folder, o, title, sizeof title, lead, sizeof lead);
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return pt_fail(e, PT_FAILED, "out of memory");
    fprintf(out, "<p>%s</p>\n", lead);
    write_table(out, o, n);
    fclose(out);
    for (int c = 0; c < CURVES; c++)
        figures[c] = figure_of(o, n, c, c == OF_ENERGY && is_residual(folder, o) ? "residual loss: median and range over seeds"
                                                                                  : titles[are_absolute(folder, o)][c]);
    int failed = ritz_page_write(file, title, text, figures, CURVES, e);
    free(text);
    return failed;
}

int ritz_page_of_comparison(const char *folder, const char *file, pt_error *e)
{
    outcome o[PT_RITZ_SETS];
    const int n = read_all(folder, o, e);
    int failed = n < 0 ? n : write_page(folder, file, o, n, e);
    close_all(o);
    return failed;
}

/* JSON has no infinities: of one run the interval is the point. */
static double one(double bound, double mean) { return isfinite(bound) ? bound : mean; }

char *ritz_json_of_comparison(const char *folder, pt_error *e)
{
    pt_ritz_comparison rows[PT_RITZ_SETS];
    char *text = NULL;
    size_t bytes;
    const int n = pt_ritz_compared(folder, rows, e);
    FILE *out = n < 0 ? NULL : open_memstream(&text, &bytes);
    if (!out) {
        if (n >= 0)
            pt_fail(e, PT_FAILED, "out of memory");
        return NULL;
    }
    fputs("{\"kinds\": [", out);
    for (int i = 0; i < n; i++) {
        char name[PT_RITZ_SET_BYTES];
        fprintf(out, "%s{\"points\": \"%s\", \"seeds\": %d, \"steps\": %lld, \"l2_error\": {\"median\": %.9g, \"least\": %.9g, "
                     "\"largest\": %.9g, \"mean\": %.9g, \"low\": %.9g, \"high\": %.9g}, \"h1_error\": {\"median\": %.9g}}",
                i ? ", " : "", pt_ritz_set_name(rows[i].points, rows[i].randomize, name), rows[i].seeds, (long long)rows[i].steps,
                rows[i].l2_median, rows[i].l2_least, rows[i].l2_largest, rows[i].l2_mean, one(rows[i].l2_low, rows[i].l2_mean),
                one(rows[i].l2_high, rows[i].l2_mean), rows[i].h1_median);
    }
    fputs("]}", out);
    fclose(out);
    return text;
}
