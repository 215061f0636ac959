/* transpose.h - transposes 16 x 16 32-bit elements in registers, with AVX-512. */
#ifndef PT_TRANSPOSE_H
#define PT_TRANSPOSE_H

#include <immintrin.h>

/* r[i][j] = r[j][i] */
static inline __attribute__((always_inline)) void transpose_16x16(__m512i r[16])
{
    __m512i s[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) { /* s[i]: columns 4 L, 4 L + 1 of two rows in lane L; s[i + 1]: 4 L + 2, 4 L + 3 */
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* r[i + j]: column 4 L + j of four rows */
        r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* s[j], s[4 + j]: lanes 0 and 1, 2 and 3 of rows 0 to 7; s[8 + j], s[12 + j]: of the others */
        s[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x44);
        s[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xee);
        s[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x44);
        s[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        r[j] = _mm512_shuffle_i32x4(s[j], s[8 + j], 0x88);
        r[4 + j] = _mm512_shuffle_i32x4(s[j], s[8 + j], 0xdd);
        r[8 + j] = _mm512_shuffle_i32x4(s[4 + j], s[12 + j], 0x88);
        r[12 + j] = _mm512_shuffle_i32x4(s[4 + j], s[12 + j], 0xdd);
    }
}

#endif
