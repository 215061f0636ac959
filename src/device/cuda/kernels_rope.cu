/* kernels_rope.cu - rotary embedding in place: a block per row, a thread per 8 pairs of a head. */
#include "device/cuda/primitives.h"

enum { ROPE_THREADS = 128 };

/* Rotates pairs i .. i + 7 of a head. */
template <pt_dtype T> DEVICE void rope_pack(void *x, const float *table, int64_t i, int64_t half, bool inverse, bool wide)
{
    void *second = element_at<T>(x, half);
    pack a = pack_load<T>(x, i, half, wide), b = pack_load<T>(second, i, half, wide), y, z;
    pack low = pack_load<PT_F32>(table, 2 * i, 2 * half, wide), high = pack_load<PT_F32>(table, 2 * i + PACK, 2 * half, wide);
    for (int j = 0; j < PACK; j++) {
        float cosine = j < PACK / 2 ? low.x[2 * j % PACK] : high.x[2 * j % PACK];
        float sine = j < PACK / 2 ? low.x[2 * j % PACK + 1] : high.x[2 * j % PACK + 1];
        sine = inverse ? -sine : sine;
        y.x[j] = a.x[j] * cosine - b.x[j] * sine;
        z.x[j] = b.x[j] * cosine + a.x[j] * sine;
    }
    pack_store<T>(x, i, half, wide, y);
    pack_store<T>(second, i, half, wide, z);
}

template <pt_dtype T> __global__ void rope_kernel(op_rope o, int64_t half, bool wide)
{
    int64_t row = blockIdx.x;
    const float *table = o.table + (int64_t)o.positions[row] * 2 * half;
    unsigned packs = (unsigned)((half + PACK - 1) / PACK), items = packs * (unsigned)o.heads;
    for (unsigned k = threadIdx.x; k < items; k += blockDim.x)
        rope_pack<T>(element_at<T>(o.x, row * o.ld + k / packs * o.dim), table, k % packs * PACK, half, o.inverse, wide);
}

template <pt_dtype T> static int rope_launch(const op_rope *o, cudaStream_t s)
{
    int64_t half = rope_rotated(o) / 2;
    bool wide = is_wide(T, o->x, o->ld) && is_wide(T, o->x, o->dim) && half % PACK == 0 && is_wide(PT_F32, o->table, 0);
    return launch(rope_kernel<T>, o->rows, ROPE_THREADS, s, *o, half, wide);
}

int cuda_rope(const op_rope *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? rope_launch<PT_BF16>(o, s) : rope_launch<PT_F32>(o, s);
}
