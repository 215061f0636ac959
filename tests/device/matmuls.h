/* matmuls.h - random matmuls beside float64. Include after cmocka.h. */
#ifndef PT_TEST_MATMULS_H
#define PT_TEST_MATMULS_H

#include "base/rng.h"
#include "device/cpu/ops.h"
#include "sanitized.h"
#include "seed.h"

#include <math.h>

static uint64_t seed;

/* Of the largest products one in so many: what is done with them the sanitizers see in fewer, at a hundredth of the speed. */
enum { ONE_IN = THREADS_SANITIZED ? 12 : SANITIZED ? 8 : 1 };

typedef struct problem {
    op_matmul o;
    int64_t a_rows, a_cols, b_rows, b_cols;
    void *a, *b, *bias, *residual, *c, *more_a, *more_b, *scale;
    void *c_before; /* a copy of c, so that a matmul can be repeated and padding be compared */
} problem;

static inline void store(void *p, pt_dtype type, int64_t i, double x)
{
    if (type == PT_BF16)
        ((bf16 *)p)[i] = bf16_from_f32((float)x);
    else
        ((float *)p)[i] = (float)x;
}

static inline double load(const void *p, pt_dtype type, int64_t i)
{
    return type == PT_BF16 ? bf16_to_f32(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

/* rows x cols normal numbers; what lies between cols and ld is NaN, which no result may show. */
static inline void *random_matrix(uint32_t stream, pt_dtype type, int64_t rows, int64_t cols, int64_t ld)
{
    void *p = malloc((size_t)(rows * ld) * dtype_bytes(type) + 1);
    assert_non_null(p);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < ld; j++)
            store(p, type, i * ld + j, j < cols ? rng_normal(seed, RNG_TEST, stream, (uint64_t)(i * cols + j)) : NAN);
    return p;
}

static inline size_t c_bytes(const problem *p)
{
    return (size_t)(p->o.m * p->o.ldc) * dtype_bytes(p->o.out_type);
}

/* pad: how far the strides exceed the rows. */
static inline problem problem_make(op_matmul o, int64_t pad, bool bias, bool residual)
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

static inline void problem_free(problem *p)
{
    free(p->a), free(p->b), free(p->bias), free(p->residual), free(p->c), free(p->c_before);
    free(p->more_a), free(p->more_b), free(p->scale);
}

static inline void problem_run(problem *p, pool *threads)
{
    memcpy(p->c, p->c_before, c_bytes(p));
    cpu_matmul(threads, &p->o);
}

/* rows x k; of what is turned a row lies in a column. */
static inline double *in_double(const void *p, pt_dtype type, int64_t ld, bool turned, int64_t rows, int64_t k)
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
static inline void problem_check(const problem *p)
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

static inline uint32_t draw(uint64_t i, uint32_t below)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 9, i, w);
    return w[0] % below;
}

static inline op_matmul random_op(uint64_t i, int64_t m, int64_t n, int64_t k)
{
    op_matmul o = {.layout = draw(4 * i, 3), .type = draw(4 * i + 1, 2) ? PT_BF16 : PT_F32, .m = m, .n = n, .k = k};
    o.out_type = draw(4 * i + 2, 2) ? PT_F32 : o.type;
    static const float alphas[] = {0, 1, 0.22f, -1.5f};
    o.accumulate = o.out_type == PT_F32 && draw(4 * i + 3, 2);
    o.alpha = alphas[draw(5000 + i, 4)];
    o.more_k = o.layout != MATMUL_TN && draw(6000 + i, 2) ? 1 + draw(7000 + i, 70) : 0;
    return o;
}

/* One thread computes: under TSan, which makes it twenty times as long, once of each kind is enough. */
enum { COPY_CASES = THREADS_SANITIZED ? 12 : 60 };

static inline int print_seed(void **state)
{
    seed = test_seed();
    return 0;
}

#endif
