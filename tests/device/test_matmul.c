/* Matmuls beside float64: any shape, layout and epilogue, with any number of threads. */
#include "device/cpu/kernels/matmul_amx.h"
#include "device/cpu/kernels/matmul_few.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "device/matmuls.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_within_their_error_bound),
        cmocka_unit_test(edges_of_tiles_are_computed),
        cmocka_unit_test(the_residual_may_be_c_itself),
        cmocka_unit_test(a_stream_is_added_to_in_fp32),
        cmocka_unit_test(the_number_of_threads_leaves_the_bits_alone),
        cmocka_unit_test(rows_and_columns_do_not_depend_on_their_neighbours),
    };
    return cmocka_run_group_tests(tests, print_seed, NULL);
}
