/* dequantize.c - weights from few bits.
 *
 * A block of NF4 has 16 values that its codes choose from: the levels times its magnitude, rounded to the type. They are computed once a
 * block, and then each value is looked up by a permutation of a register:
 *
 *     codes    a|b c|d ...      4 bits each, the first in the upper half of a byte
 *     places   a b c d ...      as wide as the values
 *     values   table[a] table[b] ...
 *
 * AVX-512 permutes words (bf16) and floats by 16 places; AVX2 and SSSE3 permute bytes by 16, so that bf16 are two lookups, and AVX2 floats
 * by 8, of which there are two halves. A block that begins or ends within the row is taken value by value.
 */
#include "device/cpu/kernels/dequantize.h"

#include "device/cpu/kernels/isa.h"
#include "device/fewbit.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { BLOCK = NF4_BLOCK, HALF = 32 };

/* What a code of a block stands for. */
typedef struct table { _Alignas(64) float f32[NF4_LEVELS]; _Alignas(64) bf16 half[HALF]; } table;

INLINE void table_of(table *t, pt_dtype type, float magnitude)
{
    for (int i = 0; i < NF4_LEVELS; i++)
        t->f32[i] = nf4_levels[i] * magnitude;
    if (type != PT_BF16)
        return;
    for (int i = 0; i < NF4_LEVELS; i++)
        t->half[i] = t->half[i + NF4_LEVELS] = bf16_from_f32(t->f32[i]);
}

INLINE void store_one(const table *t, pt_dtype type, const uint8_t *codes, int64_t i, void *out, int64_t at)
{
    const int code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
    if (type == PT_BF16)
        ((bf16 *)out)[at] = t->half[code];
    else
        ((float *)out)[at] = t->f32[code];
}

/* ---- a whole block ---- */

#if defined(__AVX512BW__)

/* Of permutations, the lower bits of a place count: what lies above needs no mask. */
INLINE void block_bf16(const table *t, const uint8_t *codes, bf16 *out)
{
    const __m512i values = _mm512_load_si512(t->half);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(codes + 16 * i)));
        const __m512i places = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
        _mm512_storeu_si512(out + 32 * i, _mm512_permutexvar_epi16(places, values));
    }
}

INLINE void block_f32(const table *t, const uint8_t *codes, float *out)
{
    const __m512 values = _mm512_load_ps(t->f32);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(codes + 8 * i)));
        const __m512i places = _mm512_or_si512(_mm512_srli_epi64(bytes, 4), _mm512_slli_epi64(bytes, 32));
        _mm512_storeu_ps(out + 16 * i, _mm512_permutexvar_ps(places, values));
    }
}

#else

/* The places of 32 values, a byte each. */
INLINE void places_of(const uint8_t *codes, __m128i places[2])
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)codes), low = _mm_set1_epi8(15);
    const __m128i even = _mm_and_si128(_mm_srli_epi16(bytes, 4), low), odd = _mm_and_si128(bytes, low);
    places[0] = _mm_unpacklo_epi8(even, odd);
    places[1] = _mm_unpackhi_epi8(even, odd);
}

/* The lower and the upper bytes of a table. */
INLINE void bytes_of(const table *t, __m128i bytes[2])
{
    const __m128i a = _mm_load_si128((const __m128i *)t->half), b = _mm_load_si128((const __m128i *)(t->half + 8)), low = _mm_set1_epi16(255);
    bytes[0] = _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
    bytes[1] = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
}

#if defined(__AVX2__)

INLINE void block_bf16(const table *t, const uint8_t *codes, bf16 *out)
{
    __m128i bytes[2];
    bytes_of(t, bytes);
    const __m256i lower = _mm256_broadcastsi128_si256(bytes[0]), upper = _mm256_broadcastsi128_si256(bytes[1]);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m128i places[2];
        places_of(codes + 16 * i, places);
        const __m256i at = _mm256_set_m128i(places[1], places[0]);
        const __m256i a = _mm256_shuffle_epi8(lower, at), b = _mm256_shuffle_epi8(upper, at);
        const __m256i first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b); /* of each half of the register */
        _mm256_storeu_si256((__m256i *)(out + 32 * i), _mm256_permute2x128_si256(first, second, 0x20));
        _mm256_storeu_si256((__m256i *)(out + 32 * i + 16), _mm256_permute2x128_si256(first, second, 0x31));
    }
}

INLINE void block_f32(const table *t, const uint8_t *codes, float *out)
{
    const __m256 below = _mm256_load_ps(t->f32), above = _mm256_load_ps(t->f32 + 8);
    for (int i = 0; i < 2; i++) {
        __m128i places[2];
        places_of(codes + 16 * i, places);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m128i eight = j % 2 ? _mm_srli_si128(places[j / 2], 8) : places[j / 2];
            const __m256i at = _mm256_cvtepu8_epi32(eight);
            const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)); /* its sign: a place of 8 or more */
            _mm256_storeu_ps(out + 32 * i + 8 * j,
                             _mm256_blendv_ps(_mm256_permutevar8x32_ps(below, at), _mm256_permutevar8x32_ps(above, at), upper));
        }
    }
}

#else

INLINE void block_bf16(const table *t, const uint8_t *codes, bf16 *out)
{
    __m128i bytes[2];
    bytes_of(t, bytes);
    for (int i = 0; i < 2; i++) {
        __m128i places[2];
        places_of(codes + 16 * i, places);
        for (int j = 0; j < 2; j++) {
            const __m128i x = _mm_shuffle_epi8(bytes[0], places[j]), y = _mm_shuffle_epi8(bytes[1], places[j]);
            _mm_storeu_si128((__m128i *)(out + 32 * i + 16 * j), _mm_unpacklo_epi8(x, y));
            _mm_storeu_si128((__m128i *)(out + 32 * i + 16 * j + 8), _mm_unpackhi_epi8(x, y));
        }
    }
}

INLINE void block_f32(const table *t, const uint8_t *codes, float *out)
{
    for (int i = 0; i < BLOCK; i++)
        store_one(t, PT_F32, codes, i, out, i);
}

#endif
#endif

/* ---- rows ---- */

INLINE float magnitude_of(const op_dequantize *o, const float *map, int64_t block)
{
    return map[o->absmax[block]] * o->nested[block / NF4_NESTED_BLOCK] + *o->offset;
}

INLINE void nf4_row(const op_dequantize *o, pt_dtype type, const float *map, int64_t first, char *out)
{
    const int64_t end = first + o->cols;
    for (int64_t i = first, next; i < end; i = next) {
        table t;
        next = (i / BLOCK + 1) * BLOCK < end ? (i / BLOCK + 1) * BLOCK : end;
        table_of(&t, type, magnitude_of(o, map, i / BLOCK));
        if (next - i < BLOCK)
            for (; i < next; i++)
                store_one(&t, type, o->codes, i, out, i - first);
        else if (type == PT_BF16)
            block_bf16(&t, o->codes + i / 2, (bf16 *)out + (i - first));
        else
            block_f32(&t, o->codes + i / 2, (float *)out + (i - first));
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
    if (o->kind == FEWBIT_INT8 && o->type == PT_BF16)
        int8_row(o, PT_BF16, first, out);
    else if (o->kind == FEWBIT_INT8)
        int8_row(o, PT_F32, first, out);
    else if (o->type == PT_BF16)
        nf4_row(o, PT_BF16, map, first, out);
    else
        nf4_row(o, PT_F32, map, first, out);
}
