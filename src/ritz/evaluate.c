/* evaluate.c - the network at given points, and its errors where the exact solution is known. */
#include "ritz/solver.h"

#include <math.h>

/* x and the gradient pass through the room of a slot, u through staging. */
static int evaluate_unit(pt_ritz *ritz, int64_t rows, const double *x, double *u, double *gradient, pt_error *e)
{
    const int64_t dim = ritz->net.dim, input = ritz->net.input;
    char *room = (char *)ritz->slots[0].x;
    ritz_slot slot = {.rows = rows, .x = room, .ones = ritz->ones, .u = ritz->staging, .gradient = gradient ? room : NULL};
    ritz_put_x(ritz, x, rows, room);
    ritz_runner_run(ritz->runner, gradient ? RITZ_POINTS : RITZ_MEAN, &slot, 1, false, NULL);
    int failed = ritz_runner_sync(ritz->runner, e);
    for (int64_t i = 0; i < rows && !failed; i++) {
        u[i] = ritz_value(ritz, ritz->staging, i);
        for (int64_t j = 0; j < dim && gradient; j++)
            gradient[i * dim + j] = ritz_value(ritz, room, i * input + j);
    }
    if (!failed && ritz->ansatz)
        ansatz_apply(&ritz->problem, rows, x, u, gradient, ritz->ansatz);
    return failed;
}

int pt_ritz_evaluate(pt_ritz *ritz, int64_t n, const double *x, double *u, double *gradient, pt_error *e)
{
    int failed = ritz_check_call(ritz, "pt_ritz_evaluate", false, e);
    if (!failed && n < 0)
        failed = pt_fail(e, PT_USAGE, "pt_ritz_evaluate: n is %lld, but must be at least 0", (long long)n);
    if (!failed && n && (!x || !u))
        failed = pt_fail_null(e, "pt_ritz_evaluate", x ? "u" : "x");
    if (!failed)
        failed = ritz_runner_sync(ritz->runner, e);
    for (int64_t first = 0; first < n && !failed; first += ritz->unit_rows) {
        const int64_t rows = n - first < ritz->unit_rows ? n - first : ritz->unit_rows;
        failed = evaluate_unit(ritz, rows, x + first * ritz->net.dim, u + first, gradient ? gradient + first * ritz->net.dim : NULL, e);
    }
    return failed;
}

int pt_ritz_exact(pt_ritz *ritz, int64_t n, const double *x, double *u, double *gradient, pt_error *e)
{
    if (!ritz || (n > 0 && (!x || !u)))
        return pt_fail_null(e, "pt_ritz_exact", !ritz ? "run" : x ? "u" : "x");
    if (!ritz->problem.is.exact)
        return pt_fail(e, PT_USAGE, "%s: no exact solution is known", ritz->problem.name);
    if (gradient)
        problem_exact(&ritz->problem, n, x, u, gradient);
    else
        ritz->problem.is.exact(ritz->problem.is.arg, n, ritz->net.dim, x, u);
    return 0;
}

/* ---- errors ---- */

/* Sums of products over the points: of the exact solution, of the network's with it, of the network's, and of the difference. By values,
 * by gradients, and by the energy's weights. */
enum { OF_VALUES, OF_SLOPES, OF_ENERGY, FORMS };
typedef struct products { double exact, both, own, off; } products;
typedef struct errors { products of[FORMS]; double mean_exact, mean_off; } errors;

static void add(products *p, double weight, double u, double exact)
{
    p->exact += weight * exact * exact;
    p->both += weight * u * exact;
    p->own += weight * u * u;
    p->off += weight * ((u - exact) * (u - exact));
}

/* terms: with the weight 1 */
static void add_errors(errors *s, int64_t dim, double u, const double *g, double exact, const double *exact_g, const double *terms)
{
    add(&s->of[OF_VALUES], 1, u, exact);
    add(&s->of[OF_ENERGY], terms[1], u, exact);
    s->mean_exact += exact;
    s->mean_off += u - exact;
    for (int64_t j = 0; j < dim; j++) {
        add(&s->of[OF_SLOPES], 1, g[j], exact_g[j]);
        add(&s->of[OF_ENERGY], terms[0], g[j], exact_g[j]);
    }
}

int64_t ritz_eval_rows(const pt_ritz *ritz)
{
    enum { VALUES_MOST = 1 << 21 };
    const int64_t few = VALUES_MOST / ritz->net.dim;
    return few < ritz->unit_rows ? few : ritz->unit_rows;
}

/* An eigenfunction has any length and sign: the network's is scaled to be as near to the exact one as possible. */
static double off_of(const pt_ritz *ritz, const errors *s, int form)
{
    const products *p = &s->of[form], *values = &s->of[OF_VALUES];
    const double scale = ritz->problem.is.equation == PT_RITZ_EIGENVALUE ? values->both / values->own : 1;
    return scale == 1 ? p->off : fmax(p->exact - 2 * scale * p->both + scale * scale * p->own, 0);
}

static int conclude(pt_ritz *ritz, errors *s, pt_ritz_norms *out, pt_error *e)
{
    const double n = (double)ritz->o.eval_n, box = domain_box_volume(&ritz->problem.is),
                 mean = problem_has_mean(&ritz->problem) ? box / n : 0;
    s->of[OF_ENERGY].exact += mean * s->mean_exact * s->mean_exact;
    s->of[OF_ENERGY].off += mean * s->mean_off * s->mean_off;
    ritz->exact_is_zero = s->of[OF_VALUES].exact <= 0;
    const double all = n / box; /* the norm of 1, squared, is the volume */
    const products *value = &s->of[OF_VALUES], *slope = &s->of[OF_SLOPES], *energy = &s->of[OF_ENERGY];
    const double l2 = off_of(ritz, s, OF_VALUES), slopes = off_of(ritz, s, OF_SLOPES), energies = off_of(ritz, s, OF_ENERGY);
    const bool flat = slope->exact <= 0, free = energy->exact <= 0;
    out->l2 = sqrt(l2 / (ritz->exact_is_zero ? all : value->exact));
    out->h1 = sqrt((l2 + slopes) / (ritz->exact_is_zero ? all : value->exact + slope->exact));
    out->h1_seminorm = sqrt(slopes / (ritz->exact_is_zero || flat ? all : slope->exact));
    out->energy = sqrt(fmax(energies, 0) / (ritz->exact_is_zero || free ? all : energy->exact));
    return isfinite(out->l2) && isfinite(out->h1) ? 0
        : pt_fail(e, PT_FAILED, "%s: exact or the network has values whose squares are not finite: scale the problem", ritz->problem.name);
}

static int add_rows(pt_ritz *ritz, int64_t first, int64_t n, errors *sum, pt_error *e)
{
    const int64_t dim = ritz->net.dim, most = ritz_eval_rows(ritz);
    double *x = ritz->samples, *g = x + most * dim, *exact_g = g + most * dim, *u = exact_g + most * dim, *f = u + most;
    double *terms = f + 3 * most, *exact = f; /* f is not needed after its terms */
    const ritz_samples at = {x, f, f + most, f + 2 * most};
    points_get(ritz->eval, first, n, x);
    ritz_stretch(&ritz->problem.is, n, x);
    ritz_inside_terms(&ritz->problem, 1, n, &at, terms);
    int failed = pt_ritz_evaluate(ritz, n, x, u, g, e);
    if (failed)
        return failed;
    problem_exact(&ritz->problem, n, x, exact, exact_g);
    for (int64_t i = 0; i < n && !failed; i++) {
        if (!domain_holds(&ritz->problem.is, x + i * dim))
            continue;
        failed = ritz_check_values(&ritz->problem, "exact", 1, 1, exact + i, x + i * dim, e);
        if (!failed)
            failed = ritz_check_values(&ritz->problem, "the gradient of exact", 1, dim, exact_g + i * dim, x + i * dim, e);
        add_errors(sum, dim, u[i], g + i * dim, exact[i], exact_g + i * dim, terms + i * QUADRATIC_TERMS);
    }
    return failed;
}

int pt_ritz_error_norms(pt_ritz *ritz, pt_ritz_norms *out, pt_error *e)
{
    int failed = ritz_check_call(ritz, "pt_ritz_error_norms", true, e);
    if (failed || !out)
        return failed ? failed : pt_fail_null(e, "pt_ritz_error_norms", "out");
    if (!ritz->eval)
        return pt_fail(e, PT_USAGE, "%s: no exact solution is known", ritz->problem.name);
    errors sum = {0};
    const int64_t most = ritz_eval_rows(ritz);
    for (int64_t first = 0; first < ritz->o.eval_n && !failed; first += most)
        failed = add_rows(ritz, first, ritz->o.eval_n - first < most ? ritz->o.eval_n - first : most, &sum, e);
    return failed ? failed : conclude(ritz, &sum, out, e);
}

int pt_ritz_errors(pt_ritz *ritz, double *l2, double *h1, pt_error *e)
{
    pt_ritz_norms n;
    if (!l2 || !h1)
        return pt_fail_null(e, "pt_ritz_errors", "result");
    int failed = pt_ritz_error_norms(ritz, &n, e);
    if (!failed)
        *l2 = n.l2, *h1 = n.h1;
    return failed;
}
