/* attention_amx.h - attention's matmuls on AMX tiles of 16 rows of 64 bytes.
 *
 *     c (16 x 16 floats) += a (16 rows x 16 operands along the depth) . b (16 operands down the depth x 16 lanes)
 *
 * Four tiles of c, 32 x 32, are accumulated at a time, from two of a and two of b. Rows, lanes and depth are whole tiles.
 */
#ifndef PT_ATTENTION_AMX_H
#define PT_ATTENTION_AMX_H

#include "device/cpu/kernels/amx.h"

/* c[r][lane] *= scale[lane], 32 x 32 */
static inline void tiles_scale(float *c, int64_t ldc, const float *scale)
{
    vec left = vec_load(scale), right = vec_load(scale + VEC);
    for (int r = 0; r < 32; r++) {
        vec_store(c + r * ldc, vec_load(c + r * ldc) * left);
        vec_store(c + r * ldc + VEC, vec_load(c + r * ldc + VEC) * right);
    }
}

/* Like matmul_block, for 32 x 32. Strides of a and b and the depth are in operands, those of c in floats. */
static inline void tiles_matmul(matmul_mode mode, const operand *a, int64_t row_stride, const operand *b, int64_t ldb, float *c,
                                 int64_t ldc, int64_t depth, const float *scale)
{
    if (mode == MATMUL_SCALED)
        tiles_scale(c, ldc, scale);
    TILES_SEE_MEMORY();
    if (mode == MATMUL_SET) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, c, 4 * ldc);
        _tile_loadd(1, c + 16, 4 * ldc);
        _tile_loadd(2, c + 16 * ldc, 4 * ldc);
        _tile_loadd(3, c + 16 * ldc + 16, 4 * ldc);
    }
    for (int64_t k = 0; k < depth; k += 16) {
        _tile_loadd(4, a + k, 4 * row_stride);
        _tile_loadd(5, a + k + 16 * row_stride, 4 * row_stride);
        _tile_loadd(6, b + k * ldb, 4 * ldb);
        _tile_loadd(7, b + k * ldb + 16, 4 * ldb);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 4 * ldc);
    _tile_stored(1, c + 16, 4 * ldc);
    _tile_stored(2, c + 16 * ldc, 4 * ldc);
    _tile_stored(3, c + 16 * ldc + 16, 4 * ldc);
    TILES_SEE_MEMORY();
}

#endif
