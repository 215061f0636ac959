/* Matmuls against sums in double precision, and what their bits do not depend on. */
#include "base/rng.h"
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/matmul_narrow.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/ops.h"
#include "sanitized.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t seed;

/* Of the largest products one in so many: what is done with them the sanitizers see in fewer, at a hundredth of the speed. */
enum { ONE_IN = THREADS_SANITIZED ? 12 : SANITIZED ? 8 : 1 };

/* ---- random matmuls ------------------------------------------------------------------------ */

typedef struct problem {
    op_matmul o;
    int64_t a_rows, a_cols, b_rows, b_cols;
    void *a, *b, *bias, *residual, *c, *more_a, *more_b, *scale;
    void *c_before; /* a copy of c, so that a matmul can be repeated and padding be compared */
} problem;

static void store(void *p, pt_dtype type, int64_t i, double x)
{
    if (type == PT_BF16)
        ((bf16 *)p)[i] = bf16_from_f32((float)x);
    else
        ((float *)p)[i] = (float)x;
}

static double load(const void *p, pt_dtype type, int64_t i)
{
    return type == PT_BF16 ? bf16_to_f32(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

/* rows x cols normal numbers; what lies between cols and ld is NaN, which no result may show. */
static void *random_matrix(uint32_t stream, pt_dtype type, int64_t rows, int64_t cols, int64_t ld)
{
    void *p = malloc((size_t)(rows * ld) * dtype_bytes(type) + 1);
    assert_non_null(p);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < ld; j++)
            store(p, type, i * ld + j, j < cols ? rng_normal(seed, RNG_TEST, stream, (uint64_t)(i * cols + j)) : NAN);
    return p;
}

static size_t c_bytes(const problem *p)
{
    return (size_t)(p->o.m * p->o.ldc) * dtype_bytes(p->o.out_type);
}

/* pad: how far the strides exceed the rows. */
static problem problem_make(op_matmul o, int64_t pad, bool bias, bool residual)
{
    problem p = {.o = o};
    p.a_rows = o.layout == MATMUL_TN ? o.k : o.m;
    p.a_cols = o.layout == MATMUL_TN ? o.m : o.k;
    p.b_rows = o.layout == MATMUL_NT ? o.n : o.k;
    p.b_cols = o.layout == MATMUL_NT ? o.k : o.n;
    p.o.lda = p.a_cols + pad;
    p.o.ldb = p.b_cols + 2 * pad;
    p.o.ldc = o.n + 3 * pad;
    p.o.a = p.a = random_matrix(1, o.type, p.a_rows, p.a_cols, p.o.lda);
    p.o.b = p.b = random_matrix(2, o.type, p.b_rows, p.b_cols, p.o.ldb);
    p.o.bias = p.bias = bias ? random_matrix(3, o.type, 1, o.n, o.n) : NULL;
    p.o.residual = p.residual = residual ? random_matrix(4, o.type, o.m, o.n, p.o.ldc) : NULL;
    p.o.c = p.c = random_matrix(5, o.out_type, o.m, o.n, p.o.ldc);
    p.o.more_lda = o.more_k + pad;
    p.o.more_ldb = (o.layout == MATMUL_NT ? o.more_k : o.n) + pad;
    p.o.more_a = p.more_a = random_matrix(7, o.type, o.m, o.more_k, p.o.more_lda);
    p.o.more_b = p.more_b = random_matrix(8, o.type, o.layout == MATMUL_NT ? o.n : o.more_k, o.layout == MATMUL_NT ? o.more_k : o.n,
                                          p.o.more_ldb);
    p.scale = o.more_k % 2 && !o.accumulate ? random_matrix(9, PT_F32, 1, o.n, o.n) : NULL;
    p.o.scale = p.scale;
    p.c_before = malloc(c_bytes(&p) + 1);
    memcpy(p.c_before, p.c, c_bytes(&p));
    return p;
}

static void problem_free(problem *p)
{
    free(p->a), free(p->b), free(p->bias), free(p->residual), free(p->c), free(p->c_before);
    free(p->more_a), free(p->more_b), free(p->scale);
}

static void problem_run(problem *p, pool *threads)
{
    memcpy(p->c, p->c_before, c_bytes(p));
    cpu_matmul(threads, &p->o);
}

/* rows x k; of what is turned a row lies in a column. */
static double *in_double(const void *p, pt_dtype type, int64_t ld, bool turned, int64_t rows, int64_t k)
{
    double *x = malloc((size_t)(rows * k) * sizeof *x + 1);
    assert_non_null(x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < k; j++)
            x[i * k + j] = load(p, type, turned ? j * ld + i : i * ld + j);
    return x;
}

/* Sums of products, and of their magnitudes. Most of a test's time, and not what the sanitizers are to look at. */
REFERENCE static void dot(const double *a, const double *b, int64_t k, double out[2])
{
    out[0] = out[1] = 0;
    for (int64_t i = 0; i < k; i++) {
        out[0] += a[i] * b[i];
        out[1] += fabs(a[i] * b[i]);
    }
}

/* Each of the k products and sums, alpha, the addition to c, the bias and the residual may be off by 2^-24
 * of the sum of all magnitudes; a result in bf16 by half a unit in its last place (2^-8 of it) more. */
static void problem_check(const problem *p)
{
    const op_matmul *o = &p->o;
    double *a = in_double(o->a, o->type, o->lda, o->layout == MATMUL_TN, o->m, o->k);
    double *b = in_double(o->b, o->type, o->ldb, o->layout != MATMUL_NT, o->n, o->k);
    double *more_a = in_double(o->more_a, o->type, o->more_lda, false, o->m, o->more_k);
    double *more_b = in_double(o->more_b, o->type, o->more_ldb, o->layout != MATMUL_NT, o->n, o->more_k);
    for (int64_t m = 0; m < o->m; m++)
        for (int64_t n = 0; n < o->n; n++) {
            double of[2], more_of[2];
            dot(a + m * o->k, b + n * o->k, o->k, of);
            dot(more_a + m * o->more_k, more_b + n * o->more_k, o->more_k, more_of);
            double alpha = (o->alpha ? o->alpha : 1) * (o->scale ? o->scale[n] : 1), sum = alpha * (of[0] + more_of[0]);
            double size = fabs(alpha) * (of[1] + more_of[1]);
            int64_t at = m * o->ldc + n;
            double more[3] = {o->bias ? load(o->bias, o->type, n) : 0,
                              o->residual ? load(p->residual, o->type, at) : 0,
                              o->accumulate ? load(p->c_before, o->out_type, at) : 0};
            for (int i = 0; i < 3; i++) {
                sum += more[i];
                size += fabs(more[i]);
            }
            double bound = (double)(o->k + o->more_k + 5) * size * ldexp(1, -24);
            if (o->out_type == PT_BF16)
                bound += fabs(sum) * ldexp(1, -8) + bound * ldexp(1, -8);
            double error = fabs(load(o->c, o->out_type, at) - sum);
            if (!(error <= bound))
                fail_msg("layout %d types %d %d, %lld x %lld x %lld, (%lld, %lld): %g, wanted %g +- %g", o->layout,
                         o->type, o->out_type, (long long)o->m, (long long)o->n, (long long)o->k, (long long)m,
                         (long long)n, load(o->c, o->out_type, at), sum, bound);
        }
    free(a), free(b), free(more_a), free(more_b);
    size_t size = dtype_bytes(o->out_type);
    for (int64_t m = 0; m < o->m; m++)
        assert_memory_equal((char *)p->c + (size_t)(m * o->ldc + o->n) * size,
                            (char *)p->c_before + (size_t)(m * o->ldc + o->n) * size, (size_t)(o->ldc - o->n) * size);
}

static uint32_t draw(uint64_t i, uint32_t below)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 9, i, w);
    return w[0] % below;
}

static op_matmul random_op(uint64_t i, int64_t m, int64_t n, int64_t k)
{
    op_matmul o = {.layout = draw(4 * i, 3), .type = draw(4 * i + 1, 2) ? PT_BF16 : PT_F32, .m = m, .n = n, .k = k};
    o.out_type = draw(4 * i + 2, 2) ? PT_F32 : o.type;
    static const float alphas[] = {0, 1, 0.22f, -1.5f};
    o.accumulate = o.out_type == PT_F32 && draw(4 * i + 3, 2);
    o.alpha = alphas[draw(5000 + i, 4)];
    o.more_k = o.layout != MATMUL_TN && draw(6000 + i, 2) ? 1 + draw(7000 + i, 70) : 0;
    return o;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void products_are_within_their_error_bound(void **state)
{
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (uint64_t i = 0; i < 240; i++) {
        uint32_t largest = i % 4 ? 70 : 300;
        op_matmul o = random_op(i, 1 + draw(1000 + i, largest), 1 + draw(2000 + i, largest),
                                1 + draw(3000 + i, i % 5 ? 60 : 900));
        problem p = problem_make(o, draw(4000 + i, 4), !o.accumulate && i % 2, !o.accumulate && i % 3 == 0);
        problem_run(&p, threads);
        problem_check(&p);
        problem_free(&p);
    }
    pool_close(threads);
}

/* Edges of the rectangles and of the blocks of K, in every layout and type. */
static void edges_of_tiles_are_computed(void **state)
{
    static const int64_t SIZES[][3] = {
        {1, 1, 1}, {1, 1031, 385}, {7, 50, 768}, {479, 33, 40}, {481, 769, 17}, {5, 1537, 9}, {121, 32, 383},
        {12, 97, 384}, {13, 31, 1153}, {961, 3, 8}, {2, 2, 5000}, {3, 5, 0},
        {16, 5, 1}, {15, 33, 257}, {17, 31, 256}, {31, 70, 513}, {257, 769, 65}, {1, 12353, 35}, {545, 801, 300}, {520, 40, 10000}};
    pool *threads;
    assert_int_equal(pool_open(3, &threads, NULL), 0);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int kind = (int)draw(i, ONE_IN); kind < 9; kind += ONE_IN) {
            op_matmul o = {.layout = kind % 3, .type = kind / 3 ? PT_BF16 : PT_F32,
                           .out_type = kind / 3 == 1 ? PT_BF16 : PT_F32, .m = SIZES[i][0], .n = SIZES[i][1], .k = SIZES[i][2]};
            o.accumulate = kind / 3 == 2;
            problem p = problem_make(o, 1, !o.accumulate, !o.accumulate);
            problem_run(&p, threads);
            problem_check(&p);
            problem_free(&p);
        }
    pool_close(threads);
}

static void the_residual_may_be_c_itself(void **state)
{
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (int type = 0; type < 2; type++) {
        op_matmul o = {.layout = MATMUL_NT, .type = type ? PT_BF16 : PT_F32, .m = 133, .n = 71, .k = 65};
        o.out_type = o.type;
        problem p = problem_make(o, 2, true, true);
        memcpy(p.residual, p.c_before, c_bytes(&p));
        problem_run(&p, threads);
        void *apart = malloc(c_bytes(&p));
        memcpy(apart, p.c, c_bytes(&p));
        p.o.residual = p.c;
        problem_run(&p, threads);
        assert_memory_equal(p.c, apart, c_bytes(&p));
        free(apart);
        problem_free(&p);
    }
    pool_close(threads);
}

/* A matmul in fp32 says what must be added; then nothing but one addition and one rounding is left. */
static void a_stream_is_added_to_in_fp32(void **state)
{
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (uint64_t i = 0; i < 48; i++) {
        op_matmul o = {.layout = MATMUL_NT, .type = i % 2 ? PT_BF16 : PT_F32, .m = 1 + draw(30000 + i, i % 3 ? 300 : 6),
                       .n = 1 + draw(31000 + i, 200), .k = 1 + draw(32000 + i, 300)};
        o.out_type = o.type;
        problem p = problem_make(o, 2, i % 4 < 2, i % 8 < 4);
        float *before = random_matrix(6, PT_F32, o.m, o.n, p.o.ldc), *stream = malloc((size_t)(o.m * p.o.ldc) * sizeof *stream);
        float *added = malloc((size_t)(o.m * p.o.ldc) * sizeof *added);
        char *plain = malloc(c_bytes(&p));
        memcpy(stream, before, (size_t)(o.m * p.o.ldc) * sizeof *stream);
        problem_run(&p, threads);
        memcpy(plain, p.c, c_bytes(&p));
        op_matmul sum = p.o;
        sum.out_type = PT_F32;
        sum.residual = NULL;
        sum.c = added;
        cpu_matmul(threads, &sum);
        p.o.stream = stream;
        problem_run(&p, threads);
        for (int64_t m = 0; m < o.m; m++)
            for (int64_t n = 0; n < p.o.ldc; n++) {
                int64_t at = m * p.o.ldc + n;
                float want = n < o.n ? before[at] + added[at] : before[at];
                assert_memory_equal(&stream[at], &want, sizeof want);
                if (n < o.n)
                    assert_true(load(p.c, o.type, at) ==
                                (p.residual ? load(plain, o.type, at) : o.type == PT_BF16 ? bf16_to_f32(bf16_from_f32(want)) : want));
            }
        free(before), free(stream), free(added), free(plain);
        problem_free(&p);
    }
    pool_close(threads);
}

static void the_number_of_threads_leaves_the_bits_alone(void **state)
{
    pool *threads[5] = {NULL};
    for (int i = 1; i <= 4; i++)
        assert_int_equal(pool_open(i, &threads[i], NULL), 0);
    for (uint64_t i = draw(900, ONE_IN); i < 46; i += ONE_IN) {
        op_matmul o = random_op(500 + i, 1 + draw(5000 + i, 600), 1 + draw(6000 + i, 900), 1 + draw(7000 + i, 500));
        if (i < 40 && i % 5 == 0)
            o.layout = MATMUL_NT, o.m = 1 + (int64_t)(i / 5 % FEW_ROWS);
        if (i == 40 || i == 41) { /* too much for one thread to hold packed; for several, too */
            bool wide = i == 41;
            o = (op_matmul){.layout = o.layout, .type = PT_BF16, .out_type = PT_BF16, .m = 600, .n = wide ? 2500 : 900,
                            .k = wide ? 1500 : 2000};
        } else if (i > 41) { /* fp32 by tiles: columns are packed in several turns, and of a long K one thread has no room for them */
            bool long_k = i == 45;
            o = (op_matmul){.layout = i % 3, .type = PT_F32, .out_type = PT_F32, .m = 800, .n = 1100, .k = 700};
            if (long_k)
                o.n = 600, o.k = 1500;
        }
        problem p = problem_make(o, 0, i % 2 && !o.accumulate, false);
        problem_run(&p, threads[1]);
        if (i == 42)
            problem_check(&p);
        void *one = malloc(c_bytes(&p));
        memcpy(one, p.c, c_bytes(&p));
        for (int t = 2; t <= 4; t++) {
            problem_run(&p, threads[t]);
            assert_memory_equal(p.c, one, c_bytes(&p));
        }
        free(one);
        problem_free(&p);
    }
    for (int i = 1; i <= 4; i++)
        pool_close(threads[i]);
}

/* a, with other strides. The rest is NaN. */
static void *spread(const void *a, pt_dtype type, int64_t rows, int64_t cols, int64_t ld, int64_t to)
{
    void *out = random_matrix(1, type, rows, 0, to);
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)out + (size_t)(i * to) * dtype_bytes(type), (const char *)a + (size_t)(i * ld) * dtype_bytes(type),
               (size_t)cols * dtype_bytes(type));
    return out;
}

/* Some kernels read rows of a where they are if their stride is even, and no multiple of 4096 bytes; else they pack them. */
static void the_stride_of_rows_leaves_the_bits_alone(void **state)
{
    const int64_t more_strides[] = {1, 2, 2048};
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (uint64_t i = draw(950, ONE_IN); i < 24; i += ONE_IN) {
        op_matmul o = random_op(1000 + i, 2 + draw(8500 + i, 600), 2 + draw(9500 + i, 300), 2 * (1 + draw(10500 + i, i % 4 ? 500 : 1100)));
        o.layout = i % 3 ? MATMUL_NT : MATMUL_NN;
        o.more_k = i % 2 ? 2 * (1 + draw(11500 + i, 24)) : 0;
        problem p = problem_make(o, 0, false, false);
        problem_run(&p, threads);
        void *want = malloc(c_bytes(&p));
        memcpy(want, p.c, c_bytes(&p));
        for (int s = 0; s < 3; s++) {
            const int64_t ld = s < 2 ? p.a_cols + more_strides[s] : (p.a_cols + 2047) / 2048 * 2048;
            const int64_t more_ld = o.more_k + more_strides[(s + (int)i / 2) % 3];
            void *a = spread(p.a, o.type, p.a_rows, p.a_cols, p.a_cols, ld);
            void *more = spread(p.more_a, o.type, o.m, o.more_k, o.more_k, more_ld);
            p.o.a = a, p.o.lda = ld, p.o.more_a = more, p.o.more_lda = more_ld;
            problem_run(&p, threads);
            assert_memory_equal(p.c, want, c_bytes(&p));
            free(a), free(more);
        }
        free(want);
        problem_free(&p);
    }
    pool_close(threads);
}

/* A micro-batch may hold more or fewer rows, a vocabulary may come in slices. Tiles are for AMX_ROWS_LEAST rows and more. */
static void rows_and_columns_do_not_depend_on_their_neighbours(void **state)
{
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (uint64_t i = 0; i < 60; i++) {
        op_matmul o = random_op(900 + i, 2 + draw(8000 + i, i % 3 == 1 ? 700 : i % 3 ? 300 : 8), 2 + draw(9000 + i, 300),
                                1 + draw(10000 + i, 1000));
        if (i % 3 == 0)
            o.layout = MATMUL_NT; /* which has a kernel for few rows */
        bool tiles = cpu_has_amx() && i % 3; /* else fewer rows than they are for */
        if (tiles)
            o.m += AMX_ROWS_LEAST;
        problem p = problem_make(o, 1, false, false);
        problem_run(&p, threads);
        size_t bytes = c_bytes(&p), in = dtype_bytes(o.type), out = dtype_bytes(o.out_type);
        char *whole = malloc(bytes);
        memcpy(whole, p.c, bytes);
        int64_t least = tiles ? AMX_ROWS_LEAST : 1, m0 = draw(11000 + i, (uint32_t)(o.m - least + 1)), n0 = draw(12000 + i, (uint32_t)o.n);
        op_matmul part = p.o;
        part.m = least + draw(13000 + i, (uint32_t)(o.m - m0 - least + 1));
        part.n = 1 + draw(14000 + i, (uint32_t)(o.n - n0));
        part.a = (char *)p.a + (size_t)(o.layout == MATMUL_TN ? m0 : m0 * p.o.lda) * in;
        part.b = (char *)p.b + (size_t)(o.layout == MATMUL_NT ? n0 * p.o.ldb : n0) * in;
        part.c = (char *)p.c + (size_t)(m0 * p.o.ldc + n0) * out;
        part.more_a = (char *)p.more_a + (size_t)(m0 * p.o.more_lda) * in;
        part.more_b = (char *)p.more_b + (size_t)(o.layout == MATMUL_NT ? n0 * p.o.more_ldb : n0) * in;
        part.scale = p.scale ? (float *)p.scale + n0 : NULL;
        memcpy(p.c, p.c_before, bytes);
        cpu_matmul(threads, &part);
        for (int64_t m = m0; m < m0 + part.m; m++)
            assert_memory_equal((char *)p.c + (size_t)(m * p.o.ldc + n0) * out,
                                whole + (size_t)(m * p.o.ldc + n0) * out, (size_t)part.n * out);
        free(whole);
        problem_free(&p);
    }
    pool_close(threads);
}

typedef struct copy {
    void (*tile)(const op_matmul *, int64_t, int64_t, int64_t, int64_t, void *);
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

/* One thread computes: under TSan, which makes it twenty times as long, once of each kind is enough. */
enum { COPY_CASES = THREADS_SANITIZED ? 12 : 60 };

/* The dispatcher calls the best copy only; the others must be right too. */
static void every_copy_of_the_kernel_that_can_run_is_right(void **state)
{
#define COPY(isa) matmul_tile_##isa, matmul_few_##isa
#define PAIRS(isa) COPY(isa), matmul_pack_##isa, matmul_packed_##isa
#define TILES(isa) matmul_tile_##isa, NULL, matmul_pack_##isa, matmul_packed_##isa
    const copy copies[] = {{COPY(v2), NULL, NULL, TILE_ROWS, TILE_COLS, true, PT_F32, 1},
                           {COPY(v3), NULL, NULL, TILE_ROWS, TILE_COLS, cpu_isa() >= 3, PT_F32, 1},
                           {COPY(v4), NULL, NULL, TILE_ROWS, TILE_COLS, cpu_isa() == 4, PT_F32, 1},
                           {PAIRS(v3pairs), TILE_ROWS, TILE_COLS, cpu_isa() >= 3, PT_BF16, 1},
                           {PAIRS(v4bf16), TILE_ROWS, TILE_COLS, cpu_has_bf16(), PT_BF16, 1},
                           {TILES(v4amx), AMX_ROWS, AMX_COLS, cpu_has_amx(), PT_BF16, AMX_PARTS},
                           {TILES(v4amxsplit), SPLIT_ROWS, SPLIT_COLS, cpu_has_amx(), PT_F32, SPLIT_PARTS}};
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
        {matmul_narrow_v2, matmul_tile_v2, 2}, {matmul_narrow_v3, matmul_tile_v3, 3}, {matmul_narrow_v4, matmul_tile_v4, 4}};
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

/* However a processor multiplies fp32, it is about as exact as the plainest copy, which begins a new sum every 384 k (tiles do not). */
static void fp32_is_as_exact_as_by_single_operations(void **state)
{
    static const int64_t K[] = {33, 768, 3072};
    pool *threads;
    assert_int_equal(pool_open(2, &threads, NULL), 0);
    for (size_t i = 0; i < 9; i++) {
        op_matmul o = {.layout = i % 3, .type = PT_F32, .out_type = PT_F32, .m = 64, .n = 80, .k = K[i / 3]};
        problem p = problem_make(o, 0, false, false);
        matmul_tile_v2(&p.o, 0, o.m, 0, o.n, pool_scratch(threads, 0));
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

static int print_seed(void **state)
{
    seed = test_seed();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_within_their_error_bound),
        cmocka_unit_test(edges_of_tiles_are_computed),
        cmocka_unit_test(the_residual_may_be_c_itself),
        cmocka_unit_test(a_stream_is_added_to_in_fp32),
        cmocka_unit_test(the_number_of_threads_leaves_the_bits_alone),
        cmocka_unit_test(the_stride_of_rows_leaves_the_bits_alone),
        cmocka_unit_test(rows_and_columns_do_not_depend_on_their_neighbours),
        cmocka_unit_test(every_copy_of_the_kernel_that_can_run_is_right),
        cmocka_unit_test(few_columns_have_the_bits_of_many),
        cmocka_unit_test(fp32_is_as_exact_as_by_single_operations),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(numbers_of_fp32_keep_all_of_their_bits),
    };
    return cmocka_run_group_tests(tests, print_seed, NULL);
}
