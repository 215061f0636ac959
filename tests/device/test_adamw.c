/* AdamW: equal to the bit to a scalar loop with fmaf, and close to the formula in fp64. */
#include "device/reference.h"

#include <float.h>

typedef struct adamw_states {
    pt_dtype type;
    int64_t n;
    float *w, *m, *v; /* w of fp32; of bf16 in hi and lo */
    bf16 *hi;
    uint16_t *lo;
    void *g;
} adamw_states;

static adamw_states random_states(pt_dtype type, int64_t n, double size)
{
    adamw_states s = {.type = type, .n = n};
    s.w = tensor_random(PT_F32, n, 0, size).data;
    s.m = tensor_random(PT_F32, n, 0, 1e-2 * size).data;
    s.v = tensor_random(PT_F32, n, 0, 1e-2 * size * size).data;
    s.g = tensor_random(type, n, 0, 1e-1 * size).data;
    s.hi = test_alloc((size_t)n * 2);
    s.lo = test_alloc((size_t)n * 2);
    for (int64_t i = 0; i < n; i++) {
        s.v[i] = fabsf(s.v[i]);
        master_split(s.w[i], &s.hi[i], &s.lo[i]);
    }
    return s;
}

static op_adamw op_of(const adamw_states *s)
{
    bool half = s->type == PT_BF16;
    return (op_adamw){.type = s->type, .n = s->n, .hi = half ? (void *)s->hi : s->w, .lo = half ? s->lo : NULL, .m = s->m,
                      .v = s->v, .g = s->g, .grad_scale = 0.37f, .decay = 1 - 3e-4f * 0.1f, .beta1 = 0.9f, .beta2 = 0.95f,
                      .eps = 1e-8f, .step_size = 3e-4f / 0.271f, .sqrt_correction2 = 0.3776f};
}

static float tidy(float x, bool vanishes) { return vanishes && fabsf(x) < FLT_MIN ? 0 : x; }

static void scalar_adamw(const op_adamw *o)
{
    for (int64_t i = 0; i < o->n; i++) {
        float g = (float)element(o->type, o->g, i) * o->grad_scale;
        float w = o->lo ? master_join(((bf16 *)o->hi)[i], o->lo[i]) : ((float *)o->hi)[i];
        w = w * o->decay;
        o->m[i] = tidy(fmaf(1 - o->beta1, g - o->m[i], o->m[i]), true);
        float kept = o->beta2 * o->v[i], square = g * g;
        o->v[i] = tidy(fmaf(1 - o->beta2, square, kept), o->eps >= 1e-9f);
        float root = sqrtf(o->v[i]) / o->sqrt_correction2;
        w = fmaf(-o->step_size, o->m[i] / (root + o->eps), w);
        if (o->lo)
            master_split(w, &((bf16 *)o->hi)[i], &o->lo[i]);
        else
            ((float *)o->hi)[i] = w;
    }
}

static adamw_states copy_of(const adamw_states *s)
{
    adamw_states c = *s;
    size_t n = (size_t)s->n;
    c.w = test_copy(s->w, n * 4), c.m = test_copy(s->m, n * 4), c.v = test_copy(s->v, n * 4);
    c.hi = test_copy(s->hi, n * 2), c.lo = test_copy(s->lo, n * 2);
    return c;
}

static void same_states(const adamw_states *a, const adamw_states *b)
{
    size_t n = (size_t)a->n;
    same_bits(a->w, b->w, n * 4, "w");
    same_bits(a->hi, b->hi, n * 2, "hi");
    same_bits(a->lo, b->lo, n * 2, "lo");
    same_bits(a->m, b->m, n * 4, "m");
    same_bits(a->v, b->v, n * 4, "v");
}

/* Sizes from numbers of every day down to denormals, several steps, 1 to 4 threads. */
static void it_is_the_scalar_loop_to_the_bit(void **state)
{
    static const int64_t sizes[] = {1, 7, 40, 257, 50257};
    for (int turn = 0; turn < 40; turn++) {
        double magnitude = exp2(-(double)random_below(70) * (turn & 2));
        adamw_states start = random_states(types[turn & 1], sizes[turn % 5], magnitude);
        adamw_states want = copy_of(&start);
        op_adamw o = op_of(&want);
        const float eps = turn & 4 ? o.eps : 1e-10f; /* so small that second moments stay denormal */
        o.eps = eps;
        for (int step = 0; step < 3; step++)
            scalar_adamw(&o);
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            adamw_states got = copy_of(&start);
            o = op_of(&got);
            o.eps = eps;
            for (int step = 0; step < 3; step++)
                run_op(threads, &(op){OP_ADAMW, .adamw = o});
            same_states(&want, &got);
        }
        test_teardown(NULL);
    }
}

static void it_is_the_formula_in_fp64(void **state)
{
    enum { N = 1001 };
    adamw_states s = random_states(PT_F32, N, 1), before = copy_of(&s);
    op_adamw o = op_of(&s);
    run_op(2, &(op){OP_ADAMW, .adamw = o});
    for (int64_t i = 0; i < N; i++) {
        double g = ((float *)s.g)[i] * (double)o.grad_scale, beta1 = o.beta1, beta2 = o.beta2;
        double m = beta1 * before.m[i] + (1 - beta1) * g, v = beta2 * before.v[i] + (1 - beta2) * g * g;
        double w = before.w[i] * (double)o.decay - o.step_size * m / (sqrt(v) / o.sqrt_correction2 + o.eps);
        near(PT_F32, s.m[i], m, 1e-8, "m", i);
        near(PT_F32, s.v[i], v, 1e-8, "v", i);
        near(PT_F32, s.w[i], w, 1e-6 * (1 + fabs(w)), "w", i);
    }
}

/* Rows of a vocabulary that are not met again: their moments fade to nothing, and do not stay denormal, which would be slow. */
static void moments_without_gradients_end_as_zero(void **state)
{
    enum { N = 45 };
    for (int turn = 0; turn < 2; turn++) {
        adamw_states s = random_states(types[turn], N, 1);
        for (int64_t i = 0; i < N; i++) {
            element_set(s.type, s.g, i, 0);
            s.m[i] = (float)(i % 3 - 1) * 1e-36f, s.v[i] = 1e-37f * (float)(i % 5);
        }
        op_adamw o = op_of(&s);
        for (int step = 0; step < 100; step++) {
            run_op(TEST_THREADS, &(op){OP_ADAMW, .adamw = o});
            for (int64_t i = 0; i < N; i++)
                assert_true((s.m[i] == 0 || isnormal(s.m[i])) && (s.v[i] == 0 || isnormal(s.v[i])));
        }
        for (int64_t i = 0; i < N; i++)
            assert_true(s.m[i] == 0 && s.v[i] == 0);
    }
}

/* Without eps nothing may be divided by a second moment that was taken away. */
static void small_gradients_without_eps_move_weights_by_a_step(void **state)
{
    enum { N = 45 };
    adamw_states s = random_states(PT_F32, N, 0);
    for (int64_t i = 0; i < N; i++)
        element_set(s.type, s.g, i, 1e-18);
    op_adamw o = op_of(&s);
    o.eps = 0, o.grad_scale = 1, o.decay = 1, o.step_size = 1e-3f / (1 - o.beta1), o.sqrt_correction2 = sqrtf(1 - o.beta2);
    run_op(1, &(op){OP_ADAMW, .adamw = o});
    for (int64_t i = 0; i < N; i++)
        assert_true(fabs(s.w[i] + 1e-3) < 1e-5);
}

/* With nothing to change, hi and lo come back as they were: every weight survives the split. */
static void weights_survive_the_two_halves(void **state)
{
    enum { N = 65536 };
    adamw_states s = random_states(PT_BF16, N, 1);
    for (int64_t i = 0; i < N; i++) {
        float w = f32_from_bits((uint32_t)i << 16 | (uint32_t)(i * 40503 & 0xffff));
        master_split(isfinite(w) ? w : 1.0f, &s.hi[i], &s.lo[i]);
        ((bf16 *)s.g)[i] = 0;
        s.m[i] = s.v[i] = 0;
    }
    adamw_states before = copy_of(&s);
    op_adamw o = op_of(&s);
    o.decay = 1;
    run_op(1, &(op){OP_ADAMW, .adamw = o});
    same_states(&before, &s);
}

/* A GPU's NaN, which files may hold, is rounded half up to zero if it is taken for a number. */
static void no_nan_becomes_a_number(void **state)
{
    static const uint32_t nans[] = {0x7fffffff, 0xffffffff, 0x7f800001, 0x7fff8000, 0xffc00000, 0x7fc00000};
    enum { N = sizeof nans / sizeof *nans };
    adamw_states s = random_states(PT_BF16, N, 0);
    for (int i = 0; i < N; i++) {
        bf16 hi;
        uint16_t lo;
        master_split(f32_from_bits(nans[i]), &hi, &lo);
        assert_true(isnan(bf16_to_f32(hi)) && isnan(master_join(hi, lo)));
        s.m[i] = f32_from_bits(nans[i]);
    }
    op_adamw o = op_of(&s);
    run_op(1, &(op){OP_ADAMW, .adamw = o});
    for (int i = 0; i < N; i++)
        assert_true(isnan(bf16_to_f32(s.hi[i])) && isnan(master_join(s.hi[i], s.lo[i])));
}

static void not_finite_gradients_are_seen(void **state)
{
    for (int turn = 0; turn < 20; turn++) {
        adamw_states s = random_states(types[turn & 1], 30, 1);
        int64_t i = random_below(30);
        element_set(s.type, s.g, i, turn & 2 ? NAN : INFINITY);
        op_adamw o = op_of(&s);
        run_op(1, &(op){OP_ADAMW, .adamw = o});
        for (int64_t k = 0; k < 30; k++) {
            float w = s.type == PT_BF16 ? master_join(s.hi[k], s.lo[k]) : s.w[k];
            assert_true((isfinite(w) && isfinite(s.v[k])) == (k != i));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(it_is_the_scalar_loop_to_the_bit),
        OP_TEST(it_is_the_formula_in_fp64),
        OP_TEST(moments_without_gradients_end_as_zero),
        OP_TEST(small_gradients_without_eps_move_weights_by_a_step),
        OP_TEST(weights_survive_the_two_halves),
        OP_TEST(no_nan_becomes_a_number),
        OP_TEST(not_finite_gradients_are_seen),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
