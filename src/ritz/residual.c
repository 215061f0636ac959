#include "ritz/residual.h"

#include "ritz/ansatz.h"

#include <math.h>

static double get(const residual_loss *l, const void *base, int64_t i)
{
    return l->type == PT_F64 ? ((const double *)base)[i] : ((const float *)base)[i];
}

static void put(const residual_loss *l, int64_t i, double value)
{
    if (l->type == PT_F64)
        ((double *)l->seed)[i] = value;
    else
        ((float *)l->seed)[i] = (float)value;
}

/* u at a point: its value and Laplacian, and likewise what the loss changes by for each; gradients are arrays (dim). */
typedef struct solution { double u, laplacian, by_u, by_laplacian, *gradient, *by_gradient; } solution;

/* d2G/du2 */
static double curve_of(const problem *problem, const double *x, double u)
{
    const double h = 1e-3 * (1 + fabs(u));
    static const double steps[] = {-2, -1, 1, 2};
    double at[4], value;
    for (int k = 0; k < 4; k++) {
        const double moved = u + steps[k] * h;
        problem->is.G(problem->is.arg, 1, problem->is.dim, x, &moved, &value, &at[k]);
    }
    return (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
}

/* of_a, the gradient of a, is scratch, and 4 dim numbers behind it. */
static double inside(const residual_loss *l, const double *t, const double *x, solution *s, double *of_a)
{
    const problem *problem = l->problem;
    const double w = l->weight, a = t[0] / w;
    double r = -a * s->laplacian + (t[1] * s->u - t[2]) / w, curve = t[1] / w, value, slope;
    if (problem->is.a)
        problem_differences(problem, problem->is.a, x, of_a, of_a + problem->is.dim);
    for (int64_t j = 0; j < problem->is.dim && problem->is.a; j++)
        r -= of_a[j] * s->gradient[j];
    if (problem->is.G) {
        problem->is.G(problem->is.arg, 1, problem->is.dim, x, &s->u, &value, &slope);
        r += slope;
        curve += curve_of(problem, x, s->u);
    }
    s->by_u = 2 * w * r * curve + t[4];
    s->by_laplacian = -2 * w * r * a;
    for (int64_t j = 0; j < problem->is.dim; j++)
        s->by_gradient[j] = problem->is.a ? -2 * w * r * of_a[j] : 0;
    return w * r * r;
}

static double on_face(const residual_loss *l, const double *t, solution *s)
{
    const int64_t axis = (int64_t)fabs(t[RESIDUAL_AXIS]) - 1;
    const double normal = t[RESIDUAL_AXIS] < 0 ? -t[RESIDUAL_NORMAL] : t[RESIDUAL_NORMAL];
    const double r = normal * s->gradient[axis] + t[RESIDUAL_VALUE] * s->u - t[RESIDUAL_GIVEN];
    const double by_r = 2 * t[RESIDUAL_WEIGHT] * r;
    s->by_u = by_r * t[RESIDUAL_VALUE];
    s->by_laplacian = 0;
    for (int64_t j = 0; j < l->dim; j++)
        s->by_gradient[j] = j == axis ? by_r * normal : 0;
    return t[RESIDUAL_WEIGHT] * r * r;
}

/* u = g + D N, and back: the derivatives by N, its gradient and its Laplacian. */
static void residual_row(const residual_loss *l, int64_t row, double *x)
{
    const int64_t dim = l->dim, rows = l->rows;
    double *gradient = x + dim, *of_d = gradient + dim, *of_g = of_d + dim, *by = of_g + dim, *rest = by + dim;
    const double *t = l->terms + row * QUADRATIC_TERMS, n = get(l, l->jets, row), laplacian = get(l, l->jets, (dim + 1) * rows + row);
    for (int64_t j = 0; j < dim; j++)
        x[j] = get(l, l->x, row * l->ld + j);
    const ansatz_parts a = ansatz_at(l->problem, x, of_d, of_g, rest);
    solution s = {.u = a.lift + a.factor * n, .laplacian = a.of_lift + a.factor * laplacian + a.of_factor * n, .gradient = gradient,
                  .by_gradient = by};
    for (int64_t j = 0; j < dim; j++) {
        const double of_n = get(l, l->jets, (1 + j) * rows + row);
        gradient[j] = of_g[j] + a.factor * of_n + of_d[j] * n;
        s.laplacian += 2 * of_d[j] * of_n;
    }
    const bool counts = l->face ? t[RESIDUAL_WEIGHT] > 0 : t[0] > 0;
    l->value[row] = !counts ? 0 : l->face ? on_face(l, t, &s) : inside(l, t, x, &s, rest);
    double by_n = a.factor * s.by_u + a.of_factor * s.by_laplacian;
    for (int64_t j = 0; j < dim; j++) {
        const double by_j = counts ? by[j] : 0;
        by_n += of_d[j] * by_j;
        put(l, (1 + j) * rows + row, a.factor * by_j + 2 * of_d[j] * s.by_laplacian);
    }
    put(l, row, by_n);
    put(l, (dim + 1) * rows + row, a.factor * s.by_laplacian);
}

void residual_rows(void *arg, int64_t first, int64_t end, void *scratch)
{
    for (int64_t row = first; row < end; row++)
        residual_row(arg, row, scratch);
}
