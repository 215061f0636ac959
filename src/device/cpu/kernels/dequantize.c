/* dequantize.c - decodes quantized weights.
 *
 * The codes of a block of NF4 or MXFP4 choose from 16 values: the levels times the block's magnitude, rounded to the type. This table is
 * computed once per block, and each value is looked up by a permutation of a register:
 *
 *     codes    a|b c|d ...      4 bits each, the first in the upper half of a byte (MXFP4: in the lower half)
 *     places   a b c d ...      as wide as the values
 *     values   table[a] table[b] ...
 *
 * AVX-512 permutes 16 words (bf16) or floats. AVX2, SSSE3 and NEON permute 16 bytes, so that a bf16 takes two lookups; AVX2 permutes 8
 * floats, so that the table has two halves; NEON looks bytes up in four registers, a whole table of floats. A block that begins or ends
 * inside the row is decoded value by value.
 */
#include "device/cpu/kernels/dequantize.h"

#include "device/cpu/kernels/isa.h"
#include "device/fewbit.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum { RUN = 32 }; /* values that are decoded at a time; a block has one or two such runs */
_Static_assert(NF4_BLOCK % RUN == 0 && MXFP4_BLOCK % RUN == 0, "a run is in one block");

/* Half a byte a value: NF4, or (mx) MXFP4, whose bytes have the first value in their lower half. */
INLINE const float *levels_of(bool mx) { return mx ? mxfp4_levels : nf4_levels; }

INLINE void store_one(bool mx, float magnitude, pt_dtype type, const uint8_t *codes, int64_t i, void *out, int64_t at)
{
    const float x = levels_of(mx)[(i % 2 != 0) != mx ? codes[i / 2] & 15 : codes[i / 2] >> 4] * magnitude;
    if (type == PT_BF16)
        ((bf16 *)out)[at] = bf16_from_f32(x);
    else
        ((float *)out)[at] = x;
}

/* ---- a whole run ---- */

/* The table stays in registers: storing it in parts and loading it as a whole would stall. */

#if defined(__AVX512BW__)

/* bf16_from_f32, of numbers only, in the lower half of each lane. */
INLINE __m512i rounded(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
}

/* Permutations use only the lower bits of an index, so it is not masked. */
INLINE void run_bf16(bool mx, float magnitude, const uint8_t *codes, bf16 *out)
{
    const __m512 table = _mm512_mul_ps(_mm512_loadu_ps(levels_of(mx)), _mm512_set1_ps(magnitude));
    const __m512i values = _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(rounded(table)));
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes));
    const __m512i places = mx ? _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12))
                              : _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(places, values));
}

INLINE void run_f32(bool mx, float magnitude, const uint8_t *codes, float *out)
{
    const __m512 values = _mm512_mul_ps(_mm512_loadu_ps(levels_of(mx)), _mm512_set1_ps(magnitude));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(codes + 8 * i)));
        const __m512i places = mx ? _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28))
                                  : _mm512_or_si512(_mm512_srli_epi64(bytes, 4), _mm512_slli_epi64(bytes, 32));
        _mm512_storeu_ps(out + 16 * i, _mm512_permutexvar_ps(places, values));
    }
}

#elif defined(__aarch64__)

/* The indices of 32 values, as bytes. */
INLINE void places_of(bool mx, const uint8_t *codes, uint8x16_t places[2])
{
    const uint8x16_t bytes = vld1q_u8(codes), upper = vshrq_n_u8(bytes, 4), lower = vandq_u8(bytes, vdupq_n_u8(15));
    const uint8x16_t even = mx ? lower : upper, odd = mx ? upper : lower;
    places[0] = vzip1q_u8(even, odd);
    places[1] = vzip2q_u8(even, odd);
}

/* Eight entries of the table: bf16_from_f32, of numbers only. */
INLINE uint8x16_t eight_of(const float *levels, float magnitude)
{
    uint32x4_t bits[2];
    for (int i = 0; i < 2; i++) {
        bits[i] = vreinterpretq_u32_f32(vmulq_n_f32(vld1q_f32(levels + 4 * i), magnitude));
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits[i], 16), vdupq_n_u32(1));
        bits[i] = vaddq_u32(vaddq_u32(bits[i], vdupq_n_u32(0x7fff)), odd);
    }
    return vreinterpretq_u8_u16(vuzp2q_u16(vreinterpretq_u16_u32(bits[0]), vreinterpretq_u16_u32(bits[1])));
}

INLINE void run_bf16(bool mx, float magnitude, const uint8_t *codes, bf16 *out)
{
    const uint8x16_t a = eight_of(levels_of(mx), magnitude), b = eight_of(levels_of(mx) + 8, magnitude);
    const uint8x16_t lower = vuzp1q_u8(a, b), upper = vuzp2q_u8(a, b);
    uint8x16_t places[2];
    places_of(mx, codes, places);
    for (int j = 0; j < 2; j++) {
        const uint8x16_t x = vqtbl1q_u8(lower, places[j]), y = vqtbl1q_u8(upper, places[j]);
        vst1q_u8((uint8_t *)(out + 16 * j), vzip1q_u8(x, y));
        vst1q_u8((uint8_t *)(out + 16 * j + 8), vzip2q_u8(x, y));
    }
}

INLINE void run_f32(bool mx, float magnitude, const uint8_t *codes, float *out)
{
    uint8x16x4_t table;
    uint8x16_t places[2];
    for (int i = 0; i < 4; i++)
        table.val[i] = vreinterpretq_u8_f32(vmulq_n_f32(vld1q_f32(levels_of(mx) + 4 * i), magnitude));
    places_of(mx, codes, places);
    for (int j = 0; j < 2; j++) {
        const uint8x16_t two[2] = {vzip1q_u8(places[j], places[j]), vzip2q_u8(places[j], places[j])};
        for (int i = 0; i < 4; i++) {
            const uint8x16_t four = i % 2 ? vzip2q_u8(two[i / 2], two[i / 2]) : vzip1q_u8(two[i / 2], two[i / 2]);
            const uint8x16_t in_word = vreinterpretq_u8_u32(vdupq_n_u32(0x03020100));
            vst1q_u8((uint8_t *)(out + 16 * j + 4 * i), vqtbl4q_u8(table, vaddq_u8(vshlq_n_u8(four, 2), in_word)));
        }
    }
}

#else

/* The indices of 32 values, as bytes. */
INLINE void places_of(bool mx, const uint8_t *codes, __m128i places[2])
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)codes), low = _mm_set1_epi8(15);
    const __m128i upper = _mm_and_si128(_mm_srli_epi16(bytes, 4), low), lower = _mm_and_si128(bytes, low);
    const __m128i even = mx ? lower : upper, odd = mx ? upper : lower;
    places[0] = _mm_unpacklo_epi8(even, odd);
    places[1] = _mm_unpackhi_epi8(even, odd);
}

/* Four entries of the table: bf16_from_f32, of numbers only, in the lower half of each lane. */
INLINE __m128i four_of(const float *levels, float magnitude)
{
    const __m128i bits = _mm_castps_si128(_mm_mul_ps(_mm_loadu_ps(levels), _mm_set1_ps(magnitude)));
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    return _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd), 16);
}

/* The lower and the upper bytes of a table of bf16. */
INLINE void bytes_of(const float *levels, float magnitude, __m128i bytes[2])
{
    const __m128i a = _mm_packus_epi32(four_of(levels, magnitude), four_of(levels + 4, magnitude)), low = _mm_set1_epi16(255);
    const __m128i b = _mm_packus_epi32(four_of(levels + 8, magnitude), four_of(levels + 12, magnitude));
    bytes[0] = _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
    bytes[1] = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
}

#if defined(__AVX2__)

INLINE void run_bf16(bool mx, float magnitude, const uint8_t *codes, bf16 *out)
{
    __m128i bytes[2], places[2];
    bytes_of(levels_of(mx), magnitude, bytes);
    places_of(mx, codes, places);
    const __m256i lower = _mm256_broadcastsi128_si256(bytes[0]), upper = _mm256_broadcastsi128_si256(bytes[1]);
    const __m256i at = _mm256_set_m128i(places[1], places[0]);
    const __m256i a = _mm256_shuffle_epi8(lower, at), b = _mm256_shuffle_epi8(upper, at);
    const __m256i first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b); /* of each 128-bit half */
    _mm256_storeu_si256((__m256i *)out, _mm256_permute2x128_si256(first, second, 0x20));
    _mm256_storeu_si256((__m256i *)(out + 16), _mm256_permute2x128_si256(first, second, 0x31));
}

INLINE void run_f32(bool mx, float magnitude, const uint8_t *codes, float *out)
{
    const __m256 each = _mm256_set1_ps(magnitude);
    const __m256 below = _mm256_mul_ps(_mm256_loadu_ps(levels_of(mx)), each);
    const __m256 above = _mm256_mul_ps(_mm256_loadu_ps(levels_of(mx) + 8), each);
    __m128i places[2];
    places_of(mx, codes, places);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m128i eight = j % 2 ? _mm_srli_si128(places[j / 2], 8) : places[j / 2];
        const __m256i at = _mm256_cvtepu8_epi32(eight);
        const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)); /* the sign bit: index 8 or more */
        _mm256_storeu_ps(out + 8 * j, _mm256_blendv_ps(_mm256_permutevar8x32_ps(below, at), _mm256_permutevar8x32_ps(above, at), upper));
    }
}

#else

INLINE void run_bf16(bool mx, float magnitude, const uint8_t *codes, bf16 *out)
{
    __m128i bytes[2], places[2];
    bytes_of(levels_of(mx), magnitude, bytes);
    places_of(mx, codes, places);
    for (int j = 0; j < 2; j++) {
        const __m128i x = _mm_shuffle_epi8(bytes[0], places[j]), y = _mm_shuffle_epi8(bytes[1], places[j]);
        _mm_storeu_si128((__m128i *)(out + 16 * j), _mm_unpacklo_epi8(x, y));
        _mm_storeu_si128((__m128i *)(out + 16 * j + 8), _mm_unpackhi_epi8(x, y));
    }
}

INLINE void run_f32(bool mx, float magnitude, const uint8_t *codes, float *out)
{
    for (int i = 0; i < RUN; i++)
        store_one(mx, magnitude, PT_F32, codes, i, out, i);
}

#endif
#endif

/* ---- rows ---- */

INLINE float magnitude_of(bool mx, const op_dequantize *o, const float *map, int64_t block)
{
    return mx ? f32_from_bits(MXFP4_SCALE_BITS(o->absmax[block]))
              : map[o->absmax[block]] * o->nested[block / NF4_NESTED_BLOCK] + *o->offset;
}

INLINE void halves_row(bool mx, const op_dequantize *o, pt_dtype type, const float *map, int64_t first, char *out)
{
    const int64_t end = first + o->cols, block = mx ? MXFP4_BLOCK : NF4_BLOCK;
    for (int64_t i = first, next; i < end; i = next) {
        const float magnitude = magnitude_of(mx, o, map, i / block);
        next = (i / block + 1) * block < end ? (i / block + 1) * block : end;
        if (next - i < block) {
            for (; i < next; i++)
                store_one(mx, magnitude, type, o->codes, i, out, i - first);
            continue;
        }
#pragma GCC unroll 2
        for (int64_t k = i; k < i + block; k += RUN) {
            if (type == PT_BF16)
                run_bf16(mx, magnitude, o->codes + k / 2, (bf16 *)out + (k - first));
            else
                run_f32(mx, magnitude, o->codes + k / 2, (float *)out + (k - first));
        }
    }
}

INLINE void int8_row(const op_dequantize *o, pt_dtype type, int64_t first, char *out)
{
    const float scale = o->scales[first / o->stride];
    for (int64_t i = 0; i < o->cols; i++) {
        const float x = (float)(int8_t)o->codes[first + i] * scale * INT8_STEP;
        if (type == PT_BF16)
            ((bf16 *)out)[i] = bf16_from_f32(x);
        else
            ((float *)out)[i] = x;
    }
}

void KERNEL(dequantize_row)(const op_dequantize *o, const float *map, int64_t row)
{
    char *out = (char *)o->out + row * o->ld * (int64_t)dtype_bytes(o->type);
    const int64_t first = o->first + row * o->stride;
    const bool is_bf16 = o->type == PT_BF16;
    if (o->kind == FEWBIT_INT8)
        is_bf16 ? int8_row(o, PT_BF16, first, out) : int8_row(o, PT_F32, first, out);
    else if (o->kind == FEWBIT_MXFP4)
        is_bf16 ? halves_row(true, o, PT_BF16, map, first, out) : halves_row(true, o, PT_F32, map, first, out);
    else
        is_bf16 ? halves_row(false, o, PT_BF16, map, first, out) : halves_row(false, o, PT_F32, map, first, out);
}
