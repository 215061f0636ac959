/* ritz_write.h - values of a network at points, as a file. */
#ifndef CLI_RITZ_WRITE_H
#define CLI_RITZ_WRITE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* n points, in the order of a C array (grid, ..., grid) if they are a grid. */
typedef struct ritz_values {
    int64_t n, dim, grid;             /* grid: points along each axis; 0: they are any points */
    const double *lower, *upper;      /* of a grid (dim) */
    const double *x, *u, *gradient;   /* (n, dim), (n), (n, dim) */
    const double *exact;              /* (n); NULL: not known */
} ritz_values;

bool ritz_ends_in(const char *path, const char *ending);
void ritz_write_csv(FILE *out, const ritz_values *v);
/* Its name ends in .csv, .npz (NumPy: x, u, gradient, and exact and error if known) or .vtk (ParaView: of a grid of 1 to 3 dimensions). */
int ritz_write_file(const char *path, const ritz_values *v, pt_error *e);

#endif
