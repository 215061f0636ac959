/* matmul_few.c - a product whose cost is reading b once.
 *
 * b (N, K) is turned in registers, eight columns of c by a few k at a time, and used at once: the
 * packed panel of matmul_tile.c is never stored. Several groups of eight columns go side by side,
 * because each is one chain of fma. The order of every sum is that of matmul_tile.c, so the bits
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

typedef struct few {
    const op_matmul *o;
    operand b;
} few;

/* Adds k, k+1, ... (length of them, already turned into r) to the sums of one group. */
INLINE void add_turned(const few *f, pt_dtype type, int rows, int64_t k, int length, const f8 *r, f8 *sum, int stride)
{
#pragma GCC unroll 16
    for (int j = 0; j < length; j++)
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            f8 x = type_load(f->o->a, type, i * f->o->lda + k + j) - (f8){0}; /* in all lanes */
            f8_fma(&x, &r[j], &sum[i * stride]);
        }
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
                add_turned(f, type, rows, k, length, r, sum + g, groups);
            }
        for (; k < end; k++)
            for (int g = 0; g < groups; g++) {
                f8 one = {0};
                for (int i = 0; i < 8 && 8 * g + i < count; i++)
                    one[i] = load_one(&f->b, n + 8 * g + i, k);
                add_turned(f, type, rows, k, 1, &one, sum + g, groups);
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

void KERNEL(matmul_few)(const op_matmul *o, int64_t n0, int64_t cols)
{
    few f = {o, {o->b, o->type, true, o->ldb}};
    if (o->type == PT_BF16)
        few_rows(&f, PT_BF16, n0, cols);
    else
        few_rows(&f, PT_F32, n0, cols);
}
