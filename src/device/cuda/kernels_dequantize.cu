/* kernels_dequantize.cu - decodes quantized weights, PACK neighbours of a row per thread. If rows begin with a block, a pack is in one
 * block. */
#include "device/cuda/primitives.h"
#include "device/fewbit.h"
#include "device/moment_map.h"

enum { DEQUANTIZE_THREADS = 256, DEQUANTIZE_TILE = DEQUANTIZE_THREADS * PACK };
static_assert(NF4_BLOCK % PACK == 0 && MXFP4_BLOCK % PACK == 0, "a thread's values lie in one block");

typedef struct fewbit_values { float level[NF4_LEVELS], map[MOMENT_CODES]; } fewbit_values;

template <bool MX> DEVICE float magnitude_of(const op_dequantize &o, const fewbit_values &v, int64_t i)
{
    if (MX)
        return __uint_as_float(MXFP4_SCALE_BITS(o.absmax[i / MXFP4_BLOCK]));
    const int64_t block = i / NF4_BLOCK;
    return __fadd_rn(__fmul_rn(v.map[o.absmax[block]], o.nested[block / NF4_NESTED_BLOCK]), *o.offset);
}

template <bool MX> DEVICE int code_of(const op_dequantize &o, int64_t i)
{
    return (i % 2 != 0) != MX ? o.codes[i / 2] & 15 : o.codes[i / 2] >> 4;
}

template <pt_dtype T, bool MX> __global__ void halves_kernel(op_dequantize o, fewbit_values v, unsigned tiles, bool whole)
{
    __shared__ float level[NF4_LEVELS];
    if (threadIdx.x < NF4_LEVELS)
        level[threadIdx.x] = v.level[threadIdx.x];
    __syncthreads();
    const int64_t row = blockIdx.x / tiles, column = (int64_t)(blockIdx.x % tiles) * DEQUANTIZE_TILE + threadIdx.x * PACK;
    const int64_t first = o.first + row * o.stride + column;
    if (column >= o.cols)
        return;
    pack x;
    const float shared = magnitude_of<MX>(o, v, first);
    for (int j = 0; j < PACK; j++)
        if (column + j < o.cols)
            x.x[j] = __fmul_rn(level[code_of<MX>(o, first + j)], whole ? shared : magnitude_of<MX>(o, v, first + j));
    pack_store<T>(element_at<T>(o.out, row * o.ld), column, o.cols, whole, x);
}

template <pt_dtype T> __global__ void int8_kernel(op_dequantize o, unsigned tiles, bool wide)
{
    const int64_t row = blockIdx.x / tiles, column = (int64_t)(blockIdx.x % tiles) * DEQUANTIZE_TILE + threadIdx.x * PACK;
    const int64_t first = o.first + row * o.stride + column;
    if (column >= o.cols)
        return;
    pack x;
    const float scale = o.scales[first / o.stride];
    for (int j = 0; j < PACK; j++)
        if (column + j < o.cols)
            x.x[j] = __fmul_rn(__fmul_rn((float)(int8_t)o.codes[first + j], scale), INT8_STEP);
    pack_store<T>(element_at<T>(o.out, row * o.ld), column, o.cols, wide, x);
}

template <pt_dtype T> static int dequantize_launch(const op_dequantize *o, cudaStream_t s)
{
    const int64_t tiles = blocks_of(o->cols, DEQUANTIZE_TILE);
    const bool wide = is_wide(T, o->out, o->ld);
    if (o->kind == FEWBIT_INT8)
        return launch(int8_kernel<T>, o->rows * tiles, DEQUANTIZE_THREADS, s, *o, (unsigned)tiles, wide);
    fewbit_values v;
    for (int i = 0; i < NF4_LEVELS; i++)
        v.level[i] = o->kind == FEWBIT_MXFP4 ? mxfp4_levels[i] : nf4_levels[i];
    for (int i = 0; i < MOMENT_CODES; i++)
        v.map[i] = moment_map_get(true)->value[i];
    const bool whole = wide && o->first % PACK == 0 && o->stride % PACK == 0;
    return launch(o->kind == FEWBIT_MXFP4 ? halves_kernel<T, true> : halves_kernel<T, false>, o->rows * tiles, DEQUANTIZE_THREADS, s, *o, v,
                  (unsigned)tiles, whole);
}

int cuda_dequantize(const op_dequantize *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? dequantize_launch<PT_BF16>(o, s) : dequantize_launch<PT_F32>(o, s);
}
