/* evaluate.c - the network at given points, and its errors where the exact solution is known. */
#include "ritz/solver.h"

#include <math.h>

/* x and the gradient pass through the room of a slot, u through staging. */
static int evaluate_unit(pt_ritz *r, int64_t rows, const double *x, double *u, double *gradient, pt_error *e)
{
    const int64_t dim = r->net.dim, input = r->net.input;
    char *room = (char *)r->slots[0].x;
    ritz_slot slot = {.rows = rows, .x = room, .ones = r->ones, .u = r->staging, .gradient = gradient ? room : NULL};
    ritz_put_x(r, x, rows, room);
    ritz_runner_run(r->runner, gradient ? RITZ_POINTS : RITZ_MEAN, &slot, 1, false, NULL);
    int failed = ritz_runner_sync(r->runner, e);
    for (int64_t i = 0; i < rows && !failed; i++) {
        u[i] = ritz_value(r, r->staging, i);
        for (int64_t j = 0; j < dim && gradient; j++)
            gradient[i * dim + j] = ritz_value(r, room, i * input + j);
    }
    return failed;
}

int pt_ritz_evaluate(pt_ritz *r, int64_t n, const double *x, double *u, double *gradient, pt_error *e)
{
    int failed = ritz_check_call(r, "pt_ritz_evaluate", false, e);
    if (!failed && n < 0)
        failed = pt_fail(e, PT_USAGE, "pt_ritz_evaluate: n is %lld, but must be at least 0", (long long)n);
    if (!failed && n && (!x || !u))
        failed = pt_fail_null(e, "pt_ritz_evaluate", x ? "u" : "x");
    if (!failed)
        failed = ritz_runner_sync(r->runner, e);
    for (int64_t first = 0; first < n && !failed; first += r->unit_rows) {
        const int64_t rows = n - first < r->unit_rows ? n - first : r->unit_rows;
        failed = evaluate_unit(r, rows, x + first * r->net.dim, u + first, gradient ? gradient + first * r->net.dim : NULL, e);
    }
    return failed;
}

/* ---- errors ---- */

typedef struct errors { double value, slope, value_off, slope_off; } errors;

static void add_errors(errors *s, int64_t n, int64_t dim, const double *u, const double *g, const double *exact, const double *exact_g)
{
    for (int64_t i = 0; i < n; i++) {
        s->value += exact[i] * exact[i];
        s->value_off += (u[i] - exact[i]) * (u[i] - exact[i]);
    }
    for (int64_t i = 0; i < n * dim; i++) {
        s->slope += exact_g[i] * exact_g[i];
        s->slope_off += (g[i] - exact_g[i]) * (g[i] - exact_g[i]);
    }
}

int64_t ritz_eval_rows(const pt_ritz *r)
{
    enum { VALUES_MOST = 1 << 21 };
    const int64_t few = VALUES_MOST / r->net.dim;
    return few < r->unit_rows ? few : r->unit_rows;
}

int pt_ritz_errors(pt_ritz *r, double *l2, double *h1, pt_error *e)
{
    int failed = ritz_check_call(r, "pt_ritz_errors", true, e);
    if (failed || !l2 || !h1)
        return failed ? failed : pt_fail_null(e, "pt_ritz_errors", "result");
    if (!r->eval)
        return pt_fail(e, PT_USAGE, "%s: no exact solution is known", r->problem.name);
    const int64_t dim = r->net.dim, most = ritz_eval_rows(r);
    double *x = r->samples, *g = x + most * dim, *exact_g = g + most * dim, *u = exact_g + most * dim, *exact = u + most;
    errors sum = {0};
    for (int64_t first = 0; first < r->o.eval_n && !failed; first += most) {
        const int64_t n = r->o.eval_n - first < most ? r->o.eval_n - first : most;
        points_get(r->eval, first, n, x);
        ritz_stretch(&r->problem.is, n, x);
        failed = pt_ritz_evaluate(r, n, x, u, g, e);
        if (failed)
            break;
        problem_exact(&r->problem, n, x, exact, exact_g);
        failed = ritz_check_values(&r->problem, "exact", n, 1, exact, x, e);
        if (!failed)
            failed = ritz_check_values(&r->problem, "the gradient of exact", n, dim, exact_g, x, e);
        add_errors(&sum, n, dim, u, g, exact, exact_g);
    }
    r->exact_is_zero = sum.value <= 0;
    const double all = (double)r->o.eval_n / ritz_volume(&r->problem); /* the norm of 1, squared, is the volume */
    *l2 = sqrt(sum.value_off / (r->exact_is_zero ? all : sum.value));
    *h1 = sqrt((sum.value_off + sum.slope_off) / (r->exact_is_zero ? all : sum.value + sum.slope));
    if (!failed && !(isfinite(*l2) && isfinite(*h1)))
        failed = pt_fail(e, PT_FAILED, "%s: exact or the network has values whose squares are not finite: scale the problem",
                         r->problem.name);
    return failed;
}
