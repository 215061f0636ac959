/* kernels_sink.cu - sinks of attention: forward a warp per query and head, backward a thread. */
#include "device/cuda/primitives.h"

enum { SINK_THREADS = 256, SINK_WARPS = SINK_THREADS / WARP, SINK_SUM_THREADS = 256 };

DEVICE float *lse_of(const op_sink &o, int64_t row, int64_t head)
{
    return o.lse + (row / o.q_len * o.heads + head) * o.q_len + row % o.q_len;
}

template <pt_dtype T> __global__ void __launch_bounds__(SINK_THREADS) sink_kernel(op_sink o)
{
    const int64_t at = (int64_t)blockIdx.x * SINK_WARPS + threadIdx.x / WARP, row = at / o.heads, head = at % o.heads;
    if (row >= o.seqs * o.q_len)
        return;
    const int lane = threadIdx.x % WARP;
    float *lse = lse_of(o, row, head);
    const float before = warp_sum(lane ? 0.0f : *lse); /* one lane reads and writes it */
    const float x = o.sinks[head] - before, factor = 1.0f / (1.0f + expf(x));
    for (int64_t i = lane; i < o.dim; i += WARP) {
        const int64_t place = row * o.ldo + head * o.dim + i;
        element_store<T>(o.out, place, element_load<T>(o.out, place) * factor);
    }
    if (lane == 0)
        *lse = before + fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

int cuda_sink(const op_sink *o, cudaStream_t s)
{
    const int64_t blocks = blocks_of(o->seqs * o->q_len * o->heads, SINK_WARPS);
    return o->type == PT_BF16 ? launch(sink_kernel<PT_BF16>, blocks, SINK_THREADS, s, *o)
                              : launch(sink_kernel<PT_F32>, blocks, SINK_THREADS, s, *o);
}

/* A block has SINK_BLOCK_ROWS tokens and one head. */
template <pt_dtype T> __global__ void __launch_bounds__(SINK_BLOCK_ROWS) sink_backward_kernel(op_sink_backward b)
{
    const op_sink &o = b.forward;
    const int64_t block = blockIdx.x / o.heads, head = blockIdx.x % o.heads, row = block * SINK_BLOCK_ROWS + threadIdx.x;
    float sum = 0.0f;
    if (row < o.seqs * o.q_len) {
        for (int64_t i = 0; i < o.dim; i++)
            sum = fmaf(element_load<T>(b.dout, row * b.lddo + head * o.dim + i),
                       element_load<T>(o.out, row * o.ldo + head * o.dim + i), sum);
        sum *= expf(o.sinks[head] - *lse_of(o, row, head));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        ((float *)b.scratch)[block * o.heads + head] = -sum;
}

__global__ void __launch_bounds__(SINK_SUM_THREADS) sink_sum_kernel(op_sink_backward b, int64_t blocks)
{
    const int64_t head = (int64_t)blockIdx.x * SINK_SUM_THREADS + threadIdx.x;
    float sum = 0.0f;
    for (int64_t block = 0; head < b.forward.heads && block < blocks; block++)
        sum += ((const float *)b.scratch)[block * b.forward.heads + head];
    if (head < b.forward.heads)
        b.dsinks[head] = b.accumulate ? b.dsinks[head] + sum : sum;
}

int cuda_sink_backward(const op_sink_backward *b, cudaStream_t s)
{
    const op_sink *o = &b->forward;
    const int64_t blocks = blocks_of(o->seqs * o->q_len, SINK_BLOCK_ROWS);
    int failed = o->type == PT_BF16 ? launch(sink_backward_kernel<PT_BF16>, blocks * o->heads, SINK_BLOCK_ROWS, s, *b)
                                    : launch(sink_backward_kernel<PT_F32>, blocks * o->heads, SINK_BLOCK_ROWS, s, *b);
    return failed ? failed : launch(sink_sum_kernel, blocks_of(o->heads, SINK_SUM_THREADS), SINK_SUM_THREADS, s, *b, blocks);
}
