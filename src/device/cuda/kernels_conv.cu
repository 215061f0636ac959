/* kernels_conv.cu - causal depthwise convolution: a thread per row and channel, neighbouring threads for neighbouring channels. The rows
 * that a thread needs beside its own are in the caches. */
#include "device/cuda/activation.h"

enum { CONV_THREADS = 256 };

/* A row of the op, its place in its sequence, and a channel. */
typedef struct conv_place { int64_t row, s, seq, c; } conv_place;

DEVICE conv_place conv_place_of(const op_conv &o, int64_t row, int64_t c)
{
    conv_place p = {row, row % o.len, row / o.len, c};
    return p;
}

/* p of the row `s` of the place's sequence, which may be before it. */
template <pt_dtype T> DEVICE float product(const op_conv &o, conv_place at, int64_t s)
{
    if (s < 0)
        return o.past ? o.past[(at.seq * (o.taps - 1) + o.taps - 1 + s) * o.channels + at.c] : 0.0f;
    const int64_t i = (at.seq * o.len + s) * o.ldx + at.c;
    const float x = element_load<T>(o.x, i);
    return o.before ? element_load<T>(o.before, i) * x : x;
}

DEVICE int64_t document_of(const op_conv &o, int64_t row) { return o.first ? o.first[row] : 0; }

DEVICE int64_t first_tap(const op_conv &o, conv_place at)
{
    const int64_t begin = document_of(o, at.row), there = at.s - begin + 1;
    return there >= o.taps || (begin == 0 && o.past) ? 0 : o.taps - there;
}

template <pt_dtype T> DEVICE float sum_at(const op_conv &o, conv_place at)
{
    float sum = o.bias ? o.bias[at.c] : 0.0f;
    for (int64_t j = first_tap(o, at); j < o.taps; j++)
        sum = fmaf(o.weight[at.c * o.taps + j], product<T>(o, at, at.s - o.taps + 1 + j), sum);
    return sum;
}

template <pt_dtype T> DEVICE float act(bool silu, float sum, float *derivative)
{
    *derivative = 1.0f;
    return silu ? activation<ACT_SILU, T>(sum, derivative) : sum;
}

template <pt_dtype T> __global__ void __launch_bounds__(CONV_THREADS) conv_kernel(op_conv o, int across)
{
    const conv_place at = conv_place_of(o, blockIdx.x / across, (int64_t)(blockIdx.x % across) * CONV_THREADS + threadIdx.x);
    if (at.c >= o.channels)
        return;
    float derivative, y = act<T>(o.silu, sum_at<T>(o, at), &derivative);
    if (o.after)
        y = element_load<T>(o.after, at.row * o.ldx + at.c) * y;
    element_store<T>(o.y, at.row * o.ldy + at.c, y);
}

/* A thread takes its channel's rows one after another: a row of last replaces no row of past that a later one needs. */
template <pt_dtype T> __global__ void __launch_bounds__(CONV_THREADS) conv_last_kernel(op_conv o, int across)
{
    const conv_place at = {0, 0, blockIdx.x / across, (int64_t)(blockIdx.x % across) * CONV_THREADS + threadIdx.x};
    for (int64_t j = 0; at.c < o.channels && j < o.taps - 1; j++)
        o.last[(at.seq * (o.taps - 1) + j) * o.channels + at.c] = product<T>(o, at, o.len - o.taps + 1 + j);
}

template <pt_dtype T> static int conv_launch(const op_conv *o, cudaStream_t s)
{
    const int64_t across = blocks_of(o->channels, CONV_THREADS);
    const int failed = launch(conv_kernel<T>, o->seqs * o->len * across, CONV_THREADS, s, *o, (int)across);
    return failed || !o->last ? failed : launch(conv_last_kernel<T>, o->seqs * across, CONV_THREADS, s, *o, (int)across);
}

int cuda_conv(const op_conv *o, cudaStream_t s) { return o->type == PT_BF16 ? conv_launch<PT_BF16>(o, s) : conv_launch<PT_F32>(o, s); }

/* ---- backward ---- */

/* The gradient of a row's sum; dy * act(sum) in *by_after. */
template <pt_dtype T> DEVICE float sum_gradient(const op_conv_backward &b, conv_place at, float *by_after)
{
    const op_conv &o = b.forward;
    float derivative, dy = element_load<T>(b.dy, at.row * b.lddy + at.c);
    *by_after = dy * act<T>(o.silu, sum_at<T>(o, at), &derivative);
    return (o.after ? dy * element_load<T>(o.after, at.row * o.ldx + at.c) : dy) * derivative;
}

template <pt_dtype T> __global__ void __launch_bounds__(CONV_THREADS) conv_backward_kernel(op_conv_backward b, int across)
{
    const op_conv &o = b.forward;
    const conv_place at = conv_place_of(o, blockIdx.x / across, (int64_t)(blockIdx.x % across) * CONV_THREADS + threadIdx.x);
    if (at.c >= o.channels)
        return;
    const int64_t i = at.row * o.ldx + at.c, to = at.row * b.lddx + at.c;
    float sum = 0.0f, by_after, unused;
    for (int64_t k = 0; k < o.taps && at.s + k < o.len && document_of(o, at.row + k) <= at.s; k++) {
        const float d = sum_gradient<T>(b, conv_place_of(o, at.row + k, at.c), k ? &unused : &by_after);
        sum = fmaf(o.weight[at.c * o.taps + o.taps - 1 - k], d, sum);
    }
    const float x = element_load<T>(o.x, i);
    element_store<T>(b.dx, to, o.before ? sum * element_load<T>(o.before, i) : sum);
    if (b.dbefore)
        element_store<T>(b.dbefore, to, sum * x);
    if (b.dafter)
        element_store<T>(b.dafter, to, by_after);
}

/* Sums of a block of rows, (taps + 1, channels). */
template <pt_dtype T> __global__ void __launch_bounds__(CONV_THREADS) conv_sums_kernel(op_conv_backward b, int across)
{
    const op_conv &o = b.forward;
    const int64_t block = blockIdx.x / across, c = (int64_t)(blockIdx.x % across) * CONV_THREADS + threadIdx.x;
    const int64_t rows = o.seqs * o.len, begin = block * CONV_BLOCK_ROWS;
    const int64_t end = begin + CONV_BLOCK_ROWS < rows ? begin + CONV_BLOCK_ROWS : rows;
    float sums[CONV_TAPS_MOST + 1] = {0}, unused;
    for (int64_t row = begin; c < o.channels && row < end; row++) {
        const conv_place at = conv_place_of(o, row, c);
        const float d = sum_gradient<T>(b, at, &unused);
        const int64_t tap = first_tap(o, at);
        for (int j = 0; j < CONV_TAPS_MOST; j++)
            if (j >= tap && j < o.taps)
                sums[j] = fmaf(d, product<T>(o, at, at.s - o.taps + 1 + j), sums[j]);
        sums[CONV_TAPS_MOST] += d;
    }
    for (int j = 0; c < o.channels && j <= CONV_TAPS_MOST; j++)
        if (j < o.taps || j == CONV_TAPS_MOST)
            ((float *)b.scratch)[(block * (o.taps + 1) + (j < o.taps ? j : o.taps)) * o.channels + c] = sums[j];
}

__global__ void __launch_bounds__(CONV_THREADS) conv_total_kernel(op_conv_backward b, int across, int blocks)
{
    const op_conv &o = b.forward;
    const int64_t j = blockIdx.x / across, c = (int64_t)(blockIdx.x % across) * CONV_THREADS + threadIdx.x;
    float *to = j < o.taps ? b.dweight : b.dbias, sum = 0.0f;
    if (c >= o.channels || !to)
        return;
    to += j < o.taps ? c * o.taps + j : c;
    for (int64_t block = 0; block < blocks; block++)
        sum += ((const float *)b.scratch)[(block * (o.taps + 1) + j) * o.channels + c];
    *to = b.accumulate ? *to + sum : sum;
}

template <pt_dtype T> static int conv_backward_launch(const op_conv_backward *b, cudaStream_t s)
{
    const op_conv *o = &b->forward;
    const int64_t rows = o->seqs * o->len, across = blocks_of(o->channels, CONV_THREADS), blocks = blocks_of(rows, CONV_BLOCK_ROWS);
    int failed = launch(conv_backward_kernel<T>, rows * across, CONV_THREADS, s, *b, (int)across);
    if (failed || (!b->dweight && !b->dbias))
        return failed;
    failed = launch(conv_sums_kernel<T>, blocks * across, CONV_THREADS, s, *b, (int)across);
    return failed ? failed : launch(conv_total_kernel, (o->taps + 1) * across, CONV_THREADS, s, *b, (int)across, (int)blocks);
}

int cuda_conv_backward(const op_conv_backward *b, cudaStream_t s)
{
    return b->forward.type == PT_BF16 ? conv_backward_launch<PT_BF16>(b, s) : conv_backward_launch<PT_F32>(b, s);
}
