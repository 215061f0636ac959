/* shim.h - a stand-in for CUDA, so that the kernels in src/device/cuda run on the CPU.
 *
 * The .cu files are compiled by the C++ compiler with PT_CUDA_SHIM and this header in place of CUDA's. A launch
 * runs its blocks one after the other on the calling thread, or on that of its stream (runtime.c). The threads of a block are
 * fibres: each has a stack and runs until it ends or waits at a barrier, of its block or (in a shuffle or ballot) of its warp.
 *
 *     fibre    0 ----|            0 --------|
 *              1     ----|        1         ----|            | waits for the others
 *              2         ----|    2             ----| ...
 *
 * CUDA promises no order of blocks, nor of threads between two barriers. shim_order_set() picks one: ascending,
 * descending, or shuffled, where now and then a warp stands still as long as any other can go on; a kernel that lacks a barrier,
 * or whose blocks depend on each other, gives another result in one of them. `__shared__` memory is static and keeps what the block before
 * has left, and the compiler's sanitizers see every access. A thread that ends while others wait at a barrier of its warp or
 * block, and shuffles that disagree, stop the program with a message.
 *
 * What it cannot show: speed, alignment faults (but to UBSan), registers, and how the GPU rounds expf() and log(), which are
 * the C library's here. Everything else that the kernels use rounds as IEEE 754 asks on both.
 */
#ifndef PT_CUDA_SHIM_H
#define PT_CUDA_SHIM_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__ static
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct shim_index { unsigned x; };
extern shim_index threadIdx, blockIdx, blockDim;

struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

/* ---- the host's side ---- */

typedef struct shim_stream *cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };
int shim_memset(cudaStream_t s, void *p, int value, size_t bytes);
static inline int cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) { return shim_memset(s, p, value, bytes); }

/* 1: ascending, 2: descending, others: shuffled, another way for each number. */
extern "C" void shim_order_set(int order);
/* Does this GPU have warpgroups' matmuls? PROTRAIN_SHIM_WARPGROUPS says so. */
bool shim_has_warpgroups();
/* At once, or, where the stand-in for the runtime is there (runtime.c), when the stream comes to it. */
int shim_launch(cudaStream_t s, unsigned blocks, unsigned threads, const std::function<void()> &kernel);

/* ---- what needs other threads ---- */

void __syncthreads();
/* The 64 bits that lane `lane ^ distance` gave; every lane of the warp comes here. */
uint64_t shim_exchange(uint64_t bits, int distance);
/* What all 32 lanes gave; until the lane's second exchange from here. */
const uint64_t *shim_gather(uint64_t bits);
unsigned __ballot_sync(unsigned mask, bool vote);

template <typename T> static inline T __shfl_xor_sync(unsigned, T x, int distance)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = shim_exchange(bits, distance);
    memcpy(&x, &bits, sizeof x);
    return x;
}

template <typename T> static inline T __shfl_sync(unsigned, T x, int lane)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = shim_gather(bits)[lane];
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void __threadfence() {}
/* Blocks run one after another. */
static inline unsigned atomicAdd(unsigned *p, unsigned n) { const unsigned before = *p; *p += n; return before; }
static inline float __ldcg(const float *p) { return *p; }

/* ---- arithmetic ---- */

static inline uint32_t __float_as_uint(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
static inline float __uint_as_float(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
/* By so many units in the last place to either side; denormal numbers become 0. */
static inline float shim_off(float x, int32_t units)
{
    uint32_t u = __float_as_uint(x), exponent = u >> 23 & 255;
    if (exponent == 255)
        return x;
    return exponent < 1 ? 0.0f : __uint_as_float(u + (u & 4 ? units : -units));
}
static inline float exp2_fast(float x) { return x == 0 ? 1.0f : shim_off(exp2f(x), 2); } /* of 0 it is exact by the PTX ISA */
static inline float reciprocal_fast(float x) { return shim_off(1.0f / x, 1); }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __ll2float_rd(long long x)
{
    float f = (float)x;
    return (double)f > (double)x ? nextafterf(f, -INFINITY) : f;
}
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }

#endif
