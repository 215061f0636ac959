#include "ritz/ansatz.h"

#include <math.h>
#include <string.h>

bool ansatz_is_hard(const problem *problem) { return domain_has_boundary(&problem->is, PT_RITZ_HARD); }

bool ansatz_hole_is_hard(const problem *problem, int64_t hole)
{
    return domain_boundary(&problem->is, 2 * problem->is.dim * (1 + hole)) == PT_RITZ_HARD;
}

bool ansatz_has_hard_holes(const problem *problem)
{
    int64_t h = 0;
    while (h < problem->is.holes && !ansatz_hole_is_hard(problem, h))
        h++;
    return h < problem->is.holes;
}

bool ansatz_has_lift(const problem *problem)
{
    bool all = problem->is.g;
    for (int64_t k = 0; k < domain_faces(&problem->is) && all; k++)
        all = domain_boundary(&problem->is, k) == PT_RITZ_HARD;
    return all;
}

/* The factor of one axis, its slope and second derivative. */
static double factor_of(const problem *problem, int64_t j, double x, double *slope, double *curve)
{
    const double length = problem->is.upper[j] - problem->is.lower[j], s = (x - problem->is.lower[j]) / length;
    const bool low = domain_boundary(&problem->is, 2 * j) == PT_RITZ_HARD, high = domain_boundary(&problem->is, 2 * j + 1) == PT_RITZ_HARD;
    *curve = low && high ? -8 / length / length : 0;
    *slope = low && high ? 4 * (1 - 2 * s) / length : low ? 1 / length : high ? -1 / length : 0;
    return low && high ? 4 * s * (1 - s) : low ? s : high ? 1 - s : 1;
}

/* phi / (phi + c) at a point outside the hole, and its gradient; 0 inside. phi grows from the faces like the distance: it joins the axes'
 * ((x - middle)^2 - half^2) / (2 half) by the R-function a + b + sqrt(a^2 + b^2), which is positive where a or b is. */
static double hole_factor(const problem *problem, int64_t hole, const double *x, double *gradient)
{
    const int64_t dim = problem->is.dim;
    const double *lower = problem->is.hole_lower + hole * dim, *upper = problem->is.hole_upper + hole * dim;
    double phi = 0, shortest = INFINITY;
    for (int64_t j = 0; j < dim; j++) {
        const double half = (upper[j] - lower[j]) / 2, off = x[j] - lower[j] - half, s = (off - half) * (off + half) / (2 * half);
        const double root = hypot(phi, s), by_phi = root > 0 ? 1 + phi / root : 1, by_s = root > 0 ? 1 + s / root : 1;
        for (int64_t i = 0; i < j; i++)
            gradient[i] *= by_phi;
        gradient[j] = (j ? by_s : 1) * off / half;
        phi = j ? phi + s + root : s;
        shortest = fmin(shortest, problem->is.upper[j] - problem->is.lower[j]);
    }
    const double c = shortest / 4, sum = phi + c; /* its slope at the faces is that of the box's factors */
    for (int64_t j = 0; j < dim; j++)
        gradient[j] *= phi > 0 ? c / sum / sum : 0;
    return phi > 0 ? phi / sum : 0;
}

/* Multiplies D, without its Laplacian, by the holes' factors. */
static double multiply_holes(const problem *problem, const double *x, double product, double *gradient, double *of_hole)
{
    for (int64_t h = 0; h < problem->is.holes; h++) {
        if (!ansatz_hole_is_hard(problem, h))
            continue;
        const double one = hole_factor(problem, h, x, of_hole);
        for (int64_t j = 0; j < problem->is.dim; j++)
            gradient[j] = gradient[j] * one + product * of_hole[j];
        product *= one;
    }
    return product;
}

/* D, its gradient and its Laplacian at a point. below: dim numbers of scratch. */
static double factor(const problem *problem, const double *x, double *gradient, double *laplacian, double *below)
{
    double product = 1, above = 1, slope, curve;
    *laplacian = 0;
    for (int64_t j = 0; j < problem->is.dim; j++) {
        below[j] = product;
        product *= factor_of(problem, j, x[j], &gradient[j], &curve);
    }
    for (int64_t j = problem->is.dim - 1; j >= 0; j--) {
        const double of_j = factor_of(problem, j, x[j], &slope, &curve);
        gradient[j] *= below[j] * above;
        *laplacian += curve * below[j] * above;
        above *= of_j;
    }
    return multiply_holes(problem, x, product, gradient, below);
}

/* g, and its gradient and Laplacian by central differences of order 4, at a point. moved: dim numbers of scratch. */
static double lift(const problem *problem, const double *x, double *gradient, double *laplacian, double *moved)
{
    static const double steps[] = {-2, -1, 1, 2};
    const int64_t dim = problem->is.dim;
    double value, at[4];
    problem_face_values(problem, problem->is.g, 0, 1, x, &value);
    memcpy(moved, x, (size_t)dim * sizeof *x);
    *laplacian = 0;
    for (int64_t j = 0; j < dim; j++) {
        const double h = 1e-3 * (problem->is.upper[j] - problem->is.lower[j]);
        for (int k = 0; k < 4; k++) {
            moved[j] = x[j] + steps[k] * h;
            problem_face_values(problem, problem->is.g, 0, 1, moved, &at[k]);
        }
        moved[j] = x[j];
        gradient[j] = (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
        *laplacian += (16 * (at[1] + at[2]) - (at[0] + at[3]) - 30 * value) / (12 * h * h);
    }
    return value;
}

ansatz_parts ansatz_at(const problem *problem, const double *x, double *factor_gradient, double *lift_gradient, double *work)
{
    ansatz_parts a = {.factor = 1};
    memset(factor_gradient, 0, (size_t)problem->is.dim * sizeof *factor_gradient);
    memset(lift_gradient, 0, (size_t)problem->is.dim * sizeof *lift_gradient);
    if (!ansatz_is_hard(problem))
        return a;
    a.factor = factor(problem, x, factor_gradient, &a.of_factor, work);
    if (ansatz_has_lift(problem))
        a.lift = lift(problem, x, lift_gradient, &a.of_lift, work);
    return a;
}

void ansatz_apply(const problem *problem, int64_t n, const double *x, double *u, double *gradient, double *work)
{
    const int64_t dim = problem->is.dim;
    double *d = work, *of_g = work + dim;
    for (int64_t i = 0; i < n && ansatz_is_hard(problem); i++) {
        const ansatz_parts a = ansatz_at(problem, x + i * dim, d, of_g, work + 2 * dim);
        for (int64_t j = 0; j < dim && gradient; j++)
            gradient[i * dim + j] = a.factor * gradient[i * dim + j] + u[i] * d[j] + of_g[j];
        u[i] = a.lift + a.factor * u[i];
    }
}

/* ---- the energy in a unit ---- */

static double get(const ansatz_energy *a, const void *base, int64_t i)
{
    return a->type == PT_F64 ? ((const double *)base)[i] : ((const float *)base)[i];
}

static void put(const ansatz_energy *a, void *base, int64_t i, double value)
{
    if (a->type == PT_F64)
        ((double *)base)[i] = value;
    else
        ((float *)base)[i] = (float)value;
}

/* One point. x, and scratch: 5 dim numbers. */
static void energy_of_row(const ansatz_energy *a, int64_t row, double *x)
{
    const problem *problem = a->problem;
    const int64_t dim = a->dim;
    const double *t = a->terms + row * QUADRATIC_TERMS, n = get(a, a->n, row);
    double *g = x + dim, *d = g + dim, *of_g = d + dim, *rest = of_g + dim, square = 0, value = 0, slope = 0, along = 0;
    if (a->g && !(t[0] > 0)) { /* in a hole */
        a->value[row] = 0;
        put(a, a->du, row, 0);
        for (int64_t j = 0; j < a->ld; j++)
            put(a, a->dg, row * a->ld + j, 0);
        return;
    }
    for (int64_t j = 0; j < dim; j++) {
        x[j] = get(a, a->x, row * a->ld + j);
        g[j] = a->g ? get(a, a->g, row * a->ld + j) : 0;
    }
    const ansatz_parts parts = ansatz_at(problem, x, d, of_g, rest);
    const double scale = parts.factor, u = parts.lift + scale * n;
    if (problem->is.G && t[0] > 0)
        problem->is.G(problem->is.arg, 1, dim, x, &u, &value, &slope);
    const double by_u = t[1] * u - t[2] + t[4] + a->weight * slope;
    for (int64_t j = 0; j < dim && a->g; j++) {
        const double of_u = scale * g[j] + n * d[j] + of_g[j];
        square += of_u * of_u;
        along += t[0] * of_u * d[j];
        put(a, a->dg, row * a->ld + j, t[0] * of_u * scale);
    }
    for (int64_t j = dim; j < a->ld && a->g; j++)
        put(a, a->dg, row * a->ld + j, 0);
    a->value[row] = 0.5 * t[0] * square + 0.5 * t[1] * u * u - t[2] * u + t[3] + a->weight * value;
    put(a, a->du, row, by_u * scale + along);
}

void ansatz_energy_rows(void *arg, int64_t first, int64_t end, void *scratch)
{
    for (int64_t row = first; row < end; row++)
        energy_of_row(arg, row, scratch);
}
