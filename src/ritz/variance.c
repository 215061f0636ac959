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

static int add_set(pt_ritz *ritz, spread *s, pt_error *e)
{
    double energy, apart = 0;
    int failed = ritz_integrate(ritz, (uint64_t)s->sets, &energy, e);
    if (!failed)
        failed = ritz_read_gradient(ritz, s->gradient, e);
    if (failed)
        return failed;
    s->sets++;
    for (int64_t i = 0; i < ritz->net.params; i++) {
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

static void conclude(const pt_ritz *ritz, const spread *s, pt_ritz_spread *out)
{
    const int pairs = s->sets / 2;
    const double mean = s->pairs / pairs, square = s->pairs_squared / pairs - mean * mean;
    *out = (pt_ritz_spread){.sets = s->sets};
    for (int64_t i = 0; i < ritz->net.params; i++) {
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

/* What a run has in place of its own points, which are kept here meanwhile. */
typedef struct exchange { points *inside; ritz_faces faces; int64_t n, inside_units, boundary_n, boundary_units; pt_ritz_points kind;
                          double penalty; } exchange;

static int64_t units_of(const pt_ritz *ritz, int64_t n) { return (n + ritz->unit_rows - 1) / ritz->unit_rows; }

static void give_back(pt_ritz *ritz, const exchange *own)
{
    points_close(ritz->inside);
    points_close(ritz->faces.points);
    ritz->inside = own->inside;
    ritz->faces = own->faces;
    ritz->o.n = own->n;
    ritz->o.points = own->kind;
    ritz->inside_units = own->inside_units;
    ritz->boundary_n = own->boundary_n;
    ritz->boundary_units = own->boundary_units;
    ritz->penalty = own->penalty;
}

/* Gives the run n points of another set inside, and about as many on its faces, if it has points there. give_back, also on error. */
static int take_points(pt_ritz *ritz, pt_ritz_points kind, pt_ritz_randomize randomize, int64_t n, exchange *own, pt_error *e)
{
    const int64_t dim = ritz->net.dim, faces = domain_faces(&ritz->problem.is), few = ritz_points_a_face(ritz, n);
    const uint64_t seed = seed_of(ritz, n);
    *own = (exchange){ritz->inside,     ritz->faces,          ritz->o.n,      ritz->inside_units,
                      ritz->boundary_n, ritz->boundary_units, ritz->o.points, ritz->penalty};
    ritz->inside = ritz->faces.points = NULL;
    ritz->o.points = kind;
    ritz->o.n = n;
    ritz->inside_units = units_of(ritz, n);
    ritz->penalty = ritz->problem.is.penalty;
    int failed = points_open((points_kind)kind, (points_randomize)randomize, dim, n, seed, &ritz->inside, e);
    if (failed || !own->faces.n)
        return failed;
    ritz->faces.n = few < own->faces.n ? few : own->faces.n;
    ritz->boundary_n = ritz->faces.n * faces;
    ritz->boundary_units = units_of(ritz, ritz->boundary_n);
    return dim == 1 ? 0 : points_open((points_kind)kind, (points_randomize)randomize, dim - 1, ritz->faces.n, seed, &ritz->faces.points, e);
}

enum { MORE_SETS = 4 };
static const double wide = 0.2; /* of a standard error beside its variance */

/* Until the variance is known well enough. */
static int add_sets(pt_ritz *ritz, int sets, pt_ritz_spread *out, pt_error *e)
{
    const size_t params = (size_t)ritz->net.params;
    spread s = {.gradient = calloc(4 * params, sizeof *s.gradient)};
    int failed = s.gradient ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    s.before = s.gradient + params, s.mean = s.before + params, s.squares = s.mean + params;
    for (int64_t most = sets; !failed && s.sets < most;) {
        failed = add_set(ritz, &s, e);
        if (failed || s.sets < most)
            continue;
        conclude(ritz, &s, out);
        if (out->standard_error > wide * out->variance && most < (int64_t)MORE_SETS * sets)
            most *= 2;
    }
    free(s.gradient);
    return failed;
}

int pt_ritz_gradient_spread(pt_ritz *at, pt_ritz_points points, pt_ritz_randomize randomize, int64_t n, int sets, pt_ritz_spread *out,
                            pt_error *e)
{
    exchange own;
    int failed = ritz_check_call(at, "pt_ritz_gradient_spread", true, e);
    if (!failed && !out)
        failed = pt_fail_null(e, "pt_ritz_gradient_spread", "out");
    if (!failed && sets < 2)
        failed = pt_fail(e, PT_USAGE, "a variance needs at least 2 point sets, but %d were asked for", sets);
    if (!failed && (n < 1 || n > at->o.n))
        failed = pt_fail(e, PT_USAGE, "pt_ritz_gradient_spread: n is %lld, but must be from 1 to the run's %lld", (long long)n,
                         (long long)at->o.n);
    if (!failed)
        failed = ritz_runner_sync(at->runner, e);
    if (failed)
        return failed;
    if (randomize == PT_RITZ_RANDOMIZE_DEFAULT && points == at->o.points)
        randomize = at->o.randomize;
    failed = take_points(at, points, randomize, n, &own, e);
    if (!failed)
        failed = add_sets(at, sets, out, e);
    give_back(at, &own);
    return failed;
}

int pt_ritz_gradient_variance(pt_ritz *at, pt_ritz_points points, int64_t n, int sets, double *variance, double *mean_square, pt_error *e)
{
    pt_ritz_spread s;
    if (!variance)
        return pt_fail_null(e, "pt_ritz_gradient_variance", "variance");
    int failed = pt_ritz_gradient_spread(at, points, PT_RITZ_RANDOMIZE_DEFAULT, n, sets, &s, e);
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
typedef struct names { char of[PT_RITZ_SETS][64]; double band[PT_RITZ_SETS][2 * SIZES_MOST]; } names;

/* The curves are called by their kinds and slopes. */
static ritz_figure figure_of(const pt_ritz_variances *v, names *names)
{
    ritz_figure f = {v->title, v->x_title ? v->x_title : "points", true, true, v->kinds, {{0}}};
    for (int k = 0; k < v->kinds; k++) {
        const bool sure = v->error[k] && v->sizes <= SIZES_MOST;
        char set[PT_RITZ_SET_BYTES];
        const int used = snprintf(names->of[k], sizeof names->of[k], "%s, slope %.2f", pt_ritz_set_name(v->points[k], v->randomize[k], set),
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
        if (v[i].kinds < 0 || v[i].kinds > PT_RITZ_SETS || v[i].sizes < 0)
            return pt_fail(e, PT_USAGE, "figure %d has %d kinds and %d sizes: 0 to %d kinds are possible, and no negative number of sizes",
                           i + 1, v[i].kinds, v[i].sizes, PT_RITZ_SETS);
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
