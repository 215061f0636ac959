/* transpose.h - inside model/ only. */
#ifndef PT_TRANSPOSE_H
#define PT_TRANSPOSE_H

#include <stdint.h>

/* dst[c * ldd + r] = src[r * lds + c] for r < rows, c < cols, in tiles that stay in cache. */
static inline void transpose(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows, int64_t cols)
{
    enum { TILE = 16 };
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < cols; c0 += TILE)
            for (int64_t c = c0; c < c0 + TILE && c < cols; c++)
                for (int64_t r = r0; r < r0 + TILE && r < rows; r++)
                    dst[c * ldd + r] = src[r * lds + c];
}

#endif
