#include "base/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *x, int n)
{
    if (n < 1)
        return 0;
    qsort(x, (size_t)n, sizeof *x, by_value);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}
