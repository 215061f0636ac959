/* kernels_heads.cu - columns of heads from one layout to another. A block has a row, a thread the packs of some heads, or of their sum. */
#include "device/cuda/primitives.h"

enum { HEADS_THREADS = 256 };

/* The columns i .. i + 7 of a head, or zeros beyond those that are given. */
template <pt_dtype T> DEVICE pack head_pack(const op_heads &o, const void *row, int64_t head, int64_t i, bool wide)
{
    pack x = {{0}};
    return i < o.given ? pack_load<T>(element_at<T>(row, head * o.head_from), i, o.given, wide) : x;
}

template <pt_dtype T> __global__ void __launch_bounds__(HEADS_THREADS) heads_kernel(op_heads o, bool wide)
{
    const void *from = element_at<T>(o.from, (int64_t)blockIdx.x * o.ld_from);
    void *to = element_at<T>(o.to, (int64_t)blockIdx.x * o.ld_to);
    const unsigned packs = (unsigned)((o.cols + PACK - 1) / PACK), items = packs * (o.head_to ? (unsigned)o.heads : 1);
    for (unsigned k = threadIdx.x; k < items; k += HEADS_THREADS) {
        const int64_t head = k / packs, i = (int64_t)(k % packs) * PACK;
        pack x = head_pack<T>(o, from, head, i, wide);
        for (int64_t other = 1; !o.head_to && other < o.heads; other++) {
            const pack more = head_pack<T>(o, from, other, i, wide);
            for (int j = 0; j < PACK; j++)
                x.x[j] += more.x[j];
        }
        pack_store<T>(element_at<T>(to, head * o.head_to), i, o.cols, wide, x);
    }
}

template <pt_dtype T> static int heads_launch(const op_heads *o, cudaStream_t s)
{
    const bool wide = is_wide(T, o->from, o->ld_from) && is_wide(T, o->from, o->head_from) && is_wide(T, o->to, o->ld_to) &&
                      is_wide(T, o->to, o->head_to) && o->given % PACK == 0 && o->cols % PACK == 0;
    return launch(heads_kernel<T>, o->rows, HEADS_THREADS, s, *o, wide);
}

int cuda_heads(const op_heads *o, cudaStream_t s) { return o->type == PT_BF16 ? heads_launch<PT_BF16>(o, s) : heads_launch<PT_F32>(o, s); }
