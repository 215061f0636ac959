#include "ritz/domain.h"

int64_t domain_faces(const pt_ritz_problem *p) { return 2 * p->dim * (1 + p->holes); }

domain_face domain_face_of(const pt_ritz_problem *p, int64_t face)
{
    const int64_t block = face / (2 * p->dim), axis = face % (2 * p->dim) / 2, hole = (block - 1) * p->dim;
    const double *lower = block ? p->hole_lower + hole : p->lower, *upper = block ? p->hole_upper + hole : p->upper;
    const double number = (double)(block * p->dim + axis + 1);
    return (domain_face){axis, face % 2 ? upper[axis] : lower[axis], lower, upper, (face % 2 == 1) == (block > 0),
                         face % 2 ? number : -number};
}

pt_ritz_boundary domain_boundary(const pt_ritz_problem *p, int64_t face) { return p->faces ? p->faces[face] : p->boundary; }

bool domain_has_boundary(const pt_ritz_problem *p, pt_ritz_boundary which)
{
    for (int64_t k = 0; k < domain_faces(p); k++)
        if (domain_boundary(p, k) == which)
            return true;
    return false;
}

bool domain_holds(const pt_ritz_problem *p, const double *x)
{
    for (int64_t h = 0; h < p->holes; h++) {
        const double *lower = p->hole_lower + h * p->dim, *upper = p->hole_upper + h * p->dim;
        int64_t j = 0;
        while (j < p->dim && x[j] > lower[j] && x[j] < upper[j])
            j++;
        if (j == p->dim)
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

bool domain_face_holds(const pt_ritz_problem *p, const domain_face *f, const double *x)
{
    bool holds = !p->holes || holds_beside(p->lower, p->upper, p->dim, f, x);
    for (int64_t h = 0; h < p->holes && holds; h++)
        holds = !holds_beside(p->hole_lower + h * p->dim, p->hole_upper + h * p->dim, p->dim, f, x);
    return holds;
}

static double volume_of(const double *lower, const double *upper, int64_t dim)
{
    double v = 1;
    for (int64_t j = 0; j < dim; j++)
        v *= upper[j] - lower[j];
    return v;
}

double domain_box_volume(const pt_ritz_problem *p) { return volume_of(p->lower, p->upper, p->dim); }

double domain_volume(const pt_ritz_problem *p)
{
    double v = domain_box_volume(p);
    for (int64_t h = 0; h < p->holes; h++)
        v -= volume_of(p->hole_lower + h * p->dim, p->hole_upper + h * p->dim, p->dim);
    return v;
}
