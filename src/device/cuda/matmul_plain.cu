/* matmul_plain.cu - matmuls that the library refuses: tiles of 16 x 16 results, a thread per result, K in order. And the epilogues that the
 * library lacks (matmul.c). */
#include "device/cuda/primitives.h"

enum { SIDE = 16, SIDE_THREADS = SIDE * SIDE, FINISH_THREADS = 256 };

/* One element of c, from alpha * scale * its sum. */
template <pt_dtype T, pt_dtype OUT> DEVICE void finish(const op_matmul &o, int64_t row, int64_t col, float sum)
{
    int64_t at = row * o.ldc + col;
    if (o.scale)
        sum *= o.scale[col];
    if (o.bias)
        sum += element_load<T>(o.bias, col);
    if (o.stream) {
        o.stream[at] += sum;
        sum = o.residual ? sum : o.stream[at];
    }
    if (o.residual)
        sum += element_load<T>(o.residual, at);
    element_store<OUT>(o.c, at, o.accumulate ? element_load<OUT>(o.c, at) + sum : sum);
}

/* Strides of a (M, K) and b (K, N) in elements, so that one kernel serves the three layouts. */
typedef struct strides { int64_t a_row, a_col, b_row, b_col; } strides;

/* The operands of a part of the sum. */
typedef struct sum_part { const void *a, *b; int64_t k; strides s; } sum_part;

template <pt_dtype T, pt_dtype OUT> __global__ void plain_kernel(op_matmul o, sum_part first, sum_part second, int64_t across, float alpha)
{
    __shared__ float a[SIDE][SIDE + 1], b[SIDE][SIDE + 1];
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    int64_t row = blockIdx.x / across * SIDE + y, col = blockIdx.x % across * SIDE + x;
    float sum = 0; /* parts are summed separately, rounded, then added, as by two matmuls of the library */
    for (int which = 0; which < (second.k ? 2 : 1); which++) {
        const sum_part p = which ? second : first;
        float part = 0;
        for (int64_t k = 0; k < p.k; k += SIDE) {
            a[y][x] = row < o.m && k + x < p.k ? element_load<T>(p.a, row * p.s.a_row + (k + x) * p.s.a_col) : 0.0f;
            b[y][x] = k + y < p.k && col < o.n ? element_load<T>(p.b, (k + y) * p.s.b_row + col * p.s.b_col) : 0.0f;
            __syncthreads();
            for (int i = 0; i < SIDE; i++)
                part = fmaf(a[y][i], b[i][x], part);
            __syncthreads();
        }
        sum = which ? sum + alpha * part : alpha * part;
    }
    if (row < o.m && col < o.n)
        finish<T, OUT>(o, row, col, sum);
}

static strides strides_of(const op_matmul *o, int64_t lda, int64_t ldb)
{
    return {o->layout == MATMUL_TN ? 1 : lda, o->layout == MATMUL_TN ? lda : 1, o->layout == MATMUL_NT ? 1 : ldb,
            o->layout == MATMUL_NT ? ldb : 1};
}

template <pt_dtype T, pt_dtype OUT> static int plain_launch(const op_matmul *o, cudaStream_t s)
{
    const sum_part first = {o->a, o->b, o->k, strides_of(o, o->lda, o->ldb)};
    const sum_part second = {o->more_a, o->more_b, o->more_k, strides_of(o, o->more_lda, o->more_ldb)};
    int64_t across = blocks_of(o->n, SIDE);
    return launch(plain_kernel<T, OUT>, blocks_of(o->m, SIDE) * across, SIDE_THREADS, s, *o, first, second, across,
                  op_factor(o->alpha));
}

int cuda_matmul_plain(const op_matmul *o, cudaStream_t s)
{
    if (o->type == PT_F32)
        return plain_launch<PT_F32, PT_F32>(o, s);
    return o->out_type == PT_F32 ? plain_launch<PT_BF16, PT_F32>(o, s) : plain_launch<PT_BF16, PT_BF16>(o, s);
}

DEVICE void pack_add(pack *to, const pack &x)
{
    for (int j = 0; j < PACK; j++)
        to->x[j] += x.x[j];
}

/* finish() for packs: a thread has one; `across` packs are a row. */
template <pt_dtype T, pt_dtype OUT> __global__ void finish_kernel(op_matmul o, const float *sums, int64_t across, bool wide)
{
    int64_t i = (int64_t)blockIdx.x * FINISH_THREADS + threadIdx.x, row = i / across, col = i % across * PACK, at = row * o.ldc;
    if (row >= o.m)
        return;
    pack sum = pack_load<PT_F32>(sums + row * o.n, col, o.n, wide);
    if (o.scale) {
        const pack scale = pack_load<PT_F32>(o.scale, col, o.n, wide);
        for (int j = 0; j < PACK; j++)
            sum.x[j] *= scale.x[j];
    }
    if (o.bias)
        pack_add(&sum, pack_load<T>(o.bias, col, o.n, wide));
    if (o.stream) {
        pack stream = pack_load<PT_F32>(o.stream + at, col, o.n, wide);
        pack_add(&stream, sum);
        pack_store<PT_F32>(o.stream + at, col, o.n, wide, stream);
        sum = o.residual ? sum : stream;
    }
    if (o.residual)
        pack_add(&sum, pack_load<T>(element_at<T>(o.residual, at), col, o.n, wide));
    if (o.accumulate)
        pack_add(&sum, pack_load<OUT>(element_at<OUT>((const void *)o.c, at), col, o.n, wide));
    pack_store<OUT>(element_at<OUT>(o.c, at), col, o.n, wide, sum);
}

template <pt_dtype T, pt_dtype OUT> static int finish_launch(const op_matmul *o, const float *sums, cudaStream_t s)
{
    int64_t across = blocks_of(o->n, PACK);
    bool wide = is_wide(PT_F32, sums, o->n) && is_wide(PT_F32, o->scale, 0) && is_wide(T, o->bias, 0) &&
        is_wide(PT_F32, o->stream, o->ldc) &&
                is_wide(T, o->residual, o->ldc) && is_wide(OUT, o->c, o->ldc);
    return launch(finish_kernel<T, OUT>, blocks_of(o->m * across, FINISH_THREADS), FINISH_THREADS, s, *o, sums, across, wide);
}

int cuda_matmul_finish(const op_matmul *o, const float *sum, cudaStream_t s)
{
    if (o->type == PT_F32)
        return finish_launch<PT_F32, PT_F32>(o, sum, s);
    return o->out_type == PT_F32 ? finish_launch<PT_BF16, PT_F32>(o, sum, s) : finish_launch<PT_BF16, PT_BF16>(o, sum, s);
}
