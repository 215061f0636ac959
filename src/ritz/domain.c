#include "ritz/domain.h"

int64_t domain_faces(const pt_ritz_problem *problem) { return 2 * problem->dim * (1 + problem->holes); }

domain_face domain_face_of(const pt_ritz_problem *problem, int64_t face)
{
    const int64_t block = face / (2 * problem->dim), axis = face % (2 * problem->dim) / 2, hole = (block - 1) * problem->dim;
    const double *lower = block ? problem->hole_lower + hole : problem->lower, *upper = block ? problem->hole_upper + hole : problem->upper;
    const double number = (double)(block * problem->dim + axis + 1);
    return (domain_face){axis, face % 2 ? upper[axis] : lower[axis], lower, upper, (face % 2 == 1) == (block > 0),
                         face % 2 ? number : -number};
}

pt_ritz_boundary domain_boundary(const pt_ritz_problem *problem, int64_t face)
{
    return problem->faces ? problem->faces[face] : problem->boundary;
}

bool domain_has_boundary(const pt_ritz_problem *problem, pt_ritz_boundary which)
{
    for (int64_t k = 0; k < domain_faces(problem); k++)
        if (domain_boundary(problem, k) == which)
            return true;
    return false;
}

bool domain_holds(const pt_ritz_problem *problem, const double *x)
{
    for (int64_t h = 0; h < problem->holes; h++) {
        const double *lower = problem->hole_lower + h * problem->dim, *upper = problem->hole_upper + h * problem->dim;
        int64_t j = 0;
        while (j < problem->dim && x[j] > lower[j] && x[j] < upper[j])
            j++;
        if (j == problem->dim)
            return false;
    }
    return true;
}

/* Whether a box holds the points right above, or right below, a face at x. */
static bool holds_beside(const double *lower, const double *upper, int64_t dim, const domain_face *f, const double *x)
{
    for (int64_t j = 0; j < dim; j++) {
        const bool in = j != f->axis ? x[j] >= lower[j] && x[j] < upper[j]
            : f->above               ? f->at >= lower[j] && f->at < upper[j]
                                     : f->at > lower[j] && f->at <= upper[j];
        if (!in)
            return false;
    }
    return true;
}

bool domain_face_holds(const pt_ritz_problem *problem, const domain_face *f, const double *x)
{
    bool holds = !problem->holes || holds_beside(problem->lower, problem->upper, problem->dim, f, x);
    for (int64_t h = 0; h < problem->holes && holds; h++)
        holds = !holds_beside(problem->hole_lower + h * problem->dim, problem->hole_upper + h * problem->dim, problem->dim, f, x);
    return holds;
}

static double volume_of(const double *lower, const double *upper, int64_t dim)
{
    double v = 1;
    for (int64_t j = 0; j < dim; j++)
        v *= upper[j] - lower[j];
    return v;
}

double domain_box_volume(const pt_ritz_problem *problem) { return volume_of(problem->lower, problem->upper, problem->dim); }

double domain_volume(const pt_ritz_problem *problem)
{
    double v = domain_box_volume(problem);
    for (int64_t h = 0; h < problem->holes; h++)
        v -= volume_of(problem->hole_lower + h * problem->dim, problem->hole_upper + h * problem->dim, problem->dim);
    return v;
}
