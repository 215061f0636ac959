/* squares.h - sums of squares in SUMSQ_LANES lanes of fp64 (device.h). */
#ifndef PT_KERNEL_SQUARES_H
#define PT_KERNEL_SQUARES_H

#include "device/cpu/kernels/vec.h"
#include "device/device.h"

enum { SQUARES = SUMSQ_LANES, SQUARE_VECS = SQUARES / VEC_LANES };
_Static_assert(SQUARES % (2 * VEC_LANES) == 0, "two vectors at a time");

/* The same lanes at every width: part[2j] and part[2j + 1] are the halves of vector j. A square of
 * an fp32 number is exact in fp64. */
typedef struct squares { vd part[2 * SQUARE_VECS]; } squares;

static INLINE void squares_add(vd sum[2], vf g)
{
    vd low = vec_low_double(g), high = vec_high_double(g);
    sum[0] = vec_add_square(low, sum[0]);
    sum[1] = vec_add_square(high, sum[1]);
}

static INLINE double squares_total(squares s)
{
    double lane[VEC_LANES / 2];
#pragma GCC unroll 8
    for (int n = SQUARE_VECS; n; n /= 2)
#pragma GCC unroll 32
        for (int i = 0; i < n; i++)
            s.part[i] = s.part[i] + s.part[i + n];
    memcpy(lane, s.part, sizeof lane);
    for (int width = VEC_LANES / 4; width; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

#endif
