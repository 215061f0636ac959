#include "ritz/terms.h"

#include "ritz/residual.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int ritz_check_values(const problem *problem, const char *name, int64_t n, int64_t each, const double *values, const double *x, pt_error *e)
{
    const int64_t dim = problem->is.dim;
    for (int64_t i = 0; i < n * each; i++)
        if (!isfinite(values[i])) {
            char at[120] = "";
            for (int64_t j = 0; j < dim && strlen(at) < 90; j++)
                snprintf(at + strlen(at), sizeof at - strlen(at), "%s%.17g", j ? ", " : "", x[i / each * dim + j]);
            return pt_fail(e, PT_FAILED, "%s: %s is %g at x = (%s)", problem->name, name, isnan(values[i]) ? NAN : values[i], at);
        }
    return 0;
}

int ritz_check_inside(const problem *problem, int64_t rows, const ritz_samples *at, pt_error *e)
{
    int failed = ritz_check_values(problem, "f", rows, 1, at->f, at->x, e);
    if (!failed)
        failed = ritz_check_values(problem, "V", rows, 1, at->v, at->x, e);
    if (!failed)
        failed = ritz_check_values(problem, "a", rows, 1, at->a, at->x, e);
    for (int64_t i = 0; i < rows && !failed; i++)
        if (at->a[i] <= 0 && domain_holds(&problem->is, at->x + i * problem->is.dim))
            failed = pt_fail(e, PT_FAILED, "%s: a is %g at x1 = %.6g, but must be positive everywhere", problem->name, at->a[i],
                             at->x[i * problem->is.dim]);
    return failed;
}

void ritz_stretch(const pt_ritz_problem *problem, int64_t n, double *x)
{
    for (int64_t i = 0; i < n; i++, x += problem->dim)
        for (int64_t j = 0; j < problem->dim; j++)
            x[j] = problem->lower[j] + x[j] * (problem->upper[j] - problem->lower[j]);
}

/* A function at points inside; NULL is `otherwise`. */
static void find_values(const problem *problem, pt_ritz_function function, double otherwise, int64_t rows, const double *x, double *out)
{
    if (function)
        function(problem->is.arg, rows, problem->is.dim, x, out);
    for (int64_t i = 0; i < rows && !function; i++)
        out[i] = otherwise;
}

void ritz_inside_terms(const problem *problem, double weight, int64_t rows, const ritz_samples *at, double *terms)
{
    find_values(problem, problem->is.f, 0, rows, at->x, at->f);
    find_values(problem, problem->is.equation == PT_RITZ_POISSON ? NULL : problem->is.V, 0, rows, at->x, at->v);
    find_values(problem, problem->is.a, 1, rows, at->x, at->a);
    for (int64_t i = 0; i < rows; i++) {
        if (problem->is.holes && !domain_holds(&problem->is, at->x + i * problem->is.dim))
            at->f[i] = at->v[i] = at->a[i] = 0;
        const double t[QUADRATIC_TERMS] = {weight * at->a[i], weight * at->v[i], weight * at->f[i], 0, 0};
        memcpy(terms + i * QUADRATIC_TERMS, t, sizeof t);
    }
}

/* Points of one face, spread in place from the last coordinate on. Returns the weight of a point. */
static double make_face(const problem *problem, ritz_faces *faces, int64_t first, int64_t rows, double *x)
{
    const int64_t dim = problem->is.dim, number = first / faces->n;
    const domain_face face = domain_face_of(&problem->is, number);
    double area = 1;
    if (faces->points && faces->part != (uint32_t)number + 1) {
        faces->part = (uint32_t)number + 1;
        points_draw(faces->points, faces->draw, faces->part);
    }
    if (faces->points)
        points_get(faces->points, first % faces->n, rows, x);
    const double *from = x + rows * (dim - 1);
    for (int64_t i = rows - 1; i >= 0; i--)
        for (int64_t j = dim - 1; j >= 0; j--)
            x[i * dim + j] = j != face.axis ? face.lower[j] + *--from * (face.upper[j] - face.lower[j]) : face.at;
    for (int64_t j = 0; j < dim; j++)
        area *= j == face.axis ? 1 : face.upper[j] - face.lower[j];
    return area / (double)faces->n;
}

double ritz_face_point(const problem *problem, ritz_faces *faces, int64_t at, double *x, int64_t *number)
{
    const double weight = make_face(problem, faces, at, 1, x);
    const domain_face face = domain_face_of(&problem->is, at / faces->n);
    *number = (int64_t)face.number;
    return domain_face_holds(&problem->is, &face, x) ? weight : 0;
}

/* The terms of a point with the weight w: c / 2 u^2 - l u + rest. */
static void put_boundary(pt_ritz_boundary kind, double penalty, double w, double g, double r, double *t)
{
    memset(t, 0, QUADRATIC_TERMS * sizeof *t);
    switch (kind) {
    case PT_RITZ_DIRICHLET: t[1] = 2 * penalty * w, t[2] = 2 * penalty * w * g, t[3] = penalty * w * g * g; break;
    case PT_RITZ_ROBIN: t[1] = w * r, t[2] = w * g; break;
    case PT_RITZ_NEUMANN: t[2] = w * g; break;
    default: break;
    }
}

/* The terms of a point in a residual loss. */
static void put_condition(pt_ritz_boundary kind, double weight, const domain_face *face, double g, double r, double a, double *t)
{
    const double axis = (double)(face->axis + 1);
    memset(t, 0, QUADRATIC_TERMS * sizeof *t);
    t[RESIDUAL_AXIS] = face->above ? -axis : axis;
    t[RESIDUAL_GIVEN] = g;
    t[RESIDUAL_NORMAL] = kind == PT_RITZ_DIRICHLET ? 0 : a;
    t[RESIDUAL_VALUE] = kind == PT_RITZ_DIRICHLET ? 1 : kind == PT_RITZ_ROBIN ? r : 0;
    t[RESIDUAL_WEIGHT] = kind == PT_RITZ_HARD ? 0 : weight;
}

int ritz_face_terms(const problem *problem, ritz_faces *faces, double penalty, int64_t first, int64_t rows, const ritz_samples *at,
                    double *terms, pt_error *e)
{
    const int64_t dim = problem->is.dim;
    for (int64_t i = 0, n; i < rows; i += n) {
        const int64_t left = faces->n - (first + i) % faces->n, number = (first + i) / faces->n;
        n = left < rows - i ? left : rows - i;
        const double weight = make_face(problem, faces, first + i, n, at->x + i * dim);
        const domain_face face = domain_face_of(&problem->is, number);
        problem_face_values(problem, problem->is.g, number, n, at->x + i * dim, at->f + i);
        problem_face_values(problem, problem->is.r, number, n, at->x + i * dim, at->v + i);
        if (faces->weight > 0)
            find_values(problem, problem->is.a, 1, n, at->x + i * dim, at->a + i);
        for (int64_t k = i; k < i + n; k++) {
            const bool there = domain_face_holds(&problem->is, &face, at->x + k * dim);
            at->f[k] = there ? at->f[k] : 0;
            at->v[k] = there ? at->v[k] : 0;
            const pt_ritz_boundary kind = domain_boundary(&problem->is, number);
            const double counts = there ? weight : 0;
            if (faces->weight > 0)
                put_condition(kind, counts * (kind == PT_RITZ_DIRICHLET ? penalty : faces->weight), &face, at->f[k], at->v[k], at->a[k],
                              terms + k * QUADRATIC_TERMS);
            else
                put_boundary(kind, penalty, counts, at->f[k], at->v[k], terms + k * QUADRATIC_TERMS);
        }
    }
    int failed = ritz_check_values(problem, "g", rows, 1, at->f, at->x, e);
    return failed ? failed : ritz_check_values(problem, "r", rows, 1, at->v, at->x, e);
}
