/* lanes.h - sums in SUMSQ_LANES lanes of fp64 (device.h), a lane for each of a block's first threads. */
#ifndef PT_CUDA_LANES_H
#define PT_CUDA_LANES_H

#include "device/cuda/primitives.h"

/* Adds the lanes' sums, lane i of thread i; every thread gets the result. */
DEVICE double lanes_total(double sum)
{
    __shared__ double lane[SUMSQ_LANES];
    __syncthreads();
    if (threadIdx.x < SUMSQ_LANES)
        lane[threadIdx.x] = sum;
    for (int n = SUMSQ_LANES / 2; n; n /= 2) {
        __syncthreads();
        if (threadIdx.x < n)
            lane[threadIdx.x] = __dadd_rn(lane[threadIdx.x], lane[threadIdx.x + n]);
    }
    __syncthreads();
    return lane[0];
}

#endif
