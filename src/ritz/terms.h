/* terms.h - points inside and on faces, and what the energy is there: OP_QUADRATIC's terms (device.h), with the points' weights. */
#ifndef PT_RITZ_TERMS_H
#define PT_RITZ_TERMS_H

#include "ritz/points.h"
#include "ritz/problem.h"

/* Points (rows, dim), and values there: of a face, v is r and f is g. */
typedef struct ritz_samples { double *x, *f, *v, *a; } ritz_samples;

/* The points of all faces: n each, those of a face from one draw and part (points.h). */
typedef struct ritz_faces {
    points *points;  /* NULL: the faces are points */
    int64_t n;
    uint64_t draw;
    uint32_t part;   /* of the current points; 0: none yet */
    double weight;   /* of neumann and robin conditions in a residual loss; 0: the terms are an energy's */
} ritz_faces;

/* n points (n, dim), from the unit cube to the box. */
void ritz_stretch(const pt_ritz_problem *problem, int64_t n, double *x);
/* weight: of a point, in the domain. Sets f, v and a, too; points in holes have zeros. */
void ritz_inside_terms(const problem *problem, double weight, int64_t rows, const ritz_samples *at, double *terms);
/* Makes points first .. first + rows of all faces together, and their terms; sets x, f and v; for a residual
 * loss (residual.h) a, too. */
int ritz_face_terms(const problem *problem, ritz_faces *faces, double penalty, int64_t first, int64_t rows, const ritz_samples *at,
                    double *terms, pt_error *e);
/* Point `at` of all faces together: x, the number of its face, and its weight. */
double ritz_face_point(const problem *problem, ritz_faces *faces, int64_t at, double *x, int64_t *number);
/* Refuses a value that is not finite; `name` is its function's, x (n, dim) are its points, and `each` values belong to one. */
int ritz_check_values(const problem *problem, const char *name, int64_t n, int64_t each, const double *values, const double *x,
                      pt_error *e);
/* Those of f, V and a; a must be positive, too. */
int ritz_check_inside(const problem *problem, int64_t rows, const ritz_samples *at, pt_error *e);

#endif
