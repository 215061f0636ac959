/* call.h - a header's function that CUDA kernels call, too. */
#ifndef PT_DEVICE_CALL_H
#define PT_DEVICE_CALL_H

#ifdef __CUDACC__
#define DEVICE_CALL __host__ __device__ static inline
#else
#define DEVICE_CALL static inline
#endif

#endif
