/* median.h - the median of numbers. */
#ifndef PT_MEDIAN_H
#define PT_MEDIAN_H

/* Sorts them. The mean of the two in the middle if n is even; 0 if n is 0. */
double median(double *x, int n);

#endif
