/* Activations with two derivatives, energies, and what computes in fp64: matmuls and AdamW. Beside long double and finite differences. */
#include "device/reference.h"

#include "device/cpu/pool.h"

static const jet_kind kinds[] = {JET_TANH, JET_TANH3, JET_RELU3, JET_SOFTPLUS, JET_SIN, JET_SILU};
static const pt_dtype jet_types[] = {PT_F32, PT_F64};

static bool runs(pt_dtype type) { return type == PT_F32 || !device_is_cuda(); }

static long double value_of(jet_kind kind, long double z)
{
    const long double t = tanhl(z), x = z > 0 ? z : 0;
    switch (kind) {
    case JET_TANH: return t;
    case JET_TANH3: return t * t * t;
    case JET_RELU3: return x * x * x;
    case JET_SOFTPLUS: return log1pl(expl(-fabsl(z))) + x;
    case JET_SIN: return sinl(z);
    default: return z / (1 + expl(-z));
    }
}

/* Of order h^4, in 64 bits of mantissa: good for 1e-12. */
static double slope_of(jet_kind kind, long double z)
{
    const long double h = 1e-3L;
    if (kind == JET_RELU3 && fabsl(z) < 0.01L) /* differences reach over the bend */
        return z > 0 ? (double)(3 * z * z) : 0;
    long double d = 8 * (value_of(kind, z + h) - value_of(kind, z - h)) - (value_of(kind, z + 2 * h) - value_of(kind, z - 2 * h));
    long double wide = 8 * (value_of(kind, z + 2 * h) - value_of(kind, z - 2 * h)) - (value_of(kind, z + 4 * h) - value_of(kind,
        z - 4 * h));
    d /= 12 * h, wide /= 24 * h;
    return (double)(d + (d - wide) / 15);
}

static double curve_of(jet_kind kind, long double z)
{
    const long double h = 2e-3L, v = value_of(kind, z);
    long double near1 = value_of(kind, z + h) + value_of(kind, z - h), near2 = value_of(kind, z + 2 * h) + value_of(kind, z - 2 * h);
    long double near4 = value_of(kind, z + 4 * h) + value_of(kind, z - 4 * h);
    const long double fine = (16 * near1 - near2 - 30 * v) / (12 * h * h), wide = (16 * near2 - near4 - 30 * v) / (48 * h * h);
    return (double)(fine + (fine - wide) / 15);
}

static void *zeros(int64_t n) { return memset(test_alloc((size_t)n * 8), 0, (size_t)n * 8); }

static void *numbers(pt_dtype type, int64_t n, double mean, double deviation, double *exact)
{
    void *x = zeros(n);
    const uint32_t stream = the_test.stream++;
    for (int64_t i = 0; i < n; i++) {
        const double v = mean + deviation * rng_normal(the_test.seed, RNG_TEST, stream, (uint64_t)i);
        if (type == PT_F64)
            ((double *)x)[i] = v;
        else
            ((float *)x)[i] = (float)v;
        exact[i] = type == PT_F64 ? v : (double)(float)v;
    }
    return x;
}

static double get(pt_dtype type, const void *x, int64_t i) { return type == PT_F64 ? ((const double *)x)[i] : ((const float *)x)[i]; }

static void close_to(pt_dtype type, double got, double want, double scale, const char *what, double z)
{
    const double slack = (type == PT_F64 ? 3e-11 : 4e-6) * (scale + fabs(want));
    if (!(fabs(got - want) <= slack))
        fail_msg("%s at %.17g is %.17g and should be %.17g", what, z, got, want);
}

static void run_jet(int threads, op_jet o) { run_op(threads, &(op){OP_JET, .jet = o}); }

static void values_and_derivatives(void **state)
{
    enum { N = 5003 };
    static double z[N], a[N], b[N], c[N], r[N];
    for (int turn = 0; turn < JET_KINDS * 2; turn++) {
        const pt_dtype type = jet_types[turn % 2];
        const jet_kind kind = kinds[turn / 2];
        if (!runs(type))
            continue;
        op_jet o = {kind, JET_VALUE, type, N, numbers(type, N, 0, 2, z), numbers(type, N, 0, 1, a), numbers(type, N, 0, 1, b),
                    numbers(type, N, 0, 1, c), NULL, zeros(N), zeros(N)};
        const void *residual = numbers(type, N, 0, 1, r);
        void *again = test_copy(o.z, (size_t)N * 8), *alone = test_copy(o.z, (size_t)N * 8);
        run_jet(1 + turn % TEST_THREADS, o);
        for (int i = 0; i < N; i++)
            close_to(type, get(type, o.out, i), (double)value_of(kind, z[i]), 1, "the value", z[i]);
        op_jet only = o;
        only.z = alone, only.out = NULL;
        run_jet(TEST_THREADS, only);
        same_bits(alone, o.z, (size_t)N * dtype_bytes(type), "z where no value is wanted");
        o.residual = residual;
        o.z = again;
        run_jet(1, o);
        for (int i = 0; i < N; i++)
            close_to(type, get(type, o.out, i), (double)value_of(kind, z[i]) + r[i], 2, "the sum", z[i]);
        o.pass = JET_SLOPE;
        run_jet(1, o);
        for (int i = 0; i < N; i++)
            close_to(type, get(type, o.out, i), slope_of(kind, z[i]) * a[i] + r[i], 10 * (1 + fabs(a[i])), "a and the slope", z[i]);
        o.pass = JET_REVERSE;
        run_jet(1, o);
        for (int i = 0; i < N; i++) {
            if (kind == JET_RELU3 && fabs(z[i]) < 0.01)
                continue;
            const double want = slope_of(kind, z[i]) * a[i] + curve_of(kind, z[i]) * b[i] * c[i];
            close_to(type, get(type, o.out, i), want, 20 * (1 + fabs(a[i]) + fabs(b[i] * c[i])) * (1 + z[i] * z[i]), "the reverse", z[i]);
            close_to(type, get(type, o.other, i), slope_of(kind, z[i]) * c[i], 10 * (1 + fabs(c[i])), "the other", z[i]);
        }
        test_teardown(NULL);
    }
}

/* Everywhere, also where exponentials end; NaN is handed on. */
static void far_out_and_not_a_number(void **state)
{
    for (int turn = 0; turn < JET_KINDS * 2; turn++) {
        const pt_dtype type = jet_types[turn % 2];
        const jet_kind kind = kinds[turn / 2];
        if (!runs(type))
            continue;
        static const double at[] = {-1e4, -800, -100, -1e-8, 0, 1e-12, 100, 800, 1e4, NAN, 1, 1, 1, 1, 1, 1, 1};
        enum { N = sizeof at / sizeof *at };
        double exact[N];
        void *z = numbers(type, N, 0, 0, exact), *out = zeros(N);
        for (int i = 0; i < N; i++)
            if (type == PT_F64)
                ((double *)z)[i] = at[i];
            else
                ((float *)z)[i] = (float)at[i];
        run_jet(1, (op_jet){kind, JET_VALUE, type, N, z, NULL, NULL, NULL, NULL, out, NULL});
        for (int i = 0; i < N; i++) {
            const double got = get(type, out, i), x = type == PT_F64 ? at[i] : (float)at[i], want = (double)value_of(kind, x);
            if (isnan(x) ? !isnan(got) : !(fabs(got - want) <= (type == PT_F64 ? 1e-14 : 1e-6) * fmax(fabs(want),
                kind == JET_SIN ? 1 : 1e-30)))
                if (isnan(x) || fabs(want) > 1e-37)
                    fail_msg("kind %d at %g: %.17g, should be %.17g", kind, x, got, want);
        }
        test_teardown(NULL);
    }
}

static void energies(void **state)
{
    for (int turn = 0; turn < 60; turn++) {
        const pt_dtype type = jet_types[turn % 2];
        if (!runs(type))
            continue;
        const int64_t rows = 1 + random_below(300), dim = 1 + random_below(12), ld = dim + random_below(3);
        const bool boundary = turn % 5 == 0;
        double *u = zeros(rows), *g = zeros(rows * ld), *terms = zeros(rows * QUADRATIC_TERMS), *value = zeros(rows);
        void *tu = numbers(type, rows, 0, 1, u), *tg = numbers(type, rows * ld, 0, 1, g);
        numbers(PT_F64, rows * QUADRATIC_TERMS, 0, 1, terms);
        void *du = zeros(rows), *dg = zeros(rows * ld);
        run_op(1 + turn % TEST_THREADS, &(op){OP_QUADRATIC, .quadratic = {type, rows, dim, ld, tu, boundary ? NULL : tg, terms, value, du,
            boundary ? NULL : dg}});
        for (int64_t r = 0; r < rows; r++) {
            const double *t = terms + r * QUADRATIC_TERMS;
            double want = t[1] * u[r] * u[r] / 2 - t[2] * u[r] + t[3];
            for (int64_t i = 0; i < dim && !boundary; i++)
                want += t[0] * g[r * ld + i] * g[r * ld + i] / 2;
            assert_true(fabs(value[r] - want) <= 1e-13 * (1 + 40 * fabs(t[0]) + fabs(want)));
            close_to(type, get(type, du, r), t[1] * u[r] - t[2] + t[4], 1, "du", u[r]);
            for (int64_t i = 0; i < ld && !boundary; i++)
                close_to(type, get(type, dg, r * ld + i), i < dim ? t[0] * g[r * ld + i] : 0, 1, "dg", g[r * ld + i]);
        }
        test_teardown(NULL);
    }
}

/* ---- fp64 ---- */

static void check_product(matmul_layout layout, int64_t m, int64_t n, int64_t k, bool accumulate, bool more)
{
    const int64_t pad = random_below(3), lda = (layout == MATMUL_TN ? m : k) + pad, ldb = (layout == MATMUL_NT ? k : n) + pad,
    ldc = n + pad;
    double *a = zeros((layout == MATMUL_TN ? k : m) * lda), *b = zeros((layout == MATMUL_NT ? n : k) * ldb), *c = zeros(m * ldc),
        *bias = zeros(n);
    double *residual = zeros(m * ldc), *before;
    numbers(PT_F64, (layout == MATMUL_TN ? k : m) * lda, 0, 1, a);
    numbers(PT_F64, (layout == MATMUL_NT ? n : k) * ldb, 0, 1, b);
    numbers(PT_F64, m * ldc, 0, 1, c);
    numbers(PT_F64, n, 0, 1, bias);
    numbers(PT_F64, m * ldc, 0, 1, residual);
    before = test_copy(c, (size_t)(m * ldc) * 8);
    op_matmul o = {.layout = layout, .type = PT_F64, .out_type = PT_F64, .accumulate = accumulate, .m = m, .n = n, .k = k, .lda = lda,
                   .ldb = ldb, .ldc = ldc, .a = a, .b = b, .bias = more ? bias : NULL, .residual = more ? residual : NULL, .c = c,
                   .alpha = more ? 0.5f : 0};
    double *again = test_copy(c, (size_t)(m * ldc) * 8);
    run_op(1, &(op){OP_MATMUL, .matmul = o});
    o.c = again;
    run_op(TEST_THREADS, &(op){OP_MATMUL, .matmul = o});
    same_bits(c, again, (size_t)(m * ldc) * 8, "c with more threads");
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double want = 0;
            for (int64_t l = 0; l < k; l++)
                want += a[layout == MATMUL_TN ? l * lda + i : i * lda + l] * b[layout == MATMUL_NT ? j * ldb + l : l * ldb + j];
            want = (more ? 0.5 : 1) * want + (more ? bias[j] + residual[i * ldc + j] : 0) + (accumulate ? before[i * ldc + j] : 0);
            assert_true(fabs(c[i * ldc + j] - want) <= 1e-13 * sqrt((double)k + 10) * 10);
        }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = n; j < ldc && i < m - 1; j++)
            assert_true(c[i * ldc + j] == before[i * ldc + j]);
    test_teardown(NULL);
}

static void products_in_double(void **state)
{
    if (!runs(PT_F64))
        skip();
    for (int turn = 0; turn < 90; turn++)
        check_product((matmul_layout)(turn % 3), 1 + random_below(turn % 7 ? 90 : 3), 1 + random_below(turn % 5 ? 70 : 3),
                      1 + random_below(200),
                      turn & 4, turn & 8);
    check_product(MATMUL_TN, 3, 5, POOL_SCRATCH_BYTES / 128 + 77, false, true);
}

static void adamw_in_double(void **state)
{
    if (!runs(PT_F64))
        skip();
    enum { N = 40000 };
    static double w[N], m[N], v[N], g[N];
    numbers(PT_F64, N, 0, 1, w), numbers(PT_F64, N, 0, 1, m), numbers(PT_F64, N, 2, 0.3, v), numbers(PT_F64, N, 0, 1, g);
    double *hi = test_copy(w, sizeof w), *first = test_copy(m, sizeof m), *second = test_copy(v, sizeof v);
    const adamw_rates r = {1 - 1e-2, 0.9, 0.999, 1e-8, 1e-2, 0.5};
    op_adamw o = {.type = PT_F64, .n = N, .hi = hi, .m = (float *)first, .v = (float *)second, .g = g, .rates = r};
    run_op(2, &(op){OP_ADAMW, .adamw = o});
    for (int i = 0; i < N; i++) {
        const double mi = r.beta1 * m[i] + (1 - r.beta1) * g[i], vi = r.beta2 * v[i] + (1 - r.beta2) * g[i] * g[i];
        const double want = w[i] * r.decay - r.step_size * mi / (sqrt(vi) / r.sqrt_correction2 + r.eps);
        assert_true(fabs(hi[i] - want) < 1e-14 * (1 + fabs(want)) && fabs(first[i] - mi) < 1e-14 * (1 + fabs(mi)));
        assert_true(fabs(second[i] - vi) < 1e-14 * (1 + vi));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(values_and_derivatives), OP_TEST(far_out_and_not_a_number), OP_TEST(energies), OP_TEST(products_in_double),
        OP_TEST(adamw_in_double),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
