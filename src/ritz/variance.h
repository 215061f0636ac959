/* variance.h - the variance of the energy's gradient over point sets. */
#ifndef PT_RITZ_VARIANCE_H
#define PT_RITZ_VARIANCE_H

#include "protrain_ritz.h"

/* At the weights of `at`, with n points of the kind: *variance is the sum over all parameters of the gradient's variance over `sets` draws
 * (2 or more); *mean_square (may be NULL) the squared length of the mean gradient. */
int ritz_gradient_variance(pt_ritz *at, pt_ritz_points kind, int64_t n, int sets, double *variance, double *mean_square, pt_error *e);

/* Slope of log y against log x, by least squares. */
double ritz_slope(const double *x, const double *y, int n);

#endif
