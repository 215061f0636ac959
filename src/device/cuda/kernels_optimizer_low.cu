/* kernels_optimizer_low.cu - random matrices, moments of few dimensions, and Adam by rows, with the same bits as on the CPU. */
#include "device/cuda/adamw.h"
#include "device/cuda/lanes.h"
#include "base/rng.h"

enum { THREADS = 256, LANES = SUMSQ_LANES, WORDS = 4 };

/* ---- random matrices ---- */

/* The four words of a counter value (base/rng.h). */
DEVICE void philox(uint64_t seed, uint32_t c[WORDS])
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c[3] = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

DEVICE float digits(uint32_t w)
{
    const uint32_t pairs = (w & 0x0f0f0f0fu) + (w >> 4 & 0x0f0f0f0fu);
    return (float)((int32_t)(pairs * 0x01010101u >> 24) - 60);
}

template <pt_dtype T> __global__ void random_kernel(op_random_matrix o)
{
    const int64_t block = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const uint64_t index = ((uint64_t)o.refresh << 32) + (uint64_t)block;
    uint32_t c[WORDS] = {(uint32_t)index, (uint32_t)(index >> 32), o.stream, RNG_PROJECT};
    philox(o.seed, c);
    for (int k = 0; k < WORDS; k++)
        if (block * WORDS + k < o.n)
            element_store<T>(o.out, block * WORDS + k, digits(c[k]));
}

int cuda_random_matrix(const op_random_matrix *o, cudaStream_t s)
{
    return launch(o->type == PT_BF16 ? random_kernel<PT_BF16> : random_kernel<PT_F32>, blocks_of(o->n, THREADS * WORDS), THREADS, s, *o);
}

/* ---- moments ---- */

/* Entry `at`; adds its squares. */
DEVICE void moments_at(const op_low_moments &o, int64_t at, double *moved, double *given)
{
    const float x = __fmul_rn(o.r[at], o.scale);
    const float m = moment_tidy(__fmaf_rn(__fsub_rn(1.0f, o.beta1), __fsub_rn(x, o.m[at]), o.m[at]), MOMENT_LEAST);
    const float v = moment_tidy(__fmaf_rn(__fsub_rn(1.0f, o.beta2), __fmul_rn(x, x), __fmul_rn(o.beta2, o.v[at])),
                                o.eps >= 1e-9f ? (uint32_t)MOMENT_LEAST : 0u);
    const double y = (double)__fdiv_rn(m, __fadd_rn(__fsqrt_rn(v), o.eps));
    o.m[at] = m;
    o.v[at] = v;
    if (o.n)
        o.n[at] = (float)y;
    *moved = __fma_rn(y, y, *moved);
    *given = __fma_rn((double)x, (double)x, *given);
}

__global__ void columns_kernel(op_low_moments o)
{
    const int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double moved = 0.0, given = 0.0;
    if (j >= o.channels)
        return;
    for (int64_t row = 0; row < o.rank; row++)
        moments_at(o, row * o.channels + j, &moved, &given);
    if (o.moved) {
        o.moved[j] = moved;
        o.given[j] = given;
    }
}

__global__ void rows_kernel(op_low_moments o)
{
    const int64_t row = blockIdx.x;
    double moved = 0.0, given = 0.0;
    for (int64_t j = threadIdx.x; j < o.rank; j += LANES)
        moments_at(o, row * o.rank + j, &moved, &given);
    moved = lanes_total(moved);
    given = lanes_total(given);
    if (threadIdx.x == 0 && o.moved) {
        o.moved[row] = moved;
        o.given[row] = given;
    }
}

int cuda_low_moments(const op_low_moments *o, cudaStream_t s)
{
    return o->by_rows ? launch(rows_kernel, o->channels, LANES, s, *o)
                      : launch(columns_kernel, blocks_of(o->channels, THREADS), THREADS, s, *o);
}

DEVICE float ratio(double moved, double given) { return __fdiv_rn((float)sqrt(moved), __fadd_rn((float)sqrt(given), 1e-8f)); }

__global__ void channels_kernel(op_channel_scale o)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < o.channels)
        o.out[i] = ratio(o.moved[i], o.given[i]);
}

__global__ void together_kernel(op_channel_scale o)
{
    double moved = 0.0, given = 0.0;
    for (int64_t i = threadIdx.x; i < o.channels; i += LANES) {
        moved = __dadd_rn(moved, o.moved[i]);
        given = __dadd_rn(given, o.given[i]);
    }
    moved = lanes_total(moved);
    given = lanes_total(given);
    for (int64_t i = threadIdx.x; i < o.channels; i += LANES)
        o.out[i] = ratio(moved, given);
}

int cuda_channel_scale(const op_channel_scale *o, cudaStream_t s)
{
    return o->together ? launch(together_kernel, 1, LANES, s, *o)
                       : launch(channels_kernel, blocks_of(o->channels, THREADS), THREADS, s, *o);
}

/* ---- orthonormal rows ---- */

DEVICE double product(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t j = threadIdx.x; j < n; j += LANES)
        sum = __fma_rn((double)a[j], (double)b[j], sum); /* products of fp32 are exact */
    return lanes_total(sum);
}

/* One block. A thread has the same columns of every row, so it waits for the others only in sums. */
__global__ void orthonormal_kernel(op_orthonormal o)
{
    double all = 0.0;
    for (int64_t row = 0; row < o.rows; row++)
        all = __dadd_rn(all, product(o.y + row * o.cols, o.y + row * o.cols, o.cols));
    const float norm = (float)sqrt(all);
    for (int64_t row = 0; row < o.rows; row++) {
        float *x = o.out + row * o.cols;
        for (int64_t j = threadIdx.x; j < o.cols; j += LANES)
            x[j] = __fmaf_rn(ORTHONORMAL_NOISE, o.noise[row * o.cols + j], norm > 0 ? __fdiv_rn(o.y[row * o.cols + j], norm) : 0.0f);
        for (int64_t k = 0; k < 2 * row; k++) {
            const float *b = o.out + k % row * o.cols;
            const float by = (float)product(x, b, o.cols);
            for (int64_t j = threadIdx.x; j < o.cols; j += LANES)
                x[j] = __fmaf_rn(-by, b[j], x[j]);
        }
        const float length = (float)sqrt(product(x, x, o.cols));
        for (int64_t j = threadIdx.x; j < o.cols; j += LANES)
            x[j] = __fdiv_rn(x[j], length);
    }
}

int cuda_orthonormal(const op_orthonormal *o, cudaStream_t s) { return launch(orthonormal_kernel, 1, LANES, s, *o); }

/* ---- Adam by rows ---- */

template <pt_dtype T> __global__ void adam_kernel(op_row_adam o, bool wide)
{
    const int64_t packs = (o.cols + PACK - 1) / PACK, pack_at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t row = pack_at / packs, i = pack_at % packs * PACK, first = row * o.cols;
    if (row >= o.rows)
        return;
    void *hi = element_at<T>(o.hi, first);
    uint16_t *lo = T == PT_BF16 ? o.lo + first : NULL;
    const float by = __fadd_rn(__fdiv_rn(__fsqrt_rn(o.v[row]), o.sqrt_correction2), o.eps);
    pack w = master_load<T>(hi, lo, i, o.cols, wide);
    for (int j = 0; j < PACK && i + j < o.cols; j++) {
        float *m = o.m + first + i + j;
        const float g = __fmul_rn(element_load<T>(o.g, first + i + j), o.grad_scale);
        *m = moment_tidy(__fmaf_rn(__fsub_rn(1.0f, o.beta1), __fsub_rn(g, *m), *m), MOMENT_LEAST);
        w.x[j] = __fmaf_rn(-o.step_size, __fdiv_rn(*m, by), __fmul_rn(w.x[j], o.decay));
    }
    master_store<T>(hi, lo, i, o.cols, wide, w);
}

int cuda_row_adam(const op_row_adam *o, cudaStream_t s)
{
    const bool wide = is_wide(o->type, o->hi, o->cols) && is_wide(o->type, o->lo, o->cols);
    const int64_t blocks = blocks_of(o->rows * blocks_of(o->cols, PACK), THREADS);
    return launch(o->type == PT_BF16 ? adam_kernel<PT_BF16> : adam_kernel<PT_F32>, blocks, THREADS, s, *o, wide);
}
