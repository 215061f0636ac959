/* attention.cu - chooses the attention kernels; computes dout . out for backward. */
#include "device/cuda/attention.h"

static bool tiled(const op_attention *o)
{
    return o->type == PT_BF16 && o->dim % 8 == 0 && o->dim <= ATTENTION_TILED_DIM && o->q_len >= ATTENTION_TILED_ROWS &&
           is_wide(PT_BF16, o->q, o->ldq) && is_wide(PT_BF16, o->k, o->ldkv) && is_wide(PT_BF16, o->v, o->ldkv) &&
           is_wide(PT_BF16, o->out, o->ldo) && o->kv_seq_stride % 8 == 0;
}

/* Warpgroup kernels exist if the compiler supports them, and run only on GPUs of compute capability 9.0. */
static bool has_warpgroups(void)
{
#if defined(PT_CUDA_SHIM)
    return shim_has_warpgroups();
#elif defined(PT_CUDA_HOPPER)
    int device = 0, major = 0, minor = 0;
    return !cudaGetDevice(&device) && !cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) &&
           !cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) && major == 9 && minor == 0;
#else
    return false;
#endif
}

/* Whether Hopper's kernels can compute what the tiled ones can. */
static bool hopper(const op_attention *o)
{
    return o->dim <= ATTENTION_HOPPER_DIM && o->q_len >= ATTENTION_HOPPER_ROWS && o->scale > 0 && has_warpgroups();
}

int cuda_attention(const op_attention *o, cudaStream_t s)
{
    return !tiled(o) ? attention_plain(o, s) : hopper(o) ? attention_hopper(o, s) : attention_tiled(o, s);
}

int cuda_attention_backward(const op_attention_backward *b, cudaStream_t s)
{
    const op_attention *o = &b->forward;
    bool wide = is_wide(PT_BF16, b->dout, b->lddo) && is_wide(PT_BF16, b->dq, o->ldq) && is_wide(PT_BF16, b->dk, o->ldkv) &&
                is_wide(PT_BF16, b->dv, o->ldkv);
    int error = attention_delta(b, s);
    if (error)
        return error;
    if (!wide || !tiled(o))
        return attention_plain_backward(b, s);
    return hopper(o) ? attention_hopper_backward(b, s) : attention_tiled_backward(b, s);
}

/* ---- delta ---- */

enum { DELTA_WARPS = 8 };

template <pt_dtype T> __global__ void delta_kernel(op_attention_backward b)
{
    const op_attention &o = b.forward;
    int64_t at = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / WARP, row = at / o.heads, head = at % o.heads;
    if (row >= o.seqs * o.q_len)
        return;
    float sum = 0;
    for (int64_t d = threadIdx.x % WARP; d < o.dim; d += WARP)
        sum = fmaf(element_load<T>(b.dout, row * b.lddo + head * o.dim + d), element_load<T>(o.out, row * o.ldo + head * o.dim + d), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        ((float *)b.scratch)[at] = sum;
}

int attention_delta(const op_attention_backward *b, cudaStream_t s)
{
    const op_attention *o = &b->forward;
    int64_t blocks = blocks_of(o->seqs * o->q_len * o->heads, DELTA_WARPS);
    return o->type == PT_BF16 ? launch(delta_kernel<PT_BF16>, blocks, DELTA_WARPS * WARP, s, *b)
                              : launch(delta_kernel<PT_F32>, blocks, DELTA_WARPS * WARP, s, *b);
}
