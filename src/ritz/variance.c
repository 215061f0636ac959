/* variance.c - the variance of the energy's gradient over point sets, and the page of such variances. */
#include "base/rng.h"
#include "io/files.h"
#include "ritz/page.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Over the sets so far: by Welford's algorithm, the mean and the sum of squared differences of each value; and of each pair of sets, half
 * the squared distance of their gradients, which is an estimate of the variance of its own. */
typedef struct spread { double *gradient, *before, *mean, *squares; int sets; double pairs, pairs_squared; } spread;

static int add_set(pt_ritz *r, spread *s, pt_error *e)
{
    double energy, apart = 0;
    int failed = ritz_integrate(r, (uint64_t)s->sets, &energy, e);
    if (!failed)
        failed = ritz_read_gradient(r, s->gradient, e);
    if (failed)
        return failed;
    s->sets++;
    for (int64_t i = 0; i < r->net.params; i++) {
        const double off = s->gradient[i] - s->mean[i], step = s->gradient[i] - s->before[i];
        s->mean[i] += off / s->sets;
        s->squares[i] += off * (s->gradient[i] - s->mean[i]);
        apart += step * step / 2;
        s->before[i] = s->gradient[i];
    }
    if (s->sets % 2 == 0) {
        s->pairs += apart;
        s->pairs_squared += apart * apart;
    }
    return 0;
}

static void conclude(const pt_ritz *r, const spread *s, pt_ritz_spread *out)
{
    const int pairs = s->sets / 2;
    const double mean = s->pairs / pairs, square = s->pairs_squared / pairs - mean * mean;
    *out = (pt_ritz_spread){.sets = s->sets};
    for (int64_t i = 0; i < r->net.params; i++) {
        out->variance += s->squares[i] / (s->sets - 1);
        out->mean_square += s->mean[i] * s->mean[i];
    }
    out->standard_error = pairs > 1 ? sqrt(fmax(square, 0) / (pairs - 1)) : NAN;
}

/* Point sets of their own, for each number of points and each state of the training. */
static uint64_t seed_of(const pt_ritz *at, int64_t n)
{
    uint32_t w[4];
    rng_words(at->o.seed, RNG_POINTS, (uint32_t)at->step + 1, (uint64_t)n, w);
    return ((uint64_t)w[2] << 32 | w[3]) >> 1;
}

static int open_like(pt_ritz *at, pt_ritz_points kind, int64_t n, pt_ritz **out, pt_error *e)
{
    pt_ritz_options o = at->o;
    o.points = kind;
    if ((points_randomize)o.randomize != RANDOMIZE_DEFAULT && kind != at->o.points)
        o.randomize = PT_RITZ_RANDOMIZE_DEFAULT;
    o.n = n;
    o.seed = seed_of(at, n);
    o.init_run = NULL;
    o.lbfgs_steps = 0;
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

enum { MORE_SETS = 4 };
static const double wide = 0.2; /* of a standard error beside its variance */

int pt_ritz_gradient_spread(pt_ritz *at, pt_ritz_points points, int64_t n, int sets, pt_ritz_spread *out, pt_error *e)
{
    pt_ritz *r;
    int failed = ritz_check_call(at, "pt_ritz_gradient_spread", true, e);
    if (!failed && !out)
        failed = pt_fail_null(e, "pt_ritz_gradient_spread", "out");
    if (!failed && sets < 2)
        failed = pt_fail(e, PT_USAGE, "a variance needs at least 2 point sets, but %d were asked for", sets);
    if (!failed)
        failed = open_like(at, points, n, &r, e);
    if (failed)
        return failed;
    const size_t params = (size_t)r->net.params;
    spread s = {.gradient = calloc(4 * params, sizeof *s.gradient)};
    s.before = s.gradient + params, s.mean = s.before + params, s.squares = s.mean + params;
    failed = s.gradient ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t most = sets; !failed && s.sets < most;) {
        failed = add_set(r, &s, e);
        if (failed || s.sets < most)
            continue;
        conclude(r, &s, out);
        if (out->standard_error > wide * out->variance && most < (int64_t)MORE_SETS * sets)
            most *= 2;
    }
    free(s.gradient);
    pt_ritz_close(r);
    return failed;
}

int pt_ritz_gradient_variance(pt_ritz *at, pt_ritz_points points, int64_t n, int sets, double *variance, double *mean_square, pt_error *e)
{
    pt_ritz_spread s;
    if (!variance)
        return pt_fail_null(e, "pt_ritz_gradient_variance", "variance");
    int failed = pt_ritz_gradient_spread(at, points, n, sets, &s, e);
    if (failed)
        return failed;
    *variance = s.variance;
    if (mean_square)
        *mean_square = s.mean_square;
    return 0;
}

double pt_ritz_slope_error(int n, const double *x, const double *y, const double *y_error)
{
    double mx = 0, xx = 0, sum = 0;
    if (n < 2 || !x || !y || !y_error)
        return NAN;
    for (int i = 0; i < n; i++)
        mx += log(x[i]) / n;
    for (int i = 0; i < n; i++)
        xx += (log(x[i]) - mx) * (log(x[i]) - mx);
    for (int i = 0; i < n; i++) {
        const double share = (log(x[i]) - mx) / xx * y_error[i] / y[i];
        sum += share * share;
    }
    return sqrt(sum);
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

enum { SIZES_MOST = 64 };
typedef struct names { char of[PT_RITZ_KINDS][64]; double band[PT_RITZ_KINDS][2 * SIZES_MOST]; } names;

/* The curves are called by their kinds and slopes. */
static ritz_figure figure_of(const pt_ritz_variances *v, names *names)
{
    ritz_figure f = {v->title, v->x_title ? v->x_title : "points", true, true, v->kinds, {{0}}};
    for (int k = 0; k < v->kinds; k++) {
        const bool sure = v->error[k] && v->sizes <= SIZES_MOST;
        const int used = snprintf(names->of[k], sizeof names->of[k], "%s, slope %.2f", pt_ritz_points_name(v->points[k]),
                                  pt_ritz_slope(v->sizes, v->n, v->variance[k]));
        if (sure)
            snprintf(names->of[k] + used, sizeof names->of[k] - (size_t)used, " +- %.2f",
                     pt_ritz_slope_error(v->sizes, v->n, v->variance[k], v->error[k]));
        for (int i = 0; i < v->sizes && sure; i++) {
            const double factor = exp(1.96 * v->error[k][i] / v->variance[k][i]);
            names->band[k][2 * i] = v->variance[k][i] / factor;
            names->band[k][2 * i + 1] = v->variance[k][i] * factor;
        }
        f.curves[k] = (ritz_curve){names->of[k], v->sizes, v->n, v->variance[k], sure ? names->band[k] : NULL};
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

static int write_figures(const char *path, const char *title, const char *about, const ritz_figure *figures, int n, pt_error *e)
{
    char text[400];
    snprintf(text, sizeof text, "<p>%.300s; bands: 95%%.</p>\n",
             about ? about : "Variance of the energy's gradient, summed over all parameters, against the number of points");
    return ritz_page_write(path, title, text, figures, n, e);
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
        failed = write_figures(path, title, figures->about, drawn, n, e);
    free(drawn);
    free(words);
    return failed;
}
