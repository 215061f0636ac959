/* matmul_epilogue.h - c from the sums over K: scale, alpha, bias, stream, residual, one rounding. */
#ifndef PT_MATMUL_EPILOGUE_H
#define PT_MATMUL_EPILOGUE_H

#include "device/cpu/kernels/matmul_pack.h"
#include "device/device.h"

/* The conversion instruction of processors with AMX takes denormals for 0, as AMX does. */
INLINE void round_row(bf16 *c, const float *sum, int64_t cols)
{
    int64_t j = 0;
#ifdef PT_TILES
    for (; j + 32 <= cols; j += 32)
        _mm512_storeu_si512(c + j, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(sum + j + 16), _mm512_loadu_ps(sum + j)));
    for (; j < cols; j += 16) {
        __mmask16 there = (__mmask16)(cols - j < 16 ? (1 << (cols - j)) - 1 : 0xffff);
        _mm256_mask_storeu_epi16(c + j, there, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, sum + j)));
    }
#else
    for (; j < cols; j++)
        c[j] = bf16_from_f32(sum[j]);
#endif
}

/* Types are constants where this is inlined. */
INLINE void epilogue_typed(const op_matmul *o, pt_dtype type, pt_dtype out_type, float *sum, int64_t at, int64_t n0,
                         int64_t cols)
{
    const float alpha = op_factor(o->alpha);
    if (o->scale)
        for (int64_t j = 0; j < cols; j++)
            sum[j] *= o->scale[n0 + j];
    if (alpha != 1)
        for (int64_t j = 0; j < cols; j++)
            sum[j] *= alpha;
    if (o->bias)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += type_load(o->bias, type, n0 + j);
    if (o->stream) {
        float *stream = o->stream + at;
        for (int64_t j = 0; j < cols; j++)
            stream[j] += sum[j];
        for (int64_t j = 0; j < cols && !o->residual; j++)
            sum[j] = stream[j];
    }
    if (o->residual)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += type_load(o->residual, type, at + j);
    if (out_type == PT_BF16) {
        bf16 *c = (bf16 *)o->c + at;
        round_row(c, sum, cols);
        return;
    }
    float *c = (float *)o->c + at;
    if (o->accumulate)
        for (int64_t j = 0; j < cols; j++)
            c[j] += sum[j];
    else
        for (int64_t j = 0; j < cols; j++)
            c[j] = sum[j];
}

/* c[m][n0 .. n0 + cols) from sum[0 .. cols), which is overwritten. */
INLINE void epilogue_row(const op_matmul *o, float *sum, int64_t m, int64_t n0, int64_t cols)
{
    int64_t at = m * o->ldc + n0;
    if (o->out_type == PT_BF16)
        epilogue_typed(o, PT_BF16, PT_BF16, sum, at, n0, cols);
    else if (o->type == PT_BF16)
        epilogue_typed(o, PT_BF16, PT_F32, sum, at, n0, cols);
    else
        epilogue_typed(o, PT_F32, PT_F32, sum, at, n0, cols);
}

#endif
