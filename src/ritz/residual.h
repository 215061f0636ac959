/* residual.h - the residual loss of a point inside: w r^2 of the equation's residual
 *
 *     r = -div(a grad u) + V u + dG/du - f = -a (sum of d2u/dx_j^2) - grad a . grad u + V u + dG/du - f
 *
 * and of a point on a face, with the residual of its condition: r = a du/dn + (Robin's r) u - g, or u - g. Derivatives of a, of dG by u,
 * and of a hard boundary's g are differences of order 4.
 */
#ifndef PT_RITZ_RESIDUAL_H
#define PT_RITZ_RESIDUAL_H

#include "device/device.h"
#include "ritz/problem.h"

/* The terms of a point inside are OP_QUADRATIC's: w a, w V, w f, 0, and what is added to the derivative by u. Those of a point on a face:
 * factors of du/dn and of u; g; the weight; j or -j, if n is along xj or against it. */
enum { RESIDUAL_NORMAL, RESIDUAL_VALUE, RESIDUAL_GIVEN, RESIDUAL_WEIGHT, RESIDUAL_AXIS };

typedef struct residual_loss {
    const problem *problem;
    double weight;           /* of a point inside */
    bool face;
    pt_dtype type;
    int64_t dim, ld, rows;
    const void *x, *jets;    /* (rows, ld); (dim + 2, rows): the network, its gradient and its Laplacian */
    const double *terms;
    double *value;           /* (rows) */
    void *seed;              /* (dim + 2, rows): the derivatives of the loss by `jets` */
} residual_loss;

/* Numbers of scratch that a row needs, for each dimension. */
enum { RESIDUAL_SCRATCH = 10 };
/* For OP_CALL: the rows first .. end; scratch has CALL_SCRATCH_BYTES. */
void residual_rows(void *arg, int64_t first, int64_t end, void *scratch);

#endif
