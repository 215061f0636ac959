/* primitives.h - building blocks of the CUDA kernels: packs of elements, sums over a warp and a block, launches.
 *
 * A thread works on packs of PACK = 8 neighbouring elements. If the rows of a tensor are at multiples of 16 bytes (`wide`, set by the
 * launcher), a pack is loaded and stored in 16-byte words, else element by element. The result is the same, except for the bits of NaN.
 *
 *     row      |  pack 0  |  pack 1  |  ...  |  last pack, short  |
 *     thread        0          1                 filled with zeros
 *
 * Sums have three fixed steps: over a thread's packs, ascending; over the lanes of a warp, as a butterfly; over the warps of a block, as a
 * butterfly. The number of threads of a row depends only on its length, so a row's sum depends only on the row.
 *
 * All threads of the warp or block must call the warp and block operations. They use three CUDA built-ins, which the host shim replaces:
 * shuffle, ballot and barrier.
 *
 * Products and sums are fused only by fmaf(): the kernels are compiled with -fmad=false.
 */
#ifndef PT_CUDA_PRIMITIVES_H
#define PT_CUDA_PRIMITIVES_H

#include "device/cuda/kernels.h"

#include <stdint.h>

enum { PACK = 8, WARP = 32 };
#define FULL_WARP 0xffffffffu

#define DEVICE [[maybe_unused]] static __device__ __forceinline__

/* ---- elements ---- */

DEVICE float bf16_value(uint32_t bits) { return __uint_as_float(bits << 16); }

/* Like bf16_from_f32 in base/dtype.h: nearest, ties to even; a NaN becomes a quiet NaN. */
DEVICE uint32_t bf16_bits(float x)
{
    uint32_t u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (u | 0x400000u) >> 16;
    return (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
}

template <pt_dtype T> DEVICE float element_load(const void *base, int64_t i)
{
    return T == PT_BF16 ? bf16_value(((const uint16_t *)base)[i]) : ((const float *)base)[i];
}

template <pt_dtype T> DEVICE void element_store(void *base, int64_t i, float x)
{
    if (T == PT_BF16)
        ((uint16_t *)base)[i] = (uint16_t)bf16_bits(x);
    else
        ((float *)base)[i] = x;
}

/* Two bf16 in one word, nearest, ties to even: one instruction, instead of seven per element for bf16_bits(). A NaN becomes the GPU's,
 * 0x7fff. */
DEVICE uint32_t bf16_pair(float low, float high)
{
#ifdef PT_CUDA_SHIM
    return bf16_bits(low) | bf16_bits(high) << 16;
#else
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

/* x rounded to this type. */
template <pt_dtype T> DEVICE float element_round(float x)
{
    return T == PT_BF16 ? bf16_value(bf16_bits(x)) : x;
}

template <pt_dtype T> DEVICE const void *element_at(const void *base, int64_t i)
{
    return (const char *)base + i * (T == PT_BF16 ? 2 : 4);
}

template <pt_dtype T> DEVICE void *element_at(void *base, int64_t i)
{
    return (char *)base + i * (T == PT_BF16 ? 2 : 4);
}

/* ---- fast functions ---- */

/* Instructions of the special function unit, for results that are rounded to bf16. Errors are up to 2 and 1 ulp, but 2^0 is exactly 1;
 * denormal results are 0. The shim's versions have errors of that size. */
#ifndef PT_CUDA_SHIM
DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* ---- packs ---- */

typedef struct pack { float x[PACK]; } pack;
typedef struct half_pack { uint16_t x[PACK]; } half_pack;

/* Loads elements i .. i + 7 of a row of n; those from n on are 0. */
DEVICE half_pack half_load(const uint16_t *row, int64_t i, int64_t n, bool wide)
{
    half_pack p;
    if (wide && i + PACK <= n) {
        uint4 v = *(const uint4 *)(row + i);
        uint32_t word[4] = {v.x, v.y, v.z, v.w};
        for (int j = 0; j < PACK; j++)
            p.x[j] = (uint16_t)(word[j / 2] >> (j % 2 * 16));
        return p;
    }
    for (int j = 0; j < PACK; j++)
        p.x[j] = i + j < n ? row[i + j] : (uint16_t)0;
    return p;
}

/* Elements from n on are not written. */
DEVICE void half_store(uint16_t *row, int64_t i, int64_t n, bool wide, half_pack p)
{
    if (wide && i + PACK <= n) {
        uint32_t word[4];
        for (int j = 0; j < PACK; j += 2)
            word[j / 2] = p.x[j] | (uint32_t)p.x[j + 1] << 16;
        *(uint4 *)(row + i) = make_uint4(word[0], word[1], word[2], word[3]);
        return;
    }
    for (int j = 0; j < PACK; j++)
        if (i + j < n)
            row[i + j] = p.x[j];
}

/* A pack in the format of memory: in bf16 it takes half the registers until it is used. */
template <pt_dtype T> struct packed { uint32_t word[T == PT_BF16 ? PACK / 2 : PACK]; };

/* Loads elements i .. i + 7, which all exist, from a multiple of 16 bytes. */
template <pt_dtype T> DEVICE packed<T> packed_whole(const void *row, int64_t i)
{
    packed<T> p;
    const uint4 *from = (const uint4 *)element_at<T>(row, i);
    for (int k = 0; k < (T == PT_BF16 ? PACK / 2 : PACK); k += 4) {
        uint4 v = from[k / 4];
        p.word[k] = v.x, p.word[k + 1] = v.y, p.word[k + 2] = v.z, p.word[k + 3] = v.w;
    }
    return p;
}

/* Elements from n on are 0. */
template <pt_dtype T> DEVICE packed<T> packed_load(const void *row, int64_t i, int64_t n, bool wide)
{
    const int words = T == PT_BF16 ? PACK / 2 : PACK;
    if (wide && i + PACK <= n)
        return packed_whole<T>(row, i);
    packed<T> p;
    for (int k = 0; k < words; k++)
        p.word[k] = 0;
    for (int j = 0; j < PACK; j++)
        if (i + j < n) {
            if (T == PT_BF16)
                p.word[j / 2 % words] |= (uint32_t)((const uint16_t *)row)[i + j] << (j % 2 * 16);
            else
                p.word[j % words] = ((const uint32_t *)row)[i + j];
        }
    return p;
}

template <pt_dtype T> DEVICE pack packed_values(packed<T> p)
{
    const int words = T == PT_BF16 ? PACK / 2 : PACK;
    pack v;
    for (int j = 0; j < PACK; j++)
        if (T == PT_BF16)
            v.x[j] = j % 2 ? __uint_as_float(p.word[j / 2 % words] & 0xffff0000u) : bf16_value(p.word[j / 2 % words]);
        else
            v.x[j] = __uint_as_float(p.word[j % words]);
    return v;
}

/* Hides from the compiler that p is unchanged, so that it unpacks p again instead of keeping its values in twice the registers. */
template <pt_dtype T> DEVICE void packed_hide(packed<T> *p)
{
#ifndef PT_CUDA_SHIM
    for (int k = 0; k < (T == PT_BF16 ? PACK / 2 : PACK); k++)
        asm volatile("" : "+r"(p->word[k]));
#endif
}

/* Keeps the compiler from moving later loads before this point, where they would occupy registers. */
DEVICE void stay_in_order(void)
{
#ifndef PT_CUDA_SHIM
    asm volatile("" : : : "memory");
#endif
}

template <pt_dtype T> DEVICE pack pack_load(const void *row, int64_t i, int64_t n, bool wide)
{
    return packed_values<T>(packed_load<T>(row, i, n, wide));
}

template <pt_dtype T> DEVICE packed<T> packed_of(pack p)
{
    const int words = T == PT_BF16 ? PACK / 2 : PACK;
    packed<T> v;
    for (int k = 0; k < words; k++)
        v.word[k] = T == PT_BF16 ? bf16_pair(p.x[2 * k % PACK], p.x[(2 * k + 1) % PACK]) : __float_as_uint(p.x[k]);
    return v;
}

template <pt_dtype T> DEVICE void pack_whole_store(void *row, int64_t i, pack p)
{
    packed<T> v = packed_of<T>(p);
    uint4 *to = (uint4 *)element_at<T>(row, i);
    for (int k = 0; k < (T == PT_BF16 ? PACK / 2 : PACK); k += 4)
        to[k / 4] = make_uint4(v.word[k], v.word[k + 1], v.word[k + 2], v.word[k + 3]);
}

template <pt_dtype T> DEVICE void pack_store(void *row, int64_t i, int64_t n, bool wide, pack p)
{
    if (wide && i + PACK <= n) {
        pack_whole_store<T>(row, i, p);
        return;
    }
    for (int j = 0; j < PACK; j++)
        if (i + j < n)
            element_store<T>(row, i + j, p.x[j]);
}

DEVICE float pack_sum(pack p)
{
    return ((p.x[0] + p.x[1]) + (p.x[2] + p.x[3])) + ((p.x[4] + p.x[5]) + (p.x[6] + p.x[7]));
}

/* ---- warps and blocks ---- */

template <typename F> DEVICE F warp_sum(F x)
{
    for (int distance = WARP / 2; distance; distance /= 2)
        x += __shfl_xor_sync(FULL_WARP, x, distance);
    return x;
}

DEVICE float warp_max(float x)
{
    for (int distance = WARP / 2; distance; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, distance));
    return x;
}

/* Every warp gets all warps' values: lane w has that of warp w; lanes past the last warp have `rest`. */
DEVICE float block_share(float x, float rest)
{
    __shared__ float of_warp[WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    __syncthreads(); /* the previous call's values have been read */
    if (lane == 0)
        of_warp[warp] = x;
    __syncthreads();
    return lane < warps ? of_warp[lane] : rest;
}

DEVICE float block_sum(float x) { return warp_sum(block_share(warp_sum(x), 0.0f)); }
DEVICE float block_max(float x) { return warp_max(block_share(warp_max(x), -INFINITY)); }

/* ---- launches, on the host ---- */

/* Whether rows with this stride, in elements, can be accessed in 16-byte words. */
static inline bool is_wide(pt_dtype type, const void *rows, int64_t stride)
{
    return ((uintptr_t)rows | (uintptr_t)stride * dtype_bytes(type)) % 16 == 0;
}

static inline int64_t blocks_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Launches a one-dimensional grid; with 0 blocks it launches nothing. */
template <typename... P, typename... A>
static int launch(void (*kernel)(P...), int64_t blocks, int threads, cudaStream_t s, A... args)
{
    if (blocks == 0)
        return 0;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidConfiguration;
#ifdef PT_CUDA_SHIM
    return shim_launch(s, (unsigned)blocks, (unsigned)threads, [=] { kernel(args...); });
#else
    kernel<<<(unsigned)blocks, (unsigned)threads, 0, s>>>(args...);
    return cudaGetLastError();
#endif
}

#endif
