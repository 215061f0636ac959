/* ansatz.h - the solution in terms of the network N: u = g + D N, where the factor D is 0 on the hard faces; elsewhere u = N.
 *
 * D is a product over the axes with hard faces: 4 s (1 - s) if both are, s or 1 - s if one is; s goes from 0 to 1. Hard holes
 * have a factor each. If all faces are hard, g is the problem's, and its gradient is found by differences; else the hard faces have g = 0.
 */
#ifndef PT_RITZ_ANSATZ_H
#define PT_RITZ_ANSATZ_H

#include "device/device.h"
#include "ritz/problem.h"

bool ansatz_is_hard(const problem *problem);
bool ansatz_hole_is_hard(const problem *problem, int64_t hole);
bool ansatz_has_hard_holes(const problem *problem);
/* Whether g is the solution's value in the box. */
bool ansatz_has_lift(const problem *problem);
/* D and g at a point, with their Laplacians, that of D only without hard holes; their gradients are arrays (dim). Without hard faces D is 1
 * and g is 0. work: dim numbers. */
typedef struct ansatz_parts { double factor, of_factor, lift, of_lift; } ansatz_parts;
ansatz_parts ansatz_at(const problem *problem, const double *x, double *factor_gradient, double *lift_gradient, double *work);
/* Replaces N and its gradient (NULL: not wanted) at n points by u and its gradient. work: 3 dim + 1 numbers. */
void ansatz_apply(const problem *problem, int64_t n, const double *x, double *u, double *gradient, double *work);

/* A unit whose energy is not OP_QUADRATIC's of N and its gradient: u is composed, or there is a G. Its tensors: x and g (rows, ld). */
typedef struct ansatz_energy {
    const problem *problem;
    double weight;         /* of a point */
    pt_dtype type;
    int64_t dim, ld;
    const void *x, *n, *g; /* N and its gradient; g NULL: the energy does not depend on it */
    const double *terms;
    double *value;
    void *du, *dg;         /* derivatives by N and its gradient */
} ansatz_energy;
/* For OP_CALL: the rows first .. end; scratch has CALL_SCRATCH_BYTES. */
void ansatz_energy_rows(void *arg, int64_t first, int64_t end, void *scratch);

#endif
