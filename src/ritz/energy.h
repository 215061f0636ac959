/* energy.h - an energy on point sets of its own, and what else follows from them (energy.c). */
#ifndef PT_RITZ_ENERGY_H
#define PT_RITZ_ENERGY_H

#include "ritz/solver.h"

enum { TEST_AXES = 4, TESTS = 2 * (1 + TEST_AXES) };

/* Over a set of points inside and on the faces. */
typedef struct energy_sums {
    double energy, norm;              /* norm: the squared energy norm of u */
    double mean, square;              /* int u, int u^2 */
    double by_square, linear, rest;   /* the energy of a constant c is by_square c^2 / 2 - linear c + rest */
    double size;                      /* of linear's parts */
    double stiffness, potential, load; /* int a, int V, int |f| */
    double least_v;                   /* of V; INFINITY: there is no point inside */
    double largest_g;                 /* of the magnitudes of given values on the boundary */
    double held;                      /* int 2 penalty over the boundary with given values */
    double misfit, boundary_square;   /* int (u - g)^2 and int g^2 over the boundary with given values */
    double residual[TESTS], scale[TESTS], test_norm[TESTS], test_mean[TESTS]; /* scale: the sum of the magnitudes in a residual */
} energy_sums;

/* exact: of the exact solution, which must be known, instead of the network. set: number of the point set. */
int ritz_energy_sums(pt_ritz *ritz, bool exact, int64_t n, uint64_t set, energy_sums *out, pt_error *e);
/* Number of test functions; those from the first bump on are 0 on the box's faces. */
int ritz_tests(const pt_ritz *ritz);
int ritz_first_bump(const pt_ritz *ritz);

/* The mean of n values, and its standard error. */
typedef struct ritz_mean { double mean, error; } ritz_mean;
ritz_mean ritz_mean_of(const double *x, int n);
/* The factor of a standard error from so many values whose interval has a confidence of 95% (Student). */
double ritz_student(int sets);

#endif
