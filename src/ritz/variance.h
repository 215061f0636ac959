/* variance.h - how much the gradient of the energy varies with the points that it is estimated on. */
#ifndef PT_RITZ_VARIANCE_H
#define PT_RITZ_VARIANCE_H

#include "protrain_ritz.h"

/* Of n points of the kind, at the weights of `at`: the variance of each of the gradient's values over `sets` drawings (2 or more), added
 * up;
 * *mean_square: the squared length of the mean gradient, may be NULL. */
int ritz_gradient_variance(pt_ritz *at, pt_ritz_points kind, int64_t n, int sets, double *variance, double *mean_square, pt_error *e);

/* Slope of log y against log x, by least squares. */
double ritz_slope(const double *x, const double *y, int n);

#endif
