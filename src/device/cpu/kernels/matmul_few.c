/* matmul_few.c - a product whose cost is reading b once.
 *
 * b (N, K) is turned in registers, eight columns of c by a few k at a time, and used at once: the
 * packed panel of matmul_tile.c is never stored. Several groups of eight columns go side by side,
 * because each is one chain. The order of every sum is that of matmul_tile.c, so the bits
 * are too: a row gives the same result alone as among two thousand.
 */
#include "device/cpu/kernels/matmul_few.h"

#include "device/cpu/kernels/matmul_epilogue.h"
#include "device/cpu/kernels/matmul_pack.h"

enum { MOST_GROUPS = 4, AHEAD_BYTES = 512 };

INLINE void f8_fma(const f8 *a, const f8 *b, f8 *c) /* c = a * b + c */
{
#if defined(__FMA__)
    *c = (f8)_mm256_fmadd_ps((__m256)*a, (__m256)*b, (__m256)*c);
#else
    *c = *a * *b + *c;
#endif
}

INLINE void f8_factor_fma(factor a, const f8 *b, f8 *c) /* c += a * b, of eight factors b */
{
#if defined(PT_PAIRS) && defined(__AVX512BF16__)
    *c = (f8)_mm256_dpbf16_ps((__m256)*c, (__m256bh)_mm256_set1_epi32((int)a), (__m256bh)*b);
#elif defined(PT_PAIRS)
    f8 high = (f8)((u8){0} + (a & 0xffff0000u)), low = (f8)((u8){0} + (a << 16));
    f8 b_high = (f8)((u8)*b & 0xffff0000u), b_low = (f8)((u8)*b << 16);
    f8_fma(&high, &b_high, c);
    f8_fma(&low, &b_low, c);
#else
    f8 x = a - (f8){0}; /* in all lanes */
    f8_fma(&x, b, c);
#endif
}

typedef struct few {
    const op_matmul *o;
    operand a, b;
} few;

/* Adds k, k+1, ... (length of them, already turned into r) to the sums of one group. */
INLINE void add_turned(const few *f, int rows, int64_t k, int length, const f8 *r, f8 *sum, int stride)
{
#pragma GCC unroll 16
    for (int j = 0; j < length; j += FACTOR_K)
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            f8_factor_fma(load_factor(&f->a, i, k + j, length - j), &r[j / FACTOR_K], &sum[i * stride]);
}

/* total[i][g] = the sum over K for `rows` rows and `groups` x 8 columns from n; columns from `count` on are 0. */
INLINE void few_columns(const few *f, pt_dtype type, int rows, int groups, int64_t n, int64_t count,
                        float total[FEW_ROWS][8 * MOST_GROUPS])
{
    int64_t size = (int64_t)dtype_bytes(type), block = k_block(f->o->k);
    int length = turn_length(type);
    for (int64_t k0 = 0; k0 < f->o->k; k0 += block) {
        int64_t end = k0 + block < f->o->k ? k0 + block : f->o->k, k = k0;
        f8 sum[FEW_ROWS * MOST_GROUPS], r[16];
        for (int i = 0; i < rows * groups; i++)
            sum[i] = (f8){0};
        for (; k + length <= end; k += length)
#pragma GCC unroll 4
            for (int g = 0; g < groups; g++) {
                if (count == 8 * groups) {
                    const char *ahead = (const char *)f->b.base + ((n + 8 * g) * f->b.ld + k) * size + AHEAD_BYTES;
#pragma GCC unroll 8
                    for (int i = 0; i < 8; i++)
                        __builtin_prefetch(ahead + i * f->b.ld * size);
                    turn_block(&f->b, type, n + 8 * g, 8, k, r);
                } else {
                    turn_block(&f->b, type, n + 8 * g, count - 8 * g, k, r);
                }
                add_turned(f, rows, k, length, r, sum + g, groups);
            }
        for (; k < end; k += FACTOR_K)
            for (int g = 0; g < groups; g++) {
                factor one[8] = {0};
                int left = end - k < FACTOR_K ? (int)(end - k) : FACTOR_K;
                for (int i = 0; i < 8 && 8 * g + i < count; i++)
                    one[i] = load_factor(&f->b, n + 8 * g + i, k, left);
                f8 line = *(const f8_at *)one;
                add_turned(f, rows, k, left, &line, sum + g, groups);
            }
        for (int i = 0; i < rows; i++)
            for (int g = 0; g < groups; g++) {
                f8_at *to = (f8_at *)(total[i] + 8 * g);
                if (k0)
                    sum[i * groups + g] = *to + sum[i * groups + g];
                *to = sum[i * groups + g];
            }
    }
}

INLINE void few_typed(const few *f, pt_dtype type, int rows, int groups, int64_t n0, int64_t cols)
{
    for (int64_t j = 0; j < cols; j += 8 * groups) {
        int64_t count = cols - j < 8 * groups ? cols - j : 8 * groups;
        float total[FEW_ROWS][8 * MOST_GROUPS];
        if (f->o->k == 0)
            memset(total, 0, sizeof total);
        few_columns(f, type, rows, groups, n0 + j, count, total);
        for (int i = 0; i < rows; i++)
            epilogue_row(f->o, total[i], i, n0 + j, count);
    }
}

INLINE void few_rows(const few *f, pt_dtype type, int64_t n0, int64_t cols)
{
    switch (f->o->m) {
    case 1: few_typed(f, type, 1, 4, n0, cols); break;
    case 2: few_typed(f, type, 2, 2, n0, cols); break;
    case 3: few_typed(f, type, 3, 2, n0, cols); break;
    default: few_typed(f, type, 4, 2, n0, cols); break;
    }
}

INLINE void few_of(const op_matmul *o, pt_dtype type, int64_t n0, int64_t cols)
{
    few f = {o, {o->a, type, true, o->lda}, {o->b, type, true, o->ldb}};
    few_rows(&f, type, n0, cols);
}

void KERNEL(matmul_few)(const op_matmul *o, int64_t n0, int64_t cols)
{
    if (FACTOR_K > 1 || o->type == PT_BF16)
        few_of(o, PT_BF16, n0, cols);
    else
        few_of(o, PT_F32, n0, cols);
}
