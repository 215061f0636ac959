/* mma.h - bf16 matmuls of a warp on the tensor cores, and the shared memory that they read.
 *
 * c (16, 8) += a (16, 16) . b (16, 8). With g = lane / 4 and t = lane % 4, a lane has
 *
 *     a[0]: row g,   columns 2t, 2t+1      a[2]: row g,   columns 2t+8, 2t+9      each two bf16 in 32 bits
 *     a[1]: row g+8, columns 2t, 2t+1      a[3]: row g+8, columns 2t+8, 2t+9
 *     b[0]: rows 2t, 2t+1, column g        b[1]: rows 2t+8, 2t+9, column g
 *     c[0], c[1]: row g, columns 2t, 2t+1  c[2], c[3]: row g+8                    fp32
 *
 * so that c, rounded, can be the operand a of a matmul over its columns. matrix_load reads four 8 x 8 matrices from shared memory: lane l
 * passes the address of row l % 8 of matrix l / 8, and gets row g, columns 2t and 2t+1 of each matrix; transposed, column g, rows 2t and
 * 2t+1. Rows of a tile are D + 8 elements apart, which spreads eight rows over all banks.
 */
#ifndef PT_CUDA_MMA_H
#define PT_CUDA_MMA_H

#include "device/cuda/primitives.h"

enum { TILE_PAD = 8 };

#ifdef PT_CUDA_SHIM
#include "shim_mma.h"
#else

#define SHARED_BYTES(name) extern __shared__ __align__(128) unsigned char name[]

DEVICE void mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

DEVICE void matrix_load(uint32_t r[4], const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

DEVICE void matrix_load_transposed(uint32_t r[4], const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

/* Copies 16 bytes to shared memory, or zeros if not `there`; complete after copies_wait and a barrier. */
DEVICE void copy_async(uint16_t *to, const uint16_t *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
/* The same with four bytes. */
DEVICE void copy_word_async(void *to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(shared_address(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/* Waits for all groups but the last N. */
template <int N> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }

#endif

/* ---- tiles ---- */

/* Starts copying rows row0 .. row0 + ROWS of a matrix, whose row 0 is at `from`, to shared memory. Rows from `rows` on and columns from
 * `cols` (a multiple of 8) on are zeros. */
template <int ROWS, int D, int THREADS>
DEVICE void tile_copy(uint16_t *tile, const uint16_t *from, int64_t ld, int64_t row0, int64_t rows, int cols)
{
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
        int row = i / (D / 8), col = i % (D / 8) * 8;
        bool there = row0 + row < rows && col < cols;
        copy_async(tile + row * (D + TILE_PAD) + col, there ? from + (row0 + row) * ld + col : from, there);
    }
}

/* Loads a: rows row .. row+15, columns k .. k+15 of a tile with row stride LD. */
template <int LD> DEVICE void load_a(uint32_t a[4], const uint16_t *tile, int row, int k)
{
    int lane = threadIdx.x % WARP;
    matrix_load(a, tile + (row + lane % 16) * LD + k + lane / 16 * 8);
}

/* The same from a transposed tile: rows of a are its columns. */
template <int LD> DEVICE void load_a_transposed(uint32_t a[4], const uint16_t *tile, int row, int k)
{
    int lane = threadIdx.x % WARP;
    matrix_load_transposed(a, tile + (k + lane % 8 + lane / 16 * 8) * LD + row + lane / 8 % 2 * 8);
}

/* Loads b: columns n .. n+7 (b[0], b[1]) and n+8 .. n+15 (b[2], b[3]), which are rows of the tile. */
template <int LD> DEVICE void load_b(uint32_t b[4], const uint16_t *tile, int k, int n)
{
    int lane = threadIdx.x % WARP;
    matrix_load(b, tile + (n + lane % 8 + lane / 16 * 8) * LD + k + lane / 8 % 2 * 8);
}

/* The same if the tile is not transposed: columns of b are its columns. */
template <int LD> DEVICE void load_b_transposed(uint32_t b[4], const uint16_t *tile, int k, int n)
{
    int lane = threadIdx.x % WARP;
    matrix_load_transposed(b, tile + (k + lane % 16) * LD + n + lane / 16 * 8);
}

/* The maximum over the four lanes that share a row of c. */
DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 2));
}

DEVICE float quad_sum(float x)
{
    x += __shfl_xor_sync(FULL_WARP, x, 1);
    return x + __shfl_xor_sync(FULL_WARP, x, 2);
}

/* ---- launches ---- */

typedef struct shared_limits { int multiprocessors, bytes /* of dynamic shared memory that a block may have */; } shared_limits;

/* Of this thread's GPU. */
static inline int shared_limits_get(shared_limits *l)
{
#ifdef PT_CUDA_SHIM
    *l = {2, SHIM_SHARED_BYTES};
    return 0;
#else
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error = cudaDeviceGetAttribute(&l->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    return error ? error : cudaDeviceGetAttribute(&l->bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
#endif
}

/* Launches with `shared` bytes of dynamic shared memory. */
template <typename... P, typename... A>
static int launch_shared(void (*kernel)(P...), int64_t blocks, int threads, int shared, cudaStream_t s, A... args)
{
    if (blocks == 0)
        return 0;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidConfiguration;
#ifdef PT_CUDA_SHIM
    return shim_launch(s, (unsigned)blocks, (unsigned)threads, [=] {
        shim_shared = (size_t)shared; /* when the kernel runs: others may have been launched since */
        kernel(args...);
    });
#else
    cudaError_t error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error)
        return error;
    kernel<<<(unsigned)blocks, (unsigned)threads, (size_t)shared, s>>>(args...);
    return cudaGetLastError();
#endif
}

#endif
