/* variance.c - the variance of the energy's gradient over point sets, and the page of such variances. */
#include "io/files.h"
#include "ritz/page.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Welford's algorithm: mean and sum of squared differences of each value. */
static int add_sets(pt_ritz *r, int sets, double *gradient, double *mean, double *squares, pt_error *e)
{
    for (int k = 0; k < sets; k++) {
        double energy;
        int failed = ritz_integrate(r, (uint64_t)k, &energy, e);
        if (!failed)
            failed = ritz_read_gradient(r, gradient, e);
        if (failed)
            return failed;
        for (int64_t i = 0; i < r->net.params; i++) {
            const double off = gradient[i] - mean[i];
            mean[i] += off / (k + 1);
            squares[i] += off * (gradient[i] - mean[i]);
        }
    }
    return 0;
}

static int open_like(pt_ritz *at, pt_ritz_points kind, int64_t n, pt_ritz **out, pt_error *e)
{
    pt_ritz_options o = at->o;
    o.points = kind;
    if ((points_randomize)o.randomize != RANDOMIZE_DEFAULT && kind != at->o.points)
        o.randomize = PT_RITZ_RANDOMIZE_DEFAULT;
    o.n = n;
    o.n_boundary = 0;
    o.out = NULL;
    o.plan_file = NULL; /* which is for at's points */
    o.resume = false;
    o.notice = NULL;
    int failed = pt_ritz_open(&o, out, e);
    if (failed)
        return failed;
    for (int c = 0; c < at->space.chunks_n && !failed; c++) {
        failed = ritz_slab(at, OBJECT_WEIGHTS, 0, c, true, e);
        memcpy((*out)->staging, at->staging, (size_t)at->space.chunks[c].values * dtype_bytes(at->net.type));
        if (!failed)
            failed = ritz_slab(*out, OBJECT_WEIGHTS, 0, c, false, e);
    }
    if (failed)
        pt_ritz_close(*out);
    return failed;
}

int pt_ritz_gradient_variance(pt_ritz *at, pt_ritz_points points, int64_t n, int sets, double *variance, double *mean_square, pt_error *e)
{
    pt_ritz *r;
    int failed = ritz_check_call(at, "pt_ritz_gradient_variance", true, e);
    if (!failed && !variance)
        failed = pt_fail_null(e, "pt_ritz_gradient_variance", "variance");
    if (!failed && sets < 2)
        failed = pt_fail(e, PT_USAGE, "a variance needs at least 2 point sets, but %d were asked for", sets);
    if (!failed)
        failed = open_like(at, points, n, &r, e);
    if (failed)
        return failed;
    const size_t params = (size_t)r->net.params;
    double *work = calloc(3 * params, sizeof *work), length = 0;
    *variance = 0;
    failed = work ? add_sets(r, sets, work, work + params, work + 2 * params, e) : pt_fail(e, PT_FAILED, "out of memory");
    for (size_t i = 0; i < params && !failed; i++) {
        *variance += work[2 * params + i] / (sets - 1);
        length += work[params + i] * work[params + i];
    }
    if (mean_square)
        *mean_square = length;
    free(work);
    pt_ritz_close(r);
    return failed;
}

double pt_ritz_slope(int n, const double *x, const double *y)
{
    if (n < 2 || !x || !y)
        return NAN;
    double mx = 0, my = 0, xy = 0, xx = 0;
    for (int i = 0; i < n; i++)
        mx += log(x[i]) / n, my += log(y[i]) / n;
    for (int i = 0; i < n; i++)
        xy += (log(x[i]) - mx) * (log(y[i]) - my), xx += (log(x[i]) - mx) * (log(x[i]) - mx);
    return xy / xx;
}

/* ---- the page ---- */

typedef struct names { char of[PT_RITZ_KINDS][48]; } names;

/* The curves are called by their kinds and slopes. */
static ritz_figure figure_of(const pt_ritz_variances *v, names *names)
{
    ritz_figure f = {v->title, "points", true, true, v->kinds, {{0}}};
    for (int k = 0; k < v->kinds; k++) {
        snprintf(names->of[k], sizeof names->of[k], "%s, slope %.2f", pt_ritz_points_name(v->points[k]),
                 pt_ritz_slope(v->sizes, v->n, v->variance[k]));
        f.curves[k] = (ritz_curve){names->of[k], v->sizes, v->n, v->variance[k], NULL};
    }
    return f;
}

static int check_figures(const pt_ritz_variances *v, int n, pt_error *e)
{
    for (int i = 0; i < n; i++) {
        if (v[i].kinds < 0 || v[i].kinds > PT_RITZ_KINDS || v[i].sizes < 0)
            return pt_fail(e, PT_USAGE, "figure %d has %d kinds and %d sizes: 0 to %d kinds are possible, and no negative number of sizes",
                           i + 1, v[i].kinds, v[i].sizes, PT_RITZ_KINDS);
        bool whole = v[i].title && v[i].n;
        for (int k = 0; k < v[i].kinds; k++)
            whole &= v[i].variance[k] && pt_ritz_points_name(v[i].points[k]);
        if (!whole)
            return pt_fail(e, PT_USAGE, "figure %d has no title, no numbers of points, or a kind without a name or variances", i + 1);
    }
    return 0;
}

int pt_ritz_variance_report(const char *folder, const char *title, const pt_ritz_variances *figures, int n, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    if (!folder || !title || (n > 0 && !figures))
        return pt_fail_null(e, "pt_ritz_variance_report", !folder ? "folder" : !title ? "title" : "figures");
    int failed = check_figures(figures, n, e);
    if (failed || n < 1)
        return failed ? failed : pt_fail(e, PT_USAGE, "a page needs at least 1 figure, but there are %d", n);
    if (ritz_is_run(folder) || ritz_is_comparison(folder))
        return pt_fail(e, PT_FAILED, "%.400s holds a run or a comparison, which has a page of its own: choose another folder", folder);
    ritz_figure *drawn = calloc((size_t)n, sizeof *drawn);
    names *words = calloc((size_t)n, sizeof *words);
    failed = drawn && words ? dir_make(folder, e) : pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < n && !failed; i++)
        drawn[i] = figure_of(&figures[i], &words[i]);
    if (!failed)
        failed = path_join(path, folder, "report.html", e);
    if (!failed)
        failed = ritz_page_write(path, title, "<p>Variance of the energy's gradient, summed over all parameters, against the "
                                              "number of points.</p>\n", drawn, n, e);
    free(drawn);
    free(words);
    return failed;
}
