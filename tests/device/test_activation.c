/* Activations: every fp32 exponent against the C library in fp64, gated and not, backward. */
#include "device/reference.h"

static const activation_kind kinds[] = {ACT_GELU_TANH, ACT_GELU_ERF, ACT_SILU, ACT_RELU2, ACT_RELU};
enum { KINDS = 5 };

/* Where a logistic function nears 1, s - s^2 keeps the absolute error of s, 2^-24, and is
 * multiplied by x dz/dx, up to 35 there. */
#define SLOPE_SLACK 2.5e-6

static double reference(activation_kind kind, double x)
{
    switch (kind) {
    case ACT_GELU_TANH: return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_GELU_ERF: return x * 0.5 * erfc(-x * M_SQRT1_2);
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x > 0 ? x : 0;
    }
}

static double reference_slope(activation_kind kind, double x)
{
    double s;
    switch (kind) {
    case ACT_GELU_TANH: {
        double k = 2 * sqrt(2 / M_PI), e = exp(-fabs(k * (x + 0.044715 * x * x * x)));
        s = x < 0 ? e / (1 + e) : 1 / (1 + e);
        return s + x * e / ((1 + e) * (1 + e)) * k * (1 + 3 * 0.044715 * x * x);
    }
    case ACT_GELU_ERF: return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    case ACT_SILU: s = 1 / (1 + exp(-x)); return s + x * s * (1 / (1 + exp(x)));
    case ACT_RELU2: return x > 0 ? 2 * x : 0;
    default: return x > 0;
    }
}

static void forward(int threads, activation_kind kind, bool gated, int64_t rows, int64_t cols, const tensor *up, void *out)
{
    op_activation o = {kind, gated, up->type, rows, cols, up->data, out};
    run_op(threads, &(op){OP_ACTIVATION, .activation = o});
}

static void backward_and_out(int threads, activation_kind kind, bool gated, int64_t rows, int64_t cols, const tensor *up, const void *dout,
                             void *dup, void *out)
{
    op_activation_backward o = {kind, gated, up->type, rows, cols, up->data, dout, dup, out};
    run_op(threads, &(op){OP_ACTIVATION_BACKWARD, .activation_backward = o});
}

static void backward(int threads, activation_kind kind, bool gated, int64_t rows, int64_t cols, const tensor *up,
                     const tensor *dout, void *dup)
{
    backward_and_out(threads, kind, gated, rows, cols, up, dout->data, dup, NULL);
}

/* Magnitudes 2^-30 to 2^7, where all four have left their bends behind. The argument of the
 * exponential is itself rounded to fp32 (relative error 2^-24 of z), hence the slack with z. A
 * probability below the normal numbers may be 0. */
static void fp32_is_within_a_few_ulp_over_the_whole_range(void **state)
{
    enum { N = 200003 };
    tensor x = tensor_random(PT_F32, N, 0, 1);
    for (int64_t i = 0; i < N; i++)
        tensor_set(&x, i, copysign(exp2(-30 + 37 * (double)i / N), x.value[i]));
    tensor one = tensor_random(PT_F32, N, 1, 0);
    float *y = test_alloc(N * sizeof *y), *dy = test_alloc(N * sizeof *dy);
    for (int k = 0; k < KINDS; k++) {
        forward(2, kinds[k], false, 1, N, &x, y);
        backward(2, kinds[k], false, 1, N, &x, &one, dy);
        double worst = 0;
        for (int64_t i = 0; i < N; i++) {
            double v = x.value[i], want = reference(kinds[k], v);
            double z = kinds[k] == ACT_GELU_TANH ? 1.6 * v + 0.0715 * v * v * v : 0;
            double ulp = fmax(fabs(want) * 0x1p-23 * (1 + fabs(z)), 0x1p-119);
            worst = fmax(worst, fabs(y[i] - want) / ulp);
            near(PT_F32, dy[i], reference_slope(kinds[k], v), SLOPE_SLACK, "slope", i);
        }
        printf("kind %d: largest error %.2f ulp\n", k, worst);
        assert_true(worst <= (device_is_cuda() ? 6 : 5)); /* CUDA's expf is off by 2 ulp, the C library's by less than 1 */
    }
}

static void check_forward(activation_kind kind, pt_dtype type, bool gated, int64_t rows, int64_t cols)
{
    tensor up = tensor_random(type, rows * cols * (gated ? 2 : 1), 0, 2);
    size_t bytes = (size_t)(rows * cols) * dtype_bytes(type);
    void *out = test_alloc(bytes);
    forward(1, kind, gated, rows, cols, &up, out);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < cols; i++) {
            const double *u = up.value + row * cols * (gated ? 2 : 1) + i;
            double want = reference(kind, u[0]) * (gated ? u[cols] : 1);
            near(type, element(type, out, row * cols + i), want, 1e-6 * (1 + fabs(want)), "out", row * cols + i);
        }
    for (int threads = 2; threads <= TEST_THREADS; threads++) {
        void *again = test_alloc(bytes);
        forward(threads, kind, gated, rows, cols, &up, again);
        same_bits(out, again, bytes, "out with more threads");
    }
}

static void check_backward(activation_kind kind, pt_dtype type, bool gated, int64_t rows, int64_t cols)
{
    int64_t width = gated ? 2 * cols : cols;
    tensor up = tensor_random(type, rows * width, 0, 2), dout = tensor_random(type, rows * cols, 0, 1);
    void *dup = test_alloc(tensor_bytes(&up));
    backward(1, kind, gated, rows, cols, &up, &dout, dup);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < cols; i++) {
            int64_t at = row * width + i;
            double d = dout.value[row * cols + i], u = gated ? up.value[at + cols] : 1;
            double gate = up.value[at], want = d * u * reference_slope(kind, gate);
            near(type, element(type, dup, at), want, SLOPE_SLACK * fabs(d * u), "dgate", at);
            want = d * reference(kind, gate);
            if (gated)
                near(type, element(type, dup, at + cols), want, 1e-6 * (1 + fabs(want)), "dup", at + cols);
        }
    for (int threads = 2; threads <= TEST_THREADS; threads++) {
        void *again = test_alloc(tensor_bytes(&up));
        backward(threads, kind, gated, rows, cols, &up, &dout, again);
        same_bits(dup, again, tensor_bytes(&up), "dup with more threads");
    }
}

static void odd_shapes_gated_or_not_match_fp64(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {1, 257}, {7, 40}, {7, 3}, {50, 1000}};
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < TYPES; t++)
            for (size_t s = 0; s < 2 * sizeof shapes / sizeof *shapes; s++) {
                check_forward(kinds[k], types[t], s & 1, shapes[s / 2][0], shapes[s / 2][1]);
                check_backward(kinds[k], types[t], s & 1, shapes[s / 2][0], shapes[s / 2][1]);
                test_teardown(NULL);
            }
}

/* Over dout, or elsewhere. */
static void backward_hands_out_the_forward_passs_output_again(void **state)
{
    for (int turn = 0; turn < 200; turn++) {
        const activation_kind kind = kinds[turn % KINDS];
        const pt_dtype type = types[turn / KINDS % 2];
        const bool gated = turn / (2 * KINDS) % 2;
        const int64_t rows = 1 + random_below(9), cols = 1 + random_below(700);
        tensor up = tensor_random(type, rows * cols * (gated ? 2 : 1), 0, 3), dout = tensor_random(type, rows * cols, 0, 1);
        const size_t bytes = tensor_bytes(&dout);
        void *y = test_alloc(bytes), *again = test_copy(dout.data, bytes), *apart = test_alloc(bytes), *dup[3];
        for (int i = 0; i < 3; i++)
            dup[i] = test_alloc(tensor_bytes(&up));
        forward(1, kind, gated, rows, cols, &up, y);
        backward(1, kind, gated, rows, cols, &up, &dout, dup[0]);
        backward_and_out(1 + turn % TEST_THREADS, kind, gated, rows, cols, &up, again, dup[1], again);
        backward_and_out(1, kind, gated, rows, cols, &up, dout.data, dup[2], apart);
        same_bits(y, again, bytes, "out over dout");
        same_bits(y, apart, bytes, "out");
        same_bits(dup[0], dup[1], tensor_bytes(&up), "dup beside out over dout");
        same_bits(dup[0], dup[2], tensor_bytes(&up), "dup beside out");
        test_teardown(NULL);
    }
}

static void reference_slope_is_the_slope_of_reference(void **state)
{
    for (int k = 0; k < KINDS - 1; k++)
        for (double x = -6; x < 6; x += 0.01) {
            double numeric = (reference(kinds[k], x + 1e-5) - reference(kinds[k], x - 1e-5)) / 2e-5;
            near(PT_F32, reference_slope(kinds[k], x), numeric, kinds[k] == ACT_RELU2 && fabs(x) < 1e-5 ? 1e-5 : 1e-8, "slope", k);
        }
}

static void not_finite_numbers_are_seen(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < TYPES; t++)
            for (int64_t i = 0; i < 19; i++) {
                tensor x = tensor_random(types[t], 19, 0, 1), d = tensor_random(types[t], 19, 1, 0);
                void *y = test_alloc(tensor_bytes(&x)), *dx = test_alloc(tensor_bytes(&x));
                tensor_set(&x, i, i & 1 ? NAN : INFINITY);
                forward(1, kinds[k], false, 19, 1, &x, y);
                assert_false(isfinite(element(types[t], y, i)));
                assert_true(i & 1 || element(types[t], y, i) == INFINITY);
                tensor_set(&x, i, 0.5);
                tensor_set(&d, i, i & 1 ? NAN : -INFINITY);
                backward(1, kinds[k], false, 1, 19, &x, &d, dx);
                assert_false(isfinite(element(types[t], dx, i)));
                test_teardown(NULL);
            }
}

/* In a long row, and in rows shorter than what is computed side by side, times 1. */
static void every_bf16_number_gives_the_same_in_long_rows_and_short_ones(void **state)
{
    enum { N = 1 << 16, SHORT = 7, ROWS = (N + SHORT - 1) / SHORT };
    tensor x = tensor_random(PT_BF16, N, 0, 1), one = tensor_random(PT_BF16, ROWS * SHORT, 1, 0),
        pairs = tensor_random(PT_BF16, 2 * ROWS * SHORT, 1, 0);
    for (int64_t i = 0; i < N; i++)
        ((bf16 *)x.data)[i] = ((bf16 *)pairs.data)[i / SHORT * 2 * SHORT + i % SHORT] = (bf16)i;
    for (int k = 0; k < KINDS; k++) {
        bf16 *y = test_alloc(N * 2), *dx = test_alloc(N * 2), *gated = test_alloc(ROWS * SHORT * 2),
        *dgated = test_alloc(2 * ROWS * SHORT * 2);
        forward(1, kinds[k], false, 1, N, &x, y);
        backward(1, kinds[k], false, 1, N, &x, &one, dx);
        forward(1, kinds[k], true, ROWS, SHORT, &pairs, gated);
        backward(1, kinds[k], true, ROWS, SHORT, &pairs, &one, dgated);
        for (int64_t i = 0; i < N; i++) {
            bf16 dgate = dgated[i / SHORT * 2 * SHORT + i % SHORT];
            bool number = !isnan(bf16_to_f32((bf16)i));
            assert_true(y[i] == gated[i] || (isnan(bf16_to_f32(y[i])) && isnan(bf16_to_f32(gated[i]))));
            assert_true(dx[i] == dgate || (isnan(bf16_to_f32(dx[i])) && isnan(bf16_to_f32(dgate))));
            assert_true(number || (isnan(bf16_to_f32(y[i])) && y[i] & 0x40)); /* quiet */
        }
    }
}

/* What is rounded to 8 bits is off by its rounding and by a share of it for what fewer terms lose: of the logistic function 3.9e-6. What
 * is near the least numbers may be 0. */
static void check_bf16(const char *what, activation_kind kind, bf16 got, double x, double want, double slack)
{
    const double y = bf16_to_f32(got), half = want != 0 ? ldexp(0x1p-8, ilogb(want)) : 0;
    const double allowed = half + fabs(want) * 4e-6 + slack + 0x1p-119;
    if (!(fabs(y - want) <= allowed))
        fail_msg("kind %d, %s of %.9g is %.9g and should be %.9g", kind, what, x, y, want);
}

/* Its square leaves the range of bf16. */
static void check_square(bf16 y, bf16 dx, double x)
{
    const double largest = 0x1.fep127;
    if (reference(ACT_RELU2, x) > largest * (1 + 0x1p-9))
        assert_true(isinf(bf16_to_f32(y)));
    else if (reference(ACT_RELU2, x) <= largest)
        check_bf16("value", ACT_RELU2, y, x, reference(ACT_RELU2, x), 0);
    if (reference_slope(ACT_RELU2, x) <= largest)
        check_bf16("slope", ACT_RELU2, dx, x, reference_slope(ACT_RELU2, x), 0);
}

/* Far from 0 they are x or 0, also where the square of x is infinite: there alone GELU's slope is none. */
static void every_bf16_number_is_rounded_once_from_fp64(void **state)
{
    enum { N = 1 << 16 };
    tensor x = tensor_random(PT_BF16, N, 0, 1), one = tensor_random(PT_BF16, N, 1, 0);
    for (int64_t i = 0; i < N; i++)
        ((bf16 *)x.data)[i] = (bf16)i;
    for (int k = 0; k < KINDS; k++) {
        bf16 *y = test_alloc(N * 2), *dx = test_alloc(N * 2);
        forward(2, kinds[k], false, 1, N, &x, y);
        backward(2, kinds[k], false, 1, N, &x, &one, dx);
        for (int64_t i = 0; i < N; i++) {
            const double v = bf16_to_f32((bf16)i), near_0 = fmax(-100, fmin(v, 100));
            if (isnan(v))
                assert_true(isnan(bf16_to_f32(y[i])) && (kinds[k] == ACT_RELU || isnan(bf16_to_f32(dx[i]))));
            if (!isfinite(v))
                continue;
            if (kinds[k] == ACT_RELU2) {
                check_square(y[i], dx[i], v);
                continue;
            }
            check_bf16("value", kinds[k], y[i], v, v == near_0 ? reference(kinds[k], v) : fmax(v, 0), 0);
            if (kinds[k] != ACT_GELU_TANH || fabs(v) < 0x1p64)
                check_bf16("slope", kinds[k], dx[i], v, reference_slope(kinds[k], near_0), SLOPE_SLACK);
        }
    }
}

/* With and without a stream, in place; values behind the last stay. */
static void scaling_matches_fp64(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        const pt_dtype type = i % 2 ? PT_BF16 : PT_F32;
        const int64_t n = i < 2 ? 100003 : 1 + random_below(300), more = 9;
        tensor x = tensor_random(type, n + more, 0, 2), stream = tensor_random(PT_F32, n + more, 0, 2);
        tensor factor = tensor_random(PT_F32, 1, 1, 0.3);
        void *y = test_copy(x.data, tensor_bytes(&x));
        float *s = test_copy(stream.data, tensor_bytes(&stream));
        const bool with = i / 2 % 2;
        run_op(1 + random_below(3), &(op){OP_SCALE, .scale = {type, 1, n, 0, factor.data, 0, y, with ? s : NULL}});
        for (int64_t k = 0; k < n; k++) {
            const double want = factor.value[0] * (with ? stream.value[k] : x.value[k]);
            near(type, element(type, y, k), want, 1e-7, "scaled", k);
            near(PT_F32, s[k], with ? want : stream.value[k], 1e-7, "stream", k);
        }
        const size_t end = (size_t)n * dtype_bytes(type);
        assert_memory_equal((char *)y + end, (char *)x.data + end, tensor_bytes(&x) - end);
        assert_memory_equal(s + n, (float *)stream.data + n, (size_t)more * sizeof *s);
    }
}

/* Some columns of rows, by a number; the others stay. */
static void scaling_of_columns_matches_fp64(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        const pt_dtype type = i % 2 ? PT_BF16 : PT_F32;
        const int64_t rows = 1 + random_below(70), first = random_below(20), cols = i == 2 ? 5000 : 1 + random_below(90);
        const int64_t ld = first + cols + random_below(20);
        tensor x = tensor_random(type, rows * ld, 0, 2);
        const float times = (float)random_below(1000) / 300;
        char *y = test_copy(x.data, tensor_bytes(&x));
        char *from = y + (size_t)first * dtype_bytes(type);
        run_op(1 + random_below(3), &(op){OP_SCALE, .scale = {type, rows, cols, ld, NULL, times, from, NULL}});
        for (int64_t k = 0; k < rows * ld; k++) {
            const bool scaled = k % ld >= first && k % ld < first + cols;
            near(type, element(type, y, k), x.value[k] * (scaled ? (double)times : 1), 1e-7, "scaled", k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(scaling_matches_fp64),
        OP_TEST(scaling_of_columns_matches_fp64),
        OP_TEST(fp32_is_within_a_few_ulp_over_the_whole_range),
        OP_TEST(reference_slope_is_the_slope_of_reference),
        OP_TEST(odd_shapes_gated_or_not_match_fp64),
        OP_TEST(backward_hands_out_the_forward_passs_output_again),
        OP_TEST(not_finite_numbers_are_seen),
        OP_TEST(every_bf16_number_is_rounded_once_from_fp64),
        OP_TEST(every_bf16_number_gives_the_same_in_long_rows_and_short_ones),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
