/* kernels_rope.cu - rotary embedding in place: a block per row, a thread per 8 pairs of a head (of neighbours, 4). */
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

/* Rotates elements i .. i + 7 of a head, four pairs of neighbours. */
template <pt_dtype T> DEVICE void rope_neighbours(void *x, const float *table, int64_t i, int64_t rotated, bool inverse, bool wide)
{
    pack v = pack_load<T>(x, i, rotated, wide), angles = pack_load<PT_F32>(table, i, rotated, wide), y;
    for (int j = 0; j < PACK; j += 2) {
        float cosine = angles.x[j], sine = inverse ? -angles.x[j + 1] : angles.x[j + 1];
        y.x[j] = v.x[j] * cosine - v.x[j + 1] * sine;
        y.x[j + 1] = v.x[j + 1] * cosine + v.x[j] * sine;
    }
    pack_store<T>(x, i, rotated, wide, y);
}

template <pt_dtype T> __global__ void rope_kernel(op_rope o, int64_t half, bool wide)
{
    int64_t row = blockIdx.x;
    const float *table = o.table + (int64_t)o.positions[row] * 2 * half;
    unsigned packs = (unsigned)(((o.neighbours ? 2 * half : half) + PACK - 1) / PACK), items = packs * (unsigned)o.heads;
    for (unsigned k = threadIdx.x; k < items; k += blockDim.x) {
        void *x = element_at<T>(o.x, row * o.ld + k / packs * o.dim);
        if (o.neighbours)
            rope_neighbours<T>(x, table, k % packs * PACK, 2 * half, o.inverse, wide);
        else
            rope_pack<T>(x, table, k % packs * PACK, half, o.inverse, wide);
    }
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
