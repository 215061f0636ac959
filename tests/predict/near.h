/* near.h - times that are equal but for rounding. Include after cmocka.h. */
#ifndef PT_TEST_NEAR_H
#define PT_TEST_NEAR_H

#include <math.h>
#include <stdbool.h>

static inline bool near(double a, double b) { return fabs(a - b) <= 1e-7 * (fabs(a) + fabs(b) + 1); }

#endif
