/* scan.h - a chunk of a scan in a block's shared memory, for kernels_scan.cu and kernels_scan_backward.cu. The algorithm and the names are
 * those of the CPU (cpu/kernels/scan_chunk.h), but for shorter chunks: 16 rows by 16 rows are the threads of a block. */
#ifndef PT_CUDA_SCAN_H
#define PT_CUDA_SCAN_H

#include "device/cuda/mma.h"

#include <float.h>

enum { SCAN_ROWS = SCAN_GPU_CHUNK, SCAN_THREADS = SCAN_ROWS * SCAN_ROWS, SCAN_WARPS = SCAN_THREADS / WARP, SCAN_SQUARE = SCAN_THREADS };
enum { SCAN_TWO = SCAN_ROWS / SCAN_WARPS /* rows of a warp: its number, and so many warps on */ };

/* Columns column .. column + columns of v, for head `head` of a sequence. q and k have stride keys. */
typedef struct scan_block {
    int64_t seq, head, key_head, row0;
    int n, keys, key_dim, column, columns;
    float *q, *k, *u, *qk, *kk, *decay, *p, *less, *a, *since, *beta;
} scan_block;

/* Takes n floats of the shared memory, by multiples of 16 bytes. */
DEVICE float *scan_take(float **free, int n)
{
    float *taken = *free;
    *free += (n + 3) / 4 * 4;
    return taken;
}
static inline int scan_block_floats(int64_t key_dim, int64_t columns)
{
    return (int)(2 * SCAN_ROWS * (key_dim + 1) + SCAN_ROWS * (columns + 3) + 5 * SCAN_SQUARE + 3 * SCAN_ROWS + 3 * 4);
}
DEVICE scan_block scan_block_of(const op_scan &o, float **free, int columns)
{
    scan_block b;
    b.seq = b.head = b.key_head = b.row0 = 0;
    b.n = b.column = 0;
    b.columns = columns, b.key_dim = (int)o.key_dim, b.keys = b.key_dim + 1;
    b.q = scan_take(free, SCAN_ROWS * b.keys), b.k = scan_take(free, SCAN_ROWS * b.keys), b.u = scan_take(free, SCAN_ROWS * columns);
    b.qk = scan_take(free, SCAN_SQUARE), b.kk = scan_take(free, SCAN_SQUARE), b.decay = scan_take(free, SCAN_SQUARE);
    b.p = scan_take(free, SCAN_SQUARE), b.less = scan_take(free, SCAN_SQUARE);
    b.a = scan_take(free, SCAN_ROWS), b.since = scan_take(free, SCAN_ROWS), b.beta = scan_take(free, SCAN_ROWS);
    return b;
}

DEVICE int64_t scan_row(const op_scan &o, const scan_block &b, int i) { return b.seq * o.len + b.row0 + i; }
DEVICE bool scan_starts(const op_scan &o, const scan_block &b, int i)
{
    return o.first && b.row0 + i > 0 && o.first[scan_row(o, b, i)] == b.row0 + i;
}

/* The factor of a row of q or k, found by a warp. */
template <pt_dtype T> DEVICE float scan_norm_factor(const op_scan &o, const void *x, int64_t at)
{
    float sum = 0.0f;
    if (o.norm_eps <= 0)
        return 1.0f;
    for (int64_t i = threadIdx.x % WARP; i < o.key_dim; i += WARP) {
        const float value = element_load<T>(x, at + i);
        sum = fmaf(value, value, sum);
    }
    return 1.0f / sqrtf(warp_sum(sum) + o.norm_eps);
}

DEVICE float scan_scale(const op_scan &o) { return o.scale != 0 ? o.scale : 1.0f; }

/* q and k of the chunk, and their products. The chunk before is done with. */
template <pt_dtype T> DEVICE void scan_load_keys(const op_scan &o, const scan_block &b)
{
    const int lane = threadIdx.x % WARP, i = threadIdx.x / SCAN_ROWS, j = threadIdx.x % SCAN_ROWS;
    float qk = 0.0f, kk = 0.0f;
    __syncthreads();
    for (int row = threadIdx.x / WARP; row < b.n; row += SCAN_WARPS) {
        const int64_t at = scan_row(o, b, row) * o.ld + b.key_head * o.key_dim;
        const float of_q = scan_norm_factor<T>(o, o.q, at) * scan_scale(o), of_k = scan_norm_factor<T>(o, o.k, at);
        for (int x = lane; x < b.key_dim; x += WARP) {
            b.q[row * b.keys + x] = element_load<T>(o.q, at + x) * of_q;
            b.k[row * b.keys + x] = element_load<T>(o.k, at + x) * of_k;
        }
    }
    __syncthreads();
    for (int x = 0; x < b.key_dim && i < b.n && j < b.n; x++) {
        qk = fmaf(b.q[i * b.keys + x], b.k[j * b.keys + x], qk);
        kk = fmaf(b.k[i * b.keys + x], b.k[j * b.keys + x], kk);
    }
    b.qk[threadIdx.x] = qk;
    b.kk[threadIdx.x] = kk;
}

DEVICE float scan_normal(float x) { return x < FLT_MIN ? 0.0f : x; } /* as on the CPU, where denormal numbers are slow */

/* a, since, beta, decay, p and less of the block's head. */
DEVICE void scan_gates(const op_scan &o, const scan_block &b)
{
    const int j = threadIdx.x;
    __syncthreads();
    if (j < b.n) {
        const int64_t at = scan_row(o, b, j) * o.heads + b.head;
        b.beta[j] = o.beta[at];
        b.a[j] = scan_starts(o, b, j) ? 0.0f : scan_normal(expf(o.g[at]));
    }
    __syncthreads();
    if (j < SCAN_ROWS) {
        float decay = 0.0f;
        for (int i = 0; i < b.n; i++) {
            const int at = i * SCAN_ROWS + j;
            decay = i == j ? 1.0f : i > j ? scan_normal(decay * b.a[i]) : 0.0f;
            b.decay[at] = decay;
            b.p[at] = i >= j ? decay * b.qk[at] : 0.0f;
            b.less[at] = i > j && o.kind == SCAN_DELTA ? -b.beta[i] * decay * b.kk[at] : 0.0f;
        }
    } else if (j == SCAN_ROWS) {
        float since = 1.0f;
        for (int i = 0; i < b.n; i++)
            b.since[i] = since = scan_normal(since * b.a[i]);
    }
    __syncthreads();
}

DEVICE float scan_until_end(const scan_block &b, int i) { return b.decay[(b.n - 1) * SCAN_ROWS + i]; }

/* u, from the state before the chunk (key_dim, ..), with stride ld; known: it is not 0. */
template <pt_dtype T> DEVICE void scan_find_u(const op_scan &o, const scan_block &b, const float *state, int ld, bool known)
{
    for (int i = threadIdx.x / WARP; i < b.n; i += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < b.columns; d += WARP) {
            float seen = 0.0f;
            for (int x = 0; x < b.key_dim && known && o.kind == SCAN_DELTA; x++)
                seen = fmaf(b.k[i * b.keys + x], state[x * ld + d], seen);
            const float v = element_load<T>(o.v, scan_row(o, b, i) * o.ld + b.head * o.dim + b.column + d);
            b.u[i * b.columns + d] = b.beta[i] * fmaf(-b.since[i], seen, v);
        }
    __syncthreads();
    for (int d = threadIdx.x; d < b.columns && o.kind == SCAN_DELTA; d += SCAN_THREADS)
        for (int i = 1; i < b.n; i++) {
            float u = b.u[i * b.columns + d];
            for (int j = 0; j < i; j++)
                u = fmaf(b.less[i * SCAN_ROWS + j], b.u[j * b.columns + d], u);
            b.u[i * b.columns + d] = u;
        }
    __syncthreads();
}

/* to = the state after the chunk; it may be that before. */
DEVICE void scan_next_state(const scan_block &b, const float *state, float *to, int ld, bool known)
{
    for (int x = threadIdx.x / WARP; x < b.key_dim; x += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < b.columns; d += WARP) {
            float sum = known ? b.since[b.n - 1] * state[x * ld + d] : 0.0f;
            for (int i = 0; i < b.n; i++)
                sum = fmaf(scan_until_end(b, i) * b.k[i * b.keys + x], b.u[i * b.columns + d], sum);
            to[x * ld + d] = sum;
        }
    __syncthreads();
}

#endif
