/* Every copy of the matmul kernels that can run here, and exactness of fp32. */
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/matmul_narrow.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "device/matmuls.h"

typedef struct copy {
    void (*tile)(const op_matmul *, int64_t, int64_t, int64_t, int64_t, void *);
    void (*gathered)(const op_matmul *, gathered, int64_t, int64_t, int64_t, int64_t, void *);
    void (*few)(const op_matmul *, int64_t, int64_t); /* NULL: whoever has it has other bits */
    void (*pack)(const op_matmul *, const packed *, int64_t, int64_t);
    void (*packed)(const op_matmul *, const packed *, int64_t, int64_t, int64_t, int64_t, void *);
    int64_t rows, cols; /* of tile, at most */
    bool runs;          /* on this processor */
    pt_dtype type;      /* of what is packed */
    int parts;          /* bf16 that a number is packed in */
} copy;

enum { SCRATCHES = 4 }; /* threads whose scratch space holds packed columns */

/* From column n0 on, a multiple of TILE_COL_STEP, with b packed; the first columns apart, and the first rows. */
static void compute_packed(const copy *c, const problem *p, int64_t n0, char *scratch)
{
    const op_matmul *o = &p->o;
    packed b = {scratch, n0, SCRATCHES, packed_group_bytes(o->k, c->parts) + packed_group_bytes(o->more_k, c->parts), 0};
    int64_t cols = o->n - n0, rows = o->m < ROW_GROUP ? o->m / 2 : ROW_GROUP, apart = cols < TILE_COL_STEP ? cols : TILE_COL_STEP;
    assert_true((cols + COL_GROUP - 1) / COL_GROUP <= SCRATCHES * ((POOL_SCRATCH_BYTES - PACKED_AT) / b.group_bytes));
    int64_t step = o->m % 2 ? COL_GROUP : TILE_COL_STEP;
    for (int64_t j = 0; j < cols; j += step)
        c->pack(o, &b, j, cols - j < step ? cols - j : step);
    for (int i = 0; i < 4; i++)
        c->packed(o, &b, i % 2 ? rows : 0, i % 2 ? o->m - rows : rows, i / 2 ? apart : 0, i / 2 ? cols - apart : apart, scratch);
}

/* `to`: `lines` lines of `from`, of so many elements, in another order; map[i] is where line i went. */
static void *shuffled(const void *from, pt_dtype type, int64_t lines, int64_t ld, int64_t length, int32_t *map)
{
    const size_t size = dtype_bytes(type);
    char *to = malloc((size_t)(lines * length) * size + 1);
    assert_non_null(to);
    for (int64_t i = 0; i < lines; i++)
        map[i] = (int32_t)(lines - 1 - (i + 3) % lines);
    for (int64_t i = 0; i < lines; i++)
        memcpy(to + (size_t)(map[i] * length) * size, (const char *)from + (size_t)(i * ld) * size, (size_t)length * size);
    return to;
}

/* Lines of a, and of b in sums over them, that lie elsewhere: the same bits. */
static void check_gathered(const copy *c, problem *p, const char *want, void *scratch)
{
    const op_matmul *o = &p->o;
    const bool sum = o->layout == MATMUL_TN;
    int32_t *map[2] = {malloc((size_t)p->a_rows * 4 + 4), malloc((size_t)p->b_rows * 4 + 4)};
    op_matmul moved = *o;
    void *a = shuffled(o->a, o->type, p->a_rows, o->lda, p->a_cols, map[0]);
    void *b = shuffled(o->b, o->type, p->b_rows, o->ldb, p->b_cols, map[1]);
    moved.a = a, moved.lda = p->a_cols;
    if (sum)
        moved.b = b, moved.ldb = p->b_cols;
    memcpy(p->c, p->c_before, c_bytes(p));
    memset(scratch, 0xff, SCRATCHES * POOL_SCRATCH_BYTES);
    for (int64_t m = 0; m < o->m; m += c->rows)
        for (int64_t n = 0; n < o->n; n += c->cols)
            c->gathered(&moved, (gathered){map[0], sum ? map[1] : NULL}, m, o->m - m < c->rows ? o->m - m : c->rows, n,
                        o->n - n < c->cols ? o->n - n : c->cols, scratch);
    assert_memory_equal(p->c, want, c_bytes(p));
    free(a), free(b), free(map[0]), free(map[1]);
}

/* A few rows, and columns that are packed ahead, must have the bits that they have otherwise. */
static void copy_check(const copy *c, problem *p, int64_t n0, void *scratch)
{
    memset(scratch, 0xff, SCRATCHES * POOL_SCRATCH_BYTES);
    for (int64_t m = 0; m < p->o.m; m += c->rows)
        for (int64_t n = 0; n < p->o.n; n += c->cols)
            c->tile(&p->o, m, p->o.m - m < c->rows ? p->o.m - m : c->rows, n, p->o.n - n < c->cols ? p->o.n - n : c->cols, scratch);
    problem_check(p);
    char *want = malloc(c_bytes(p));
    memcpy(want, p->c, c_bytes(p));
    check_gathered(c, p, want, scratch);
    if (c->pack) {
        memcpy(p->c, p->c_before, c_bytes(p));
        memset(scratch, 0xff, SCRATCHES * POOL_SCRATCH_BYTES);
        if (n0)
            for (int64_t m = 0; m < p->o.m; m += c->rows)
                c->tile(&p->o, m, p->o.m - m < c->rows ? p->o.m - m : c->rows, 0, n0, scratch);
        compute_packed(c, p, n0, scratch);
        assert_memory_equal(p->c, want, c_bytes(p));
    }
    const int64_t few = c->few && p->o.layout == MATMUL_NT ? p->o.m < FEW_ROWS ? p->o.m : FEW_ROWS : 0;
    for (int64_t m = few; m > 0; m--) { /* whole, and in two stretches */
        const int64_t first = m % 2 && p->o.n > 64 ? 64 : p->o.n;
        p->o.m = m;
        memcpy(p->c, p->c_before, c_bytes(p));
        c->few(&p->o, 0, first);
        if (first < p->o.n)
            c->few(&p->o, first, p->o.n - first);
        assert_memory_equal(p->c, want, c_bytes(p));
    }
    free(want);
}

/* Small ones, wide ones, and a few whose K is too long for a group of rows to be kept packed. */
static op_matmul copy_op(uint64_t i, const copy *c)
{
    int64_t m = 1 + draw(15000 + i, i % 20 == 3 ? 30 : 2 * ROW_GROUP), n = 1 + draw(16000 + i, 150),
    k = 1 + draw(17000 + i, i % 8 ? 450 : 2000);
    if (i % 8 == 1 || i % 20 == 3)
        n += TILE_COLS + 2 * TILE_COL_STEP;
    if (i % 20 == 3)
        k = 4090 / c->parts + k % 20;
    op_matmul o = random_op(1500 + i, m, n, k);
    if (i % 5 == 0)
        o.layout = MATMUL_NT; /* which has a kernel for few rows */
    if (c->pack) {
        o.out_type = o.out_type == o.type ? c->type : PT_F32;
        o.type = c->type;
        o.accumulate = o.accumulate && o.out_type == PT_F32;
    }
    return o;
}

/* The dispatcher calls the best copy only; the others must be right too. */
static void every_copy_of_the_kernel_that_can_run_is_right(void **state)
{
#define COPY(isa) matmul_tile_##isa, matmul_gathered_##isa, matmul_few_##isa
#define PAIRS(isa) COPY(isa), matmul_pack_##isa, matmul_packed_##isa
#define TILES(isa) matmul_tile_##isa, matmul_gathered_##isa, NULL, matmul_pack_##isa, matmul_packed_##isa
#if defined(__x86_64__)
    const copy copies[] = {{COPY(v2), NULL, NULL, TILE_ROWS, TILE_COLS, true, PT_F32, 1},
                           {COPY(v3), NULL, NULL, TILE_ROWS, TILE_COLS, cpu_isa() >= 3, PT_F32, 1},
                           {COPY(v4), NULL, NULL, TILE_ROWS, TILE_COLS, cpu_isa() == 4, PT_F32, 1},
                           {PAIRS(v3pairs), TILE_ROWS, TILE_COLS, cpu_isa() >= 3, PT_BF16, 1},
                           {PAIRS(v4bf16), TILE_ROWS, TILE_COLS, cpu_has_bf16(), PT_BF16, 1},
                           {TILES(v4amx), AMX_ROWS, AMX_COLS, cpu_has_amx(), PT_BF16, AMX_PARTS},
                           {TILES(v4amxsplit), SPLIT_ROWS, SPLIT_COLS, cpu_has_amx(), PT_F32, SPLIT_PARTS}};
#else
    const copy copies[] = {{COPY(neon), NULL, NULL, TILE_ROWS, TILE_COLS, true, PT_F32, 1},
                           {PAIRS(neonbf16), TILE_ROWS, TILE_COLS, cpu_has_bf16(), PT_BF16, 1}};
#endif
    pool *threads; /* for its scratch space */
    assert_int_equal(pool_open(SCRATCHES, &threads, NULL), 0);
    for (size_t c = 0; c < sizeof copies / sizeof *copies; c++)
        for (uint64_t i = 0; i < COPY_CASES && copies[c].runs; i++) {
            op_matmul o = copy_op(i, &copies[c]);
            problem p = problem_make(o, i % 3, !o.accumulate, i % 2 && !o.accumulate);
            copy_check(&copies[c], &p, i % 3 == 1 && o.n > COL_GROUP ? COL_GROUP : 0, pool_scratch(threads, 0));
            problem_free(&p);
        }
    pool_close(threads);
}

typedef void (*tile_fn)(const op_matmul *, int64_t, int64_t, int64_t, int64_t, void *);

static op_matmul narrow_op(uint64_t i)
{
    const matmul_layout layout = (matmul_layout)(i % 3);
    op_matmul o = {.layout = layout, .type = PT_F32, .out_type = PT_F32, .m = 1 + draw(40000 + i, TILE_ROWS),
                   .n = 1 + draw(41000 + i, NARROW_COLS), .k = 1 + draw(42000 + i, layout == MATMUL_TN && i % 2 ? 1500 : NARROW_K)};
    o.accumulate = i % 5 == 0;
    if (i % 4 == 0)
        o.n = 64, o.m = o.m / 12 * 12 + 4;
    return o;
}

/* Where a is read where it lies, and in rectangles. */
static void few_columns_have_the_bits_of_many(void **state)
{
    static const struct { tile_fn narrow, tile; int isa; } copies[] = {
#if defined(__x86_64__)
        {matmul_narrow_v2, matmul_tile_v2, 2}, {matmul_narrow_v3, matmul_tile_v3, 3}, {matmul_narrow_v4, matmul_tile_v4, 4}};
#else
        {matmul_narrow_neon, matmul_tile_neon, 1}};
#endif
    pool *threads; /* for its scratch space */
    assert_int_equal(pool_open(1, &threads, NULL), 0);
    for (uint64_t i = 0; i < 90; i++)
        for (size_t c = 0; c < sizeof copies / sizeof *copies && cpu_isa() >= copies[c].isa; c++) {
            const op_matmul o = narrow_op(i);
            problem p = problem_make(o, i % 2, i % 7 < 3 && !o.accumulate, i % 2 && !o.accumulate);
            const int64_t rows = i % 3 ? o.m : o.m / 24 * 12, cols = i % 4 == 1 ? (o.n + 1) / 2 / 32 * 32 : o.n;
            assert_true(matmul_is_narrow(&p.o));
            copies[c].tile(&p.o, 0, o.m, 0, o.n, pool_scratch(threads, 0));
            char *want = malloc(c_bytes(&p));
            memcpy(want, p.c, c_bytes(&p));
            memcpy(p.c, p.c_before, c_bytes(&p));
            for (int part = 0; part < 4; part++)
                copies[c].narrow(&p.o, part % 2 ? rows : 0, part % 2 ? o.m - rows : rows, part / 2 ? cols : 0, part / 2 ? o.n - cols : cols,
                                 pool_scratch(threads, 0));
            assert_memory_equal(p.c, want, c_bytes(&p));
            free(want);
            problem_free(&p);
        }
    pool_close(threads);
}

/* Root of the mean squared error of c, beside sums in double precision. */
static double error_of(const problem *p)
{
    const op_matmul *o = &p->o;
    double *a = in_double(o->a, o->type, o->lda, o->layout == MATMUL_TN, o->m, o->k), squares = 0;
    double *b = in_double(o->b, o->type, o->ldb, o->layout != MATMUL_NT, o->n, o->k);
    for (int64_t m = 0; m < o->m; m++)
        for (int64_t n = 0; n < o->n; n++) {
            double of[2];
            dot(a + m * o->k, b + n * o->k, o->k, of);
            double error = load(o->c, o->out_type, m * o->ldc + n) - of[0];
            squares += error * error;
        }
    free(a), free(b);
    return sqrt(squares / (double)(o->m * o->n));
}

#if defined(__x86_64__)
#define PLAINEST(name) name##_v2
#else
#define PLAINEST(name) name##_neon
#endif

/* However a processor multiplies fp32, it is about as exact as the plainest copy, which begins a new sum every 384 k (tiles do not). */
static void fp32_is_as_exact_as_by_single_operations(void **state)
{
    static const int64_t K[] = {33, 768, 3072};
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (size_t i = 0; i < 9; i++) {
        op_matmul o = {.layout = i % 3, .type = PT_F32, .out_type = PT_F32, .m = 64, .n = 80, .k = K[i / 3]};
        problem p = problem_make(o, 0, false, false);
        PLAINEST(matmul_tile)(&p.o, 0, o.m, 0, o.n, pool_scratch(threads, 0));
        double plain = error_of(&p);
        problem_run(&p, threads);
        double best = error_of(&p);
        print_message("K %lld: error %.3g, by single operations %.3g\n", (long long)o.k, best, plain);
        assert_true(best > 0 && best < (o.k > 1000 ? 1.35 : 1.1) * plain);
        problem_free(&p);
    }
    pool_close(threads);
}

/* A NaN, whatever its bits, and an infinite number are not lost in any part of a matmul: a training step that went wrong is told by it. */
static void what_is_not_finite_stays_so(void **state)
{
    static const uint32_t BITS[] = {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0xffffffffu, 0x7f800001u, 0x7f800000u, 0xff800000u};
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (uint64_t i = 0; i < 3 * sizeof BITS / sizeof *BITS; i++)
        for (int in_b = 0; in_b < 2; in_b++) {
            op_matmul o = {.layout = i % 3, .type = PT_F32, .out_type = PT_F32, .m = 40, .n = 50, .k = 70};
            problem p = problem_make(o, 0, false, false);
            int64_t row = draw(20000 + 3 * i, in_b ? 50 : 40), k = draw(20001 + 3 * i, 70);
            bool inside = in_b ? o.layout == MATMUL_NT : o.layout != MATMUL_TN;
            float *x = in_b ? p.b : p.a, bad = f32_from_bits(BITS[i / 3]);
            memcpy(&x[inside ? row * (in_b ? p.o.ldb : p.o.lda) + k : k * (in_b ? p.o.ldb : p.o.lda) + row], &bad, sizeof bad);
            problem_run(&p, threads);
            for (int64_t m = 0; m < o.m; m++)
                for (int64_t n = 0; n < o.n; n++)
                    assert_int_equal(isfinite(((float *)p.c)[m * p.o.ldc + n]) != 0, (in_b ? n : m) != row);
            problem_free(&p);
        }
    pool_close(threads);
}

/* A matmul with the identity: all 24 of them, from 2^-103 on, and as large as bf16 can be. */
static void numbers_of_fp32_keep_all_of_their_bits(void **state)
{
    static const float NUMBERS[] = {1 + 0x1p-23f, 0x1.fffffep0f, 0x1.010102p10f, -0x1.808082p-40f, 0x1.000002p-103f, 0x1.fep127f,
                                    0x1p-126f};
    enum { N = sizeof NUMBERS / sizeof *NUMBERS, SIZE = 32 };
    pool *threads;
    assert_int_equal(pool_open(1, &threads, NULL), 0);
    for (int layout = 0; layout < 3; layout++) {
        op_matmul o = {.layout = layout, .type = PT_F32, .out_type = PT_F32, .m = SIZE, .n = SIZE, .k = SIZE};
        problem p = problem_make(o, 0, false, false);
        for (int64_t i = 0; i < SIZE * SIZE; i++) {
            ((float *)p.a)[i] = i % SIZE == i / SIZE ? NUMBERS[i % SIZE % N] : 0;
            ((float *)p.b)[i] = i % SIZE == i / SIZE;
        }
        problem_run(&p, threads);
        for (int64_t i = 0; i < SIZE * SIZE; i++)
            assert_true(((float *)p.c)[i] == (i % SIZE == i / SIZE ? NUMBERS[i % SIZE % N] : 0));
        problem_free(&p);
    }
    pool_close(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_copy_of_the_kernel_that_can_run_is_right),
        cmocka_unit_test(few_columns_have_the_bits_of_many),
        cmocka_unit_test(fp32_is_as_exact_as_by_single_operations),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(numbers_of_fp32_keep_all_of_their_bits),
    };
    return cmocka_run_group_tests(tests, print_seed, NULL);
}
