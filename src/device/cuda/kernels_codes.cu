/* kernels_codes.cu - activations in codes of 8 bits and back. A thread has one pack of a row; eight neighbouring threads have a group, and
 * find its largest magnitude together. */
#include "device/cuda/primitives.h"

enum { CODES_THREADS = 256, CODES_TILE = CODES_THREADS * PACK, GROUP_THREADS = CODE_GROUP / PACK };

DEVICE int64_t groups_of(int64_t cols) { return (cols + CODE_GROUP - 1) / CODE_GROUP; }

template <code_kind K> DEVICE int code_of(float t)
{
    if (K == CODES_INT8)
        return (int)__float_as_uint(__fadd_rn(t, 12582912.0f)) & 0xff;
    const uint32_t bits = __float_as_uint(t), a = bits & 0x7fffffffu;
    const uint32_t normal = ((a + 0x7ffffu + ((a >> 20) & 1)) >> 20) - (120u << 3);
    const uint32_t small = __float_as_uint(__fadd_rn(__uint_as_float(a), 24576.0f)) & 0xfu;
    return (int)((__uint_as_float(a) < 0.015625f ? small : normal) | (bits >> 24 & 0x80u));
}

template <code_kind K> DEVICE float value_of(int code)
{
    if (K == CODES_INT8)
        return (float)(int8_t)code;
    const uint32_t bits = (uint32_t)code & 0x7fu;
    const float a = bits < 8 ? __fmul_rn((float)bits, 0.001953125f) : __uint_as_float((bits << 20) + (120u << 23));
    return code & 0x80 ? -a : a;
}

template <code_kind K> DEVICE float step_of(float largest) { return __fmul_rn(largest, K == CODES_FP8 ? CODE_FP8_STEP : CODE_INT8_STEP); }

/* As integers, magnitudes are in the same order, and NaN is the largest. */
DEVICE float group_largest(const pack &x)
{
    uint32_t most = 0;
    for (int j = 0; j < PACK; j++) {
        const uint32_t a = __float_as_uint(x.x[j]) & 0x7fffffffu;
        most = a > most ? a : most;
    }
    for (int lanes = 1; lanes < GROUP_THREADS; lanes *= 2) {
        const uint32_t other = __float_as_uint(__shfl_xor_sync(FULL_WARP, __uint_as_float(most), lanes));
        most = other > most ? other : most;
    }
    return __uint_as_float(most);
}

template <pt_dtype T, code_kind K> __global__ void __launch_bounds__(CODES_THREADS) encode_kernel(op_encode o, unsigned tiles, bool wide)
{
    const int64_t row = blockIdx.x / tiles, column = (int64_t)(blockIdx.x % tiles) * CODES_TILE + threadIdx.x * PACK;
    const pack x = pack_load<T>(element_at<T>(o.x, row * o.cols), column, o.cols, wide);
    const float largest = group_largest(x), step = step_of<K>(largest);
    const bool codable = largest >= CODE_LEAST && largest < __uint_as_float(0x7f800000u);
    const float inverse = codable ? __fdiv_rn(K == CODES_FP8 ? 448.0f : 127.0f, largest) : 0.0f;
    if (column >= o.cols)
        return;
    pack y;
    for (int j = 0; j < PACK; j++) {
        const int code = codable ? code_of<K>(__fmul_rn(x.x[j], inverse)) : 0;
        y.x[j] = __fmul_rn(value_of<K>(code), step);
        if (o.codes && column + j < o.cols)
            o.codes[row * o.cols + column + j] = (uint8_t)code;
    }
    if (o.codes && column % CODE_GROUP == 0)
        element_store<T>(o.largest, row * groups_of(o.cols) + column / CODE_GROUP, largest);
    if (o.out)
        pack_store<T>(element_at<T>(o.out, row * o.cols), column, o.cols, wide, y);
}

template <pt_dtype T, code_kind K> __global__ void __launch_bounds__(CODES_THREADS) decode_kernel(op_decode o, unsigned tiles, bool wide)
{
    const int64_t row = blockIdx.x / tiles, column = (int64_t)(blockIdx.x % tiles) * CODES_TILE + threadIdx.x * PACK;
    if (column >= o.cols)
        return;
    const float step = step_of<K>(element_load<T>(o.largest, row * groups_of(o.cols) + column / CODE_GROUP));
    pack y;
    for (int j = 0; j < PACK; j++)
        if (column + j < o.cols)
            y.x[j] = __fmul_rn(value_of<K>(o.codes[row * o.cols + column + j]), step);
    pack_store<T>(element_at<T>(o.out, row * o.cols), column, o.cols, wide, y);
}

template <pt_dtype T> static int encode_launch(const op_encode *o, cudaStream_t s)
{
    const int64_t tiles = blocks_of(o->cols, CODES_TILE);
    const bool wide = is_wide(T, o->x, o->cols) && is_wide(T, o->out, o->cols);
    return launch(o->kind == CODES_FP8 ? encode_kernel<T, CODES_FP8> : encode_kernel<T, CODES_INT8>, o->rows * tiles, CODES_THREADS, s, *o,
                  (unsigned)tiles, wide);
}

template <pt_dtype T> static int decode_launch(const op_decode *o, cudaStream_t s)
{
    const int64_t tiles = blocks_of(o->cols, CODES_TILE);
    return launch(o->kind == CODES_FP8 ? decode_kernel<T, CODES_FP8> : decode_kernel<T, CODES_INT8>, o->rows * tiles, CODES_THREADS, s, *o,
                  (unsigned)tiles, is_wide(T, o->out, o->cols));
}

int cuda_encode(const op_encode *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? encode_launch<PT_BF16>(o, s) : encode_launch<PT_F32>(o, s);
}

int cuda_decode(const op_decode *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? decode_launch<PT_BF16>(o, s) : decode_launch<PT_F32>(o, s);
}
