/* matmul_few.c - a matmul with few rows, whose time is that of reading b once.
 *
 * b (N, K) is transposed in registers, a few k of 8 or 16 columns of c (the lanes of a vector) at a time, and used immediately: nothing is
 * stored in packed panels, unlike in matmul_tile.c. Several such groups of columns are computed together, because each is one dependent
 * chain. The order of every sum is that of matmul_tile.c, so the bits are the same: a row has the same result alone as among two thousand.
 */
#include "device/cpu/kernels/matmul_few.h"

#include "device/cpu/kernels/matmul_epilogue.h"
#include "device/cpu/kernels/matmul_pack.h"
#if defined(__AVX512F__)
#include "device/cpu/kernels/transpose.h"
enum { LANES = 16, BLOCK_BYTES = 64 };
typedef vec lanes;
typedef vec_at lanes_at;
typedef float lanes_pairs_at __attribute__((vector_size(64), aligned(2), may_alias));
#else
enum { LANES = 8, BLOCK_BYTES = 32 };
typedef f8 lanes;
typedef f8_at lanes_at;
typedef f8_pairs_at lanes_pairs_at;
#endif

enum { MOST_GROUPS = 4, LINE_BYTES = 64, LINES = LANES * BLOCK_BYTES / LINE_BYTES /* transposed at a time */ };

typedef struct few {
    const op_matmul *o;
    operand a, b;
    int64_t k;  /* K of this part of the sum */
    bool first; /* this is the first part */
} few;

/* ---- lanes, a column each --------------------------------------------------------------------- */

INLINE void lanes_fma(const lanes *a, const lanes *b, lanes *c) /* c = a * b + c */
{
#if defined(__FMA__) /* lanes are a vec */
    *c = vec_fma(*a, *b, *c);
#elif defined(__aarch64__) /* two */
    for (int i = 0; i < 2; i++)
        ((q4 *)c)[i] = (q4)vec_fma((vec)((const q4 *)a)[i], (vec)((const q4 *)b)[i], (vec)((q4 *)c)[i]);
#else
    *c = *a * *b + *c;
#endif
}

INLINE void lanes_factor_fma(factor a, const lanes *b, lanes *c) /* c += a * b, with a factor b in each lane */
{
#if defined(PT_PAIRS) && defined(__AVX512BF16__)
    *c = factor_fma(&a, (const factor *)b, *c);
#elif defined(PT_PAIRS) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    for (int i = 0; i < 2; i++)
        ((q4 *)c)[i] = (q4)factor_fma(&a, (const factor *)b + VL * i, (vec)((q4 *)c)[i]);
#elif defined(PT_PAIRS)
    typedef uint32_t words __attribute__((vector_size(sizeof(lanes))));
    lanes high = (lanes)((words){0} + (a & 0xffff0000u)), low = (lanes)((words){0} + (a << 16));
    lanes b_high = (lanes)((words)*b & 0xffff0000u), b_low = (lanes)((words)*b << 16);
    lanes_fma(&high, &b_high, c);
    lanes_fma(&low, &b_low, c);
#else
    lanes x = a - (lanes){0}; /* broadcast */
    lanes_fma(&x, b, c);
#endif
}

INLINE void lanes_transpose(lanes r[LANES]) /* r[i][j] = r[j][i] */
{
#if defined(__AVX512F__)
    transpose_16x16((__m512i *)r);
#else
    f8_transpose(r);
#endif
}

/* ---- transposing ------------------------------------------------------------------------------ */

INLINE void load_words(const char *from, int words, lanes *to) /* followed by zeros */
{
#if defined(__AVX512F__)
    *to = (lanes)_mm512_maskz_loadu_epi32((__mmask16)((1u << words) - 1), from);
#else
    *to = (lanes){0};
    memcpy(to, from, (size_t)words * sizeof(uint32_t));
#endif
}

/* r[j] = 32-bit word j of the columns from n on, of `words` words from k on; columns from `count` on are zeros. */
INLINE void transpose_words(const operand *m, pt_dtype type, int64_t n, int64_t count, int64_t k, int words, lanes r[LANES])
{
    const int64_t step = m->ld * (int64_t)dtype_bytes(type);
    const char *row = (const char *)m->base + n * step + k * (int64_t)dtype_bytes(type);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        if (i >= count)
            r[i] = (lanes){0};
        else if (words == LANES)
            r[i] = *(const lanes_pairs_at *)(row + i * step);
        else
            load_words(row + i * step, words, &r[i]);
    lanes_transpose(r);
}

/* A 32-bit word of row i of a: one factor, or two of one bf16 each. */
INLINE uint32_t word_of(const operand *a, pt_dtype type, int64_t i, int64_t k)
{
    uint32_t word;
    memcpy(&word, (const char *)a->base + (i * a->ld + k) * (int64_t)dtype_bytes(type), sizeof word);
    return word;
}

INLINE factor factor_of(uint32_t word)
{
    factor x;
    memcpy(&x, &word, sizeof x);
    return x;
}

/* sum += the products of the word of a at k and the transposed words of b. */
INLINE void add_word(const few *f, pt_dtype type, int row, int64_t k, const lanes *transposed, lanes *sum)
{
    typedef uint32_t words __attribute__((vector_size(sizeof(lanes))));
    const uint32_t a = word_of(&f->a, type, row, k);
    if (4 / (int)dtype_bytes(type) == FACTOR_K) {
        lanes_factor_fma(factor_of(a), transposed, sum);
    } else { /* two bf16, which are two factors */
        lanes low = (lanes)((words)*transposed << 16), high = (lanes)((words)*transposed & 0xffff0000u);
        lanes_factor_fma(factor_of(a << 16), &low, sum);
        lanes_factor_fma(factor_of(a & 0xffff0000u), &high, sum);
    }
}

/* ---- prefetching ------------------------------------------------------------------------------ */

/* The data after the current columns and k are prefetched in the order of memory, row by row, as the hardware prefetcher would if it saw
 * one stream and not 64. */
typedef struct ahead { const char *line, *row_end; int64_t row_bytes, step, rows; } ahead;

INLINE ahead ahead_of(const few *f, pt_dtype type, int64_t n, int64_t count, int64_t k)
{
    const int64_t size = (int64_t)dtype_bytes(type), block = k_block(f->k), left = f->k - k;
    const int64_t row = (left < block ? left : block) * size;
    const char *line = (const char *)f->b.base + (n * f->b.ld + k) * size;
    return (ahead){line, line + row, row, f->b.ld * size, count};
}

/* Prefetches as many lines as are transposed at a time, a few of a row at once. */
INLINE void prefetch_some(ahead *x)
{
    enum { FEW = 4 };
    for (int n = 0; n < LINES && x->rows > 0; n += FEW) {
#pragma GCC unroll 4
        for (int i = 0; i < FEW; i++)
            __builtin_prefetch(x->line + i * LINE_BYTES, 0, 2);
        x->line += FEW * LINE_BYTES;
        if (x->line >= x->row_end) {
            x->row_end += x->step;
            x->line = x->row_end - x->row_bytes;
            x->rows--;
        }
    }
}

/* Prefetches the rest: rows need not be whole units, and the next block may be longer. */
INLINE void prefetch_rest(ahead *x)
{
    while (x->rows > 0)
        prefetch_some(x);
}

/* ---- sums ------------------------------------------------------------------------------------- */

/* of[i * groups + g]: row i of group g. */
typedef struct few_sums { lanes of[FEW_ROWS * MOST_GROUPS]; } few_sums;

/* Adds a full transposed block from k on, for all groups; all columns exist. */
INLINE void add_columns(const few *f, pt_dtype type, int rows, int groups, int64_t n, int64_t k, ahead *then, few_sums *sum)
{
    const int in_word = 4 / (int)dtype_bytes(type);
    lanes r[LANES];
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++) {
        prefetch_some(then);
        transpose_words(&f->b, type, n + LANES * g, LANES, k, LANES, r);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                add_word(f, type, i, k + j * in_word, &r[j], &sum->of[i * groups + g]);
    }
}

/* Adds the last k if it is half a word. */
static void add_last(const few *f, int rows, int groups, int64_t n, int64_t count, int64_t k, few_sums *sum)
{
    for (int g = 0; g < groups; g++) {
        factor one[LANES] = {0};
        for (int i = 0; i < LANES && LANES * g + i < count; i++)
            one[i] = load_factor(&f->b, n + LANES * g + i, k, 1);
        lanes line;
        memcpy(&line, one, sizeof line);
        for (int i = 0; i < rows; i++)
            lanes_factor_fma(load_factor(&f->a, i, k, 1), &line, &sum->of[i * groups + g]);
    }
}

/* Adds the rest, k .. end, for any number of columns. Slower. */
ONE_COPY few_sums add_rest(few f, pt_dtype type, int rows, int groups, int64_t n, int64_t count, int64_t k, int64_t end, few_sums sum)
{
    const int in_word = 4 / (int)dtype_bytes(type);
    lanes r[LANES];
    for (int words; (words = (int)(end - k < LANES * in_word ? end - k : LANES * in_word) / in_word); k += words * in_word)
        for (int g = 0; LANES * g < count; g++) {
            transpose_words(&f.b, type, n + LANES * g, count - LANES * g, k, words, r);
            for (int i = 0; i < rows; i++) {
                lanes x = sum.of[i * groups + g];
                for (int j = 0; j < words; j++)
                    add_word(&f, type, i, k + j * in_word, &r[j], &x);
                sum.of[i * groups + g] = x;
            }
        }
    if (k < end)
        add_last(&f, rows, groups, n, count, k, &sum);
    return sum;
}

/* total[i][..] = or += the sums over this part's K, for `rows` rows and `groups` x LANES columns from n on, of which `count` exist; `next`
 * columns follow them. Results past `count` are not used. */
INLINE void few_columns(const few *f, pt_dtype type, int rows, int groups, int64_t n, int64_t count, int64_t next,
                        float total[FEW_ROWS][LANES * MOST_GROUPS])
{
    const int64_t block = k_block(f->k), length = LANES * 4 / (int64_t)dtype_bytes(type);
    for (int64_t k0 = 0; k0 < f->k; k0 += block) {
        int64_t end = k0 + block < f->k ? k0 + block : f->k, k = k0;
        ahead then = end < f->k ? ahead_of(f, type, n, count, end) : ahead_of(f, type, n + count, next, 0);
        few_sums sum;
        for (int i = 0; i < rows * groups; i++)
            sum.of[i] = (lanes){0};
        if (count == LANES * groups)
            for (; k + length <= end; k += length)
                add_columns(f, type, rows, groups, n, k, &then, &sum);
        prefetch_rest(&then);
        if (k < end)
            sum = add_rest(*f, type, rows, groups, n, count, k, end, sum);
        for (int i = 0; i < rows; i++)
            for (int g = 0; g < groups; g++) {
                lanes_at *to = (lanes_at *)(total[i] + LANES * g);
                if (k0 || !f->first)
                    sum.of[i * groups + g] = *to + sum.of[i * groups + g];
                *to = sum.of[i * groups + g];
            }
    }
}

ONE_COPY void finish_columns(const op_matmul *o, int64_t n, int64_t count, float total[FEW_ROWS][LANES * MOST_GROUPS])
{
    for (int64_t i = 0; i < o->m; i++)
        epilogue_row(o, total[i], i, n, count);
}

INLINE void few_typed(const few *f, const few *more, pt_dtype type, int rows, int groups, int64_t n0, int64_t cols)
{
    const int64_t width = LANES * groups;
    for (int64_t j = 0; j < cols; j += width) {
        int64_t count = cols - j < width ? cols - j : width, next = cols - j - count < width ? cols - j - count : width;
        float total[FEW_ROWS][LANES * MOST_GROUPS];
        if (f->k == 0 && more->k == 0)
            memset(total, 0, sizeof total);
        few_columns(f, type, rows, groups, n0 + j, count, next, total);
        if (more->k)
            few_columns(more, type, rows, groups, n0 + j, count, next, total);
        finish_columns(f->o, n0 + j, count, total);
    }
}

INLINE void few_rows(const few *f, const few *more, pt_dtype type, int64_t n0, int64_t cols)
{
    switch (f->o->m) {
    case 1: few_typed(f, more, type, 1, 4, n0, cols); break;
    case 2: few_typed(f, more, type, 2, 2, n0, cols); break;
    case 3: few_typed(f, more, type, 3, 2, n0, cols); break;
    default: few_typed(f, more, type, 4, 2, n0, cols); break;
    }
}

INLINE void few_of(const op_matmul *o, pt_dtype type, int64_t n0, int64_t cols)
{
    const few f = {o, {o->a, type, true, o->lda}, {o->b, type, true, o->ldb}, o->k, true};
    const few more = {o, {o->more_a, type, true, o->more_lda}, {o->more_b, type, true, o->more_ldb}, o->more_k, o->k == 0};
    few_rows(&f, &more, type, n0, cols);
}

void KERNEL(matmul_few)(const op_matmul *o, int64_t n0, int64_t cols)
{
    if (FACTOR_K > 1 || o->type == PT_BF16)
        few_of(o, PT_BF16, n0, cols);
    else
        few_of(o, PT_F32, n0, cols);
}
